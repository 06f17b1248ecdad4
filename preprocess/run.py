"""The engine: joblib over the shards of a plan -> receipts -> manifest. It knows no modality."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from loaders.format.spec import Manifest
from preprocess.commit import (
    build_manifest,
    commit,
    read_differently,
    read_skipped,
    with_contents,
    write_skipped,
)
from preprocess.errors import SourceError
from preprocess.fatal import without_fatal
from preprocess.interrupts import ended_once
from preprocess.items import printable
from preprocess.output import (
    claim,
    clear_finished,
    find_complete,
    replaced_nbytes,
)
from preprocess.plan import Plan, RunOptions
from preprocess.receipt import Receipt
from preprocess.recipe import REDONE
from preprocess.removal import remove_dataset
from preprocess.report import Report
from preprocess.room import check_room, saying_what_is_wanted
from preprocess.staged import settle
from preprocess.stats import merge_tallies
from preprocess.task import ShardTask, read_receipt, retract
from preprocess.workers import OnProgress, write_shards

__all__ = ["OnProgress", "Runner", "report_of", "run"]


class Runner(Protocol):
    """Carries out a plan: `run`, or what writes only some of its shards."""

    def __call__(self, plan: Plan, options: RunOptions, on_progress: OnProgress, /) -> Report:
        """Carry it out."""
        ...


@ended_once()
def run(plan: Plan, options: RunOptions, on_progress: OnProgress = lambda *_: None) -> Report:
    """Carry out a plan: write the shards that are not there yet, then the manifest.

    Args:
        plan: What to do.
        options: How to do it; the same that the plan was made with.
        on_progress: Told what has been made.

    Returns:
        What was done.

    Raises:
        SourceError: No item at all could become a sample.
        OutputError: The output folder belongs to something else, or cannot take the data.
    """
    with saying_what_is_wanted(plan.out, plan.nbytes_left):
        return _run(plan, options, on_progress)


def _run(plan: Plan, options: RunOptions, on_progress: OnProgress) -> Report:
    start = time.perf_counter()
    manifest = find_complete(plan, overwrite=options.overwrite)
    if manifest is not None:
        clear_finished(plan.out)
        return report_of(plan, options, manifest, read_skipped(plan.out))
    if options.overwrite:  # before anything is removed
        check_room(plan.out, plan.nbytes + plan.nbytes_beside - replaced_nbytes(plan))
    held = claim(plan, overwrite=options.overwrite)
    finished = False
    try:
        kept, pending = _look_for_receipts(plan, held.owner)
        for receipt in kept:
            on_progress(receipt.count, len(receipt.skipped), receipt.nbytes)
        check_room(plan.out, sum(task.nbytes for task in pending) + plan.nbytes_beside)
        workers = options.worker_count()
        backend = options.backend
        if backend == "auto":
            backend = plan.recipe.backend(plan.listing, workers)
            # Threads cannot be ended.
            backend = backend if options.item_timeout is None else "loky"
        pending = without_fatal(pending, plan.out, options.item_timeout)
        fresh = write_shards(pending, backend, workers, on_progress, options.item_timeout)
        receipts = [*kept, *fresh]
        if len(fresh) != len(pending):
            raise RuntimeError(
                f"backend {backend}: {len(fresh)} of {len(pending)} shards came back"
            )
        # Nothing that is worth keeping.
        finished = plan.before is None and not any(receipt.count for receipt in receipts)
        skipped = write_skipped(plan, receipts)
        manifest = build_manifest(plan, receipts)
        plan = with_contents(plan, receipts)
        if (refusal := _refusal(plan, manifest)) is not None:
            _take_back(plan)
            finished = True
            raise SourceError(f"{plan.listing.name}: {refusal}")
        report = replace(
            report_of(plan, options, manifest, skipped),
            seconds=time.perf_counter() - start,
            made=sum(receipt.count for receipt in fresh),
            backend=backend,
        )
        commit(plan, manifest, report)
        finished = True
    finally:
        held.release(finished=finished)
    return report


def _look_for_receipts(plan: Plan, owner: str) -> tuple[list[Receipt], list[ShardTask]]:
    """Return what this run has finished before, and what is left to do."""
    kept, pending = [], []
    for task in plan.tasks():
        receipt = read_receipt(task)
        if receipt is None:
            retract(task)
            pending.append(replace(task, owner=owner))
        else:
            kept.append(receipt)
    return kept, pending


def _refusal(plan: Plan, manifest: Manifest) -> str | None:
    """Say why what was made is of no use, if it is not, and what becomes of it."""
    if plan.before is not None:
        kept = "nothing is added"
    elif (refusal := plan.recipe.refusal(_tallies(manifest))) is not None:
        return f"{refusal}; no dataset is written"
    else:
        kept = "no dataset is written"
    changed = read_differently(plan)
    if changed is None:
        return None
    names = " and ".join(plan.listing.splits)
    return (
        f"{printable(changed)} changed while it was prepared: {names} were read from other bytes; "
        f"{kept}; give the same command again"
    )


def _take_back(plan: Plan) -> None:
    """Remove what was made."""
    if plan.before is None:
        remove_dataset(plan.out)
    else:
        settle(plan.out, plan.before.manifest)


def _tallies(manifest: Manifest) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for split in manifest.splits.values():
        merge_tallies(found, split.tallies)
    return found


def report_of(
    plan: Plan, options: RunOptions, manifest: Manifest, skipped: Sequence[tuple[str, str]]
) -> Report:
    """Return the report of a dataset that was there before this run."""
    tallies = _tallies(manifest)
    return Report(
        out=plan.out,
        run_hash=plan.run_hash,
        samples={name: split.count for name, split in manifest.splits.items()},
        nbytes=sum(
            sum(files.nbytes)
            for split in manifest.splits.values()
            for files in split.files.values()
        ),
        seconds=0.0,
        made=0,
        skipped=skipped,
        max_skipped=options.max_skipped,
        ignored=plan.listing.ignored,
        notes=(*plan.listing.notes, *plan.recipe.notes(tallies)),
        workers=options.worker_count(),
        backend="",
        redone=sum(tallies.pop(REDONE, (0,))),
        tallies=tallies,
        aside={"shard_nbytes": options.shard_nbytes, **plan.aside},
    )
