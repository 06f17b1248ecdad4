"""Why a repair gives other bytes than those that were there: other files, or another library."""

from collections.abc import Collection, Iterator
from pathlib import Path

from loaders.format.files import ITEMS, REPORT
from preprocess.differences import by_place
from preprocess.item_record import RecordedItem, read_record
from preprocess.items import Item
from preprocess.plan import Plan
from preprocess.touched import compare_contents


def other_contents(plan: Plan, root: Path, workers: int | None) -> str:
    """Name some items of a plan that hold something else than a dataset was made from; "" for none.

    Args:
        plan: Over the source.
        root: The dataset's folder.
        workers: Files that are read at a time; None for some to a core.
    """
    return compare_contents(plan.listing.root, _pairs(plan, root, None), workers).other


def cause_and_remedy(plan: Plan, root: Path, keys: Collection[str], workers: int) -> str:
    """Say why items give other bytes than they gave, and what helps.

    Args:
        plan: Over the source.
        root: The dataset's folder.
        keys: Of the items, as far as they are files of the source; else all of its files count.
        workers: Files that are read at a time.
    """
    pairs = [*_pairs(plan, root, keys)] or [*_pairs(plan, root, None)]
    found = compare_contents(plan.listing.root, pairs, workers)
    as_it_was = "nothing was put in place; give the source as it was"
    again = "or prepare it again with --overwrite"
    if found.other:
        return f"{found.other}; {as_it_was}, {again}"
    if found.unknown or not pairs:
        causes = "an item was changed, or another version of a library reads it"
        return f"{causes}; {as_it_was}, {again}"
    return (
        "all files that it comes from hold what they held, so another version of a library reads "
        f"them; nothing was put in place; take the versions that {REPORT} names, {again}"
    )


def _pairs(
    plan: Plan, root: Path, keys: Collection[str] | None
) -> Iterator[tuple[RecordedItem, Item]]:
    """Yield items as they are recorded and as they are now, those with some keys, or all."""
    items = by_place(plan.listing)
    for run in read_record(root / ITEMS) or ():
        for split, recorded in run.splits.items():
            for old in recorded:
                item = items.get((split, old.key, old.start))
                if item is not None and (keys is None or old.key in keys):
                    yield old, item
