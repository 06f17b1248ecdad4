"""Files whose times of change are others than recorded: what they hold says whether they are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from loaders.format.files import ITEMS
from loaders.format.spec import Manifest
from preprocess.contents import NOT_READ
from preprocess.differences import by_place, compare_items, recorded_run, some
from preprocess.errors import OutputError, SampleError
from preprocess.item_contents import content_of
from preprocess.item_record import RecordedItem, RecordedRun, read_record
from preprocess.items import Item, Listing, printable
from preprocess.plan import Plan
from preprocess.staged import beside

_BATCH: Final = 4096
"""Files that wait to be read at a time."""


class _Check(NamedTuple):
    """A file whose content is known, and what names it."""

    name: str
    root: Path
    file: Item
    content: str


@dataclass(frozen=True, slots=True)
class Compared:
    """What some items hold now, beside what they held when they were read.

    Attributes:
        other: Names some that hold something else, or cannot be read; "" for none.
        unknown: Whether it is not known of all of them what they held.
    """

    other: str
    unknown: bool


def compare_contents(
    root: Path,
    pairs: Iterable[tuple[RecordedItem, Item]],
    workers: int | None,
    *,
    touched: bool = False,
) -> Compared:
    """Read the files of some items, and compare them with what was read of them before.

    Args:
        root: The source folder.
        pairs: Items as they are recorded, and as they are now.
        workers: Files that are read at a time; None for some to a core.
        touched: Only files whose times of change are others; and none at all where of one of
            these it is not known what it held.
    """
    checks: dict[_Check, None] = {}
    unknown = False
    other: list[str] = []
    for old, item in pairs:
        name = printable(item.key)
        if len(old.times) != len(item.times()):
            other.append(f"{name} has another number of files than {ITEMS} says")
            continue
        contents = old.contents or (NOT_READ,) * len(old.times)
        found = zip(item.files(root), old.times, contents, strict=True)
        for (folder, file), time, content in found:
            if touched and file.mtime_ns == time:
                continue
            unknown |= content == NOT_READ
            name += "" if file is item else f": its mask {printable(file.key)}"
            checks[_Check(name, folder, file, content)] = None
    if touched and unknown:
        return Compared(some(other), unknown)
    known = iter([check for check in checks if check.content != NOT_READ])
    with ThreadPoolExecutor(workers) as pool:
        while batch := list(islice(known, _BATCH)):
            other += [said for said in pool.map(_difference, batch) if said]
    return Compared(some(other), unknown)


def _difference(check: _Check) -> str:
    """Say that a file holds something else, or cannot be read; "" if it holds the same."""
    try:
        same = content_of(check.root, check.file) == check.content
    except SampleError as error:
        return f"{check.name} {error.reason}"
    return "" if same else f"{check.name} has other content"


def take_touched(plan: Plan, manifest: Manifest, workers: int) -> Plan:
    """Return the plan of the dataset that is there, if only times of change tell it from that.

    The files whose times are others are read. If they hold what they held, the plan has the times
    that are recorded, by which it is known as the run that made the dataset.

    Args:
        plan: Over all that is in the source now, in the order of the dataset.
        manifest: Of the dataset in its output folder.
        workers: Files that are read at a time.

    Raises:
        OutputError: A file holds something else.
    """
    same = (plan.recipe_hash, plan.listing.fingerprint())
    if same != (manifest.recipe_hash, manifest.source_hash):
        return plan
    recorded = recorded_run(plan.out)
    if recorded == plan.run_hash:
        return plan  # without looking at every item
    runs = read_record(beside(plan.out, ITEMS))
    touched = [] if runs is None else compare_items(plan.listing, runs).touched
    found = compare_contents(plan.listing.root, touched, workers, touched=True)
    if found.other:
        raise OutputError(
            f"{plan.out}: holds a dataset made from other input: {found.other}; give another "
            "folder, or --overwrite to prepare it again"
        )
    if found.unknown or not touched:
        return plan
    return replace(as_untouched(plan, touched), run_hash=recorded or plan.run_hash)


def as_untouched(plan: Plan, touched: Sequence[tuple[RecordedItem, Item]]) -> Plan:
    """Return a plan with the times of change that are recorded, and a note that they are others."""
    if not touched:
        return plan
    times = {(old.key, old.start): old.times for old, _ in touched}
    splits = {
        name: tuple(_with_times(item, times.get((item.key, item.start))) for item in items)
        for name, items in plan.listing.splits.items()
    }
    return replace(plan, listing=replace(noted(plan.listing, touched), splits=splits))


def _with_times(item: Item, times: tuple[int, ...] | None) -> Item:
    if times is None:
        return item
    mask = None if item.mask is None else replace(item.mask, mtime_ns=times[1])
    return replace(item, mtime_ns=times[0], mask=mask)


def noted(listing: Listing, touched: Sequence[tuple[RecordedItem, Item]]) -> Listing:
    """Return a listing with a note of the files that were taken for what they were."""
    names = some([printable(old.key) for old, _ in touched])
    note = f"written to since, with the same content as before: {names}"
    return replace(listing, notes=(*listing.notes, note)) if touched else listing


def with_times_of(listing: Listing, runs: Iterable[RecordedRun]) -> Iterator[RecordedRun]:
    """Yield what a dataset was made from, with the times of change that its files have now."""
    items: Mapping[tuple[str, str, int], Item] = by_place(listing)
    for run in runs:
        splits = {
            split: [
                old._replace(times=tuple(items[split, old.key, old.start].times()))
                for old in recorded
            ]
            for split, recorded in run.splits.items()
        }
        yield replace(run, splits=splits)
