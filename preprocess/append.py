"""A dataset that grows: which items of a source are new, and the plan of their shards."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loaders.format.files import ITEMS, MANIFEST
from loaders.format.spec import Manifest
from preprocess.asked_for import asked_for
from preprocess.differences import (
    ItemDifferences,
    by_place,
    compare_items,
    other_fields,
    other_kind,
    other_options,
)
from preprocess.errors import OutputError
from preprocess.item_record import RecordedRun, read_record
from preprocess.items import Item, Listing, printable
from preprocess.plan import Before, Plan, RunOptions, hash_recipes, plan_run
from preprocess.removal import read_known_manifest
from preprocess.staged import beside
from preprocess.touched import (
    as_untouched,
    compare_contents,
    noted,
    take_touched,
    with_times_of,
)


def continue_plan(plan: Plan, options: RunOptions) -> Plan:
    """Return the plan of the same run where a dataset has been appended to, or is to be.

    Its items come run by run, those of each in the order of the listing, and no shard has items of
    two runs: so the shards that are there stay as they are.

    Args:
        plan: Of a run over all that is in the source now.
        options: How to run; `append` adds what is new.

    Raises:
        OutputError: There is nothing that it could be appended to, or the source or the options
            are others than those of the dataset.
    """
    if options.overwrite:
        return plan
    if not (plan.out / MANIFEST).is_file():
        if options.append:
            raise OutputError(
                f"{plan.out}: no finished dataset to append to; leave out --append to begin one"
            )
        return plan
    manifest = read_known_manifest(plan.out)
    if options.append and plan.closed:
        raise OutputError(f"{plan.out}: cannot be appended to: {plan.closed}")
    same = (plan.recipe_hash, plan.listing.fingerprint())
    if not options.append or same == (manifest.recipe_hash, manifest.source_hash):
        return _as_it_is(plan, options, manifest)
    runs = read_record(beside(plan.out, ITEMS))
    if runs is None:
        raise OutputError(
            f"{plan.out}: what it was made from is not known: {ITEMS} is missing; prepare it again "
            "with --overwrite"
        )
    found = compare_items(plan.listing, runs)
    _refuse_other(plan, options, manifest, found)
    whole = arrange_runs(as_untouched(plan, found.touched), options, runs)
    if whole.listing.fingerprint() != manifest.source_hash:
        raise OutputError(
            f"{plan.out}: {ITEMS} is not the one of its {MANIFEST}; prepare it again with "
            "--overwrite"
        )
    if not found.new:
        return whole
    runs = tuple(with_times_of(plan.listing, runs))
    plan = replace(plan, listing=noted(plan.listing, found.touched))
    return replace(arrange_runs(plan, options, runs, found.new), before=Before(manifest, runs))


def _as_it_is(plan: Plan, options: RunOptions, manifest: Manifest) -> Plan:
    """Return the plan of a run that is to add nothing."""
    if plan.listing.fingerprint() != manifest.source_hash:
        runs = read_record(beside(plan.out, ITEMS))
        if runs is not None and len(runs) > 1:
            plan = as_recorded(plan, options, runs)
    return take_touched(plan, manifest, options.worker_count())


def as_recorded(plan: Plan, options: RunOptions, runs: Sequence[RecordedRun]) -> Plan:
    """Return the plan of some runs over the same items, the plan itself if they are others."""
    found = compare_items(plan.listing, runs)
    return plan if found.gone_or_other or found.new else arrange_runs(plan, options, runs)


def _refuse_other(
    plan: Plan, options: RunOptions, manifest: Manifest, found: ItemDifferences
) -> None:
    """Refuse other options, other classes, and files that are gone or were changed, by name."""
    reason = (
        other_kind(plan, manifest)
        or other_options(plan, asked_for(plan.out, manifest))
        or _other_classes(plan.listing, manifest.classes)
        or found.gone_or_other
        or other_fields(plan, manifest)
    )
    kept = {name: plan.recipes[name] for name in manifest.splits if name in plan.recipes}
    if not reason and hash_recipes(kept, options) != manifest.recipe_hash:
        reason = "another version of prep has made it"
    if not reason and found.touched:  # last, since files are read for it
        root, workers = plan.listing.root, options.worker_count()
        compared = compare_contents(root, found.touched, workers, touched=True)
        reason = found.written if compared.unknown else compared.other
    if reason:
        raise OutputError(
            f"{plan.out}: cannot be appended to: {reason}; --overwrite prepares all of it again"
        )


def _other_classes(listing: Listing, there: Sequence[str]) -> str:
    if there and not listing.classes:
        return "; ".join(
            ["its items have labels, those of the source have none now", *listing.notes]
        )
    new = sorted(set(listing.classes) - set(there))
    if not new or not there:
        return ""
    return f"class {printable(new[0])!r} is new, and would give others another label"


def arrange_runs(
    plan: Plan,
    options: RunOptions,
    runs: Sequence[RecordedRun],
    fresh: Mapping[str, Sequence[Item]] | None = None,
) -> Plan:
    """Return a plan whose items and shards are those of some runs, one after the other.

    Args:
        plan: Of one run over all of the source.
        options: How to run.
        runs: What was made of it, all of it there.
        fresh: The items of a further run.

    Raises:
        KeyError: An item is gone.
    """
    items = by_place(plan.listing)
    splits: dict[str, list[Item]] = {name: [] for name in plan.listing.splits}
    for run in runs:
        for split, recorded in run.splits.items():
            splits[split] += [items[split, one.key, one.start] for one in recorded]
    counts = [run.counts for run in runs]
    if fresh is not None:
        for split, added in fresh.items():
            splits[split] += added
        counts.append({split: len(added) for split, added in fresh.items()})
    ordered = {name: tuple(group) for name, group in splits.items() if group}
    listing = replace(plan.listing, splits=ordered)
    recipes = {name: plan.recipes[name] for name in ordered}
    made = plan_run(listing, plan.out, recipes, options, counts if len(counts) > 1 else None)
    return replace(made, extras=plan.extras, aside=plan.aside, closed=plan.closed)
