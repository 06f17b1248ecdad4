"""The end of a run: receipts -> manifest, and the files beside it. The manifest comes last."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from loaders.format.containers import CONTAINERS
from loaders.format.files import (
    ITEMS,
    MANIFEST,
    REPORT,
    SKIPPED,
    WORK,
    crc32c_digits,
    to_json,
    write_atomically,
    write_together,
)
from loaders.format.spec import Manifest
from loaders.format.split_spec import ShardFiles, SplitSpec
from preprocess.contents import NOT_READ
from preprocess.errors import SourceError, output_error
from preprocess.item_record import record_lines
from preprocess.items import printable
from preprocess.joined import joined
from preprocess.plan import Plan
from preprocess.receipt import Receipt
from preprocess.report import Report
from preprocess.skipped import (
    Listed,
    as_pairs,
    listed_together,
    read_skipped_lines,
    skipped_lines,
)
from preprocess.staged import replace_files
from preprocess.stats import merge_tallies, no_statistics


def write_skipped(plan: Plan, receipts: Sequence[Receipt]) -> Sequence[tuple[str, str]]:
    """List every skipped item with its cause in `skipped.jsonl`, whatever becomes of the run.

    What is appended to a dataset is listed with its manifest.

    Returns:
        (key, reason), in the order of the input, as the file has them; entries that were never
        items come first.

    Raises:
        SourceError: Nothing at all could be read; the file is written before.
    """
    skipped = _skipped(plan, receipts)
    if plan.before is not None:
        return tuple(skipped)
    try:
        write_atomically(plan.out / SKIPPED, skipped_lines(skipped), work=plan.out / WORK)
    except OSError as error:
        raise output_error(plan.out, error) from error
    if not any(receipt.count for receipt in receipts):
        if not skipped:
            raise SourceError(
                f"{plan.listing.name}: nothing in its {plan.listing.count} items, no dataset is "
                f"written; the first: {printable(_first_key(plan))}"
            )
        first = ": ".join(printable(part) for part in skipped[0])
        raise SourceError(
            f"{plan.listing.name}: none of {len(skipped)} items could be read, no dataset is "
            f"written; the first: {first}; all are listed in {plan.out / SKIPPED}"
        )
    return Listed(len(skipped), partial(read_skipped_lines, plan.out / SKIPPED))


def _first_key(plan: Plan) -> str:
    return next(item.key for items in plan.listing.splits.values() for item in items)


def read_skipped(out: Path) -> Sequence[tuple[str, str]]:
    """Return what a finished run has listed in `skipped.jsonl`.

    Raises:
        OutputError: The list is missing or damaged.
    """
    path = out / SKIPPED
    count = sum(1 for _ in read_skipped_lines(path))
    return Listed(count, partial(read_skipped_lines, path))


def _skipped(plan: Plan, receipts: Sequence[Receipt]) -> Sequence[tuple[str, str]]:
    listed = as_pairs(plan.listing.skipped)
    # Once, where several splits read the same items.
    found = dict.fromkeys(pair for receipt in _in_order(plan, receipts) for pair in receipt.skipped)
    for pair in listed if found else ():
        found.pop(pair, None)
    return listed_together([listed, _skipped_before(plan), tuple(found)])


def _skipped_before(plan: Plan) -> Sequence[tuple[str, str]]:
    """Return the items that the runs before this one have skipped."""
    if plan.before is None or not plan.before.manifest.skipped:
        return ()
    never_items = plan.before.runs[-1].listed  # those are looked at anew
    return tuple(read_skipped(plan.out)[never_items:])


def build_manifest(plan: Plan, receipts: Sequence[Receipt]) -> Manifest:
    """Put the facts of all shards together, also of those that were there before."""
    by_split: dict[str, list[Receipt]] = {name: [] for name in plan.listing.splits}
    for receipt in _in_order(plan, receipts):
        by_split[receipt.split].append(receipt)
    splits = {name: _build_split(plan, name, found) for name, found in by_split.items()}
    before = None if plan.before is None else plan.before.manifest
    if before is not None:
        splits |= {name: joined(old, splits[name]) for name, old in before.splits.items()}
    return Manifest(
        container=plan.container,
        kind=plan.recipe.kind,
        recipe={**plan.recipe.options(), **plan.recipe.facts()},
        recipe_hash=plan.recipe_hash,
        source_hash=plan.listing.fingerprint(),
        classes=plan.listing.classes,
        skipped=len(_skipped(plan, receipts)),
        splits=splits,
        extras={name: (len(data), crc32c_digits(data)) for name, data in plan.extras.items()},
    )


def _in_order(plan: Plan, receipts: Sequence[Receipt]) -> list[Receipt]:
    order = {name: index for index, name in enumerate(plan.listing.splits)}
    return sorted(receipts, key=lambda receipt: (order[receipt.split], receipt.index))


def _build_split(plan: Plan, name: str, receipts: Sequence[Receipt]) -> SplitSpec:
    fields = plan.recipes[name].fields()
    absent = ("", 0, f"{0:08x}")
    files: Mapping[str, ShardFiles] = {
        column.name: ShardFiles(
            nbytes=tuple(receipt.files.get(column.name, absent)[1] for receipt in receipts),
            crc32c=tuple(receipt.files.get(column.name, absent)[2] for receipt in receipts),
        )
        for field in fields
        for column in field.columns()
    }
    statistics = {
        field.name: no_statistics(field.shape[-1], int(np.iinfo(field.dtype).max))
        for field in fields
        if field.role == "image"
    }
    for receipt in receipts:
        for field, found in receipt.statistics.items():
            statistics[field] += found
    class_counts = None
    if any(field.role == "label" for field in fields):
        totals = dict.fromkeys(range(len(plan.listing.classes)), 0)
        for receipt in receipts:
            for label, count in receipt.class_counts:
                totals[label] += count
        class_counts = tuple(totals.values())
    tallies: dict[str, tuple[int, ...]] = {}
    for receipt in receipts:
        merge_tallies(tallies, receipt.tallies)
    return SplitSpec(
        fields=fields,
        capacity=plan.capacities[name],
        items=plan.places(name),
        counts=tuple(receipt.count for receipt in receipts),
        values={
            field.name: tuple(receipt.values.get(field.name, 0) for receipt in receipts)
            for field in fields
            if field.has_offsets
        },
        files=files,
        statistics=statistics,
        class_counts=class_counts,
        tallies=tallies,
    )


def with_contents(plan: Plan, receipts: Sequence[Receipt]) -> Plan:
    """Return a plan that says what its items held, if only the receipts say it so far."""
    if plan.contents:
        return plan
    contents: dict[str, list[tuple[str, ...]]] = {}
    for receipt in _in_order(plan, receipts):
        found = receipt.contents or [()] * receipt.items
        contents.setdefault(receipt.split, []).extend(found)
    return replace(plan, contents=contents)


def read_differently(plan: Plan) -> str | None:
    """Name an item that several splits have read, and that did not hold the same each time."""
    splits = [items for items in plan.listing.splits.values() if items]
    if len({items[0].key for items in splits}) == len(splits):
        return None  # each has items of its own
    read = [contents for contents in plan.contents.values() if contents]
    fresh = max(map(len, read), default=0)
    for number, item in enumerate(splits[0][-fresh:] if fresh else ()):
        found = {contents[number] for contents in read}
        if len({sums for sums in found if sums and NOT_READ not in sums}) > 1:
            return item.key
    return None


def commit(plan: Plan, manifest: Manifest, report: Report) -> None:
    """Write what stands beside the shards, and last the manifest that makes them a dataset.

    In a dataset that was there before, nothing changes until its manifest is replaced.

    Raises:
        OutputError: The folder cannot take them; the shards are kept.
    """
    work = plan.out / WORK
    data = manifest.to_bytes()
    Manifest.from_json(json.loads(data), str(plan.out / MANIFEST))  # what no reader would take
    files: dict[str, bytes | Iterable[bytes]] = {
        **CONTAINERS[plan.container].group_files(manifest),
        REPORT: to_json(report.to_json(), indent=1),
        ITEMS: record_lines(plan.runs()),
    }
    try:
        if plan.before is not None:
            files[SKIPPED] = skipped_lines(report.skipped)
            replace_files(plan.out, data, files)
            return
        beside = {plan.out / name: content for name, content in {**plan.extras, **files}.items()}
        write_together(beside, work=work)
        write_atomically(plan.out / MANIFEST, data, work=work)
    except OSError as error:
        raise output_error(plan.out, error) from error
