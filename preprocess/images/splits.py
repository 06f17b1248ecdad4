"""Splits of photos that have none: by a stable hash, by a column; and copies in several splits."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from loaders.format.spec import SPLITS
from preprocess.errors import SampleError, SourceError
from preprocess.folders import SPLIT_FOLDERS
from preprocess.images.beside import SplitOptions
from preprocess.images.metadata import Entry
from preprocess.item_files import read_item
from preprocess.items import Item, Listing, printable
from preprocess.shares import SPLIT_STEPS

_SHOWN: Final = 3


def split_photos(listing: Listing, options: SplitOptions, table: Mapping[str, Entry]) -> Listing:
    """Divide photos that lie in no split folders.

    By hash a photo's split depends on its key (or group), the shares and the seed alone: photos
    that are added move no other. Stratified, every class is divided by the rank of these hashes.

    Raises:
        SourceError: There are split folders already, a name of a split is unknown, or a split that
            was asked for gets no photo.
    """
    if not options.divides:
        return listing
    if list(listing.splits) != ["train"]:
        found = ", ".join(listing.splits)
        raise SourceError(
            f"{listing.root}: its folders are splits already ({found}): leave out the shares, or "
            "rename the folders"
        )
    items = listing.splits["train"]
    if options.column is not None:
        chosen = [_named(table[item.key], options.column) for item in items]
        wanted = ["train"]
    else:
        wanted = [name for name in SPLITS if name == "train" or getattr(options, name)]
        chosen = _by_hash(items, options, _grouping(options, table))
    splits: dict[str, list[Item]] = {name: [] for name in SPLITS}
    for item, name in zip(items, chosen, strict=True):
        splits[name].append(item)
    empty = next((name for name in wanted if not splits[name]), None)
    if empty is not None:
        raise SourceError(
            f"{listing.root}: split {empty} gets no photo of {len(items):,}; give other shares, "
            "another --split-seed, or more photos"
        )
    return replace(listing, splits={n: tuple(found) for n, found in splits.items() if found})


def _named(entry: Entry, column: str) -> str:
    value = entry.columns[column]
    name = SPLIT_FOLDERS.get(value) if isinstance(value, str) else None
    if name is None:
        known = ", ".join(SPLIT_FOLDERS)
        raise SourceError(f"{entry.where}: {column} is {value!r}, expected one of {known}")
    return name


def _grouping(options: SplitOptions, table: Mapping[str, Entry]) -> Callable[[Item], str]:
    """Return what a photo shares with those that must be in its split."""
    column = options.group_by
    if column is None:
        return lambda item: f"key\0{item.key}"

    def group(item: Item) -> str:
        value = table[item.key].columns[column]
        return f"key\0{item.key}" if value in (None, "") else f"group\0{value}"

    return group


def _by_hash(
    items: Sequence[Item], options: SplitOptions, group: Callable[[Item], str]
) -> list[str]:
    validation = round(options.validation * SPLIT_STEPS)
    test = round(options.test * SPLIT_STEPS)

    def name(step: int) -> str:
        if step < validation:
            return "validation"
        return "test" if step < validation + test else "train"

    hashes = [_hash(group(item), options.seed) for item in items]
    if not options.stratify:
        return [name(value % SPLIT_STEPS) for value in hashes]
    by_class: dict[int | None, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        by_class[item.label].append(place)
    chosen = [""] * len(items)
    for places in by_class.values():
        places.sort(key=lambda place: hashes[place])
        for rank, place in enumerate(places):
            # The middle of its rank, so that each split gets its share, rounded.
            chosen[place] = name((2 * rank + 1) * SPLIT_STEPS // (2 * len(places)))
    return chosen


def _hash(text: str, seed: int) -> int:
    data = f"{seed}\0{text}".encode(errors="surrogateescape")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def report_copies(listing: Listing, *, max_nbytes: int, allow_leaks: bool) -> Listing:
    """Note photos whose files are the same to the byte; refuse them in several splits.

    Only files of equal size are read for it.

    Raises:
        SourceError: Copies lie in several splits, and that is not allowed.
    """
    alike: dict[int, list[tuple[str, Item]]] = defaultdict(list)
    for split, items in listing.splits.items():
        for item in items:
            alike[item.nbytes].append((split, item))
    copies: dict[bytes, list[tuple[str, str]]] = defaultdict(list)
    for candidates in alike.values():
        for split, item in candidates if len(candidates) > 1 else ():
            try:
                data = read_item(listing.root, item, max_nbytes)
            except SampleError:
                continue  # refused by name when it is prepared
            copies[hashlib.blake2b(data, digest_size=16).digest()].append((split, item.key))
    groups = [found for found in copies.values() if len(found) > 1]
    leaks = [found for found in groups if len({split for split, _ in found}) > 1]
    notes = [
        f"{_counted(sum(map(len, found)) - len(found))}{where}: "
        + "; ".join(map(_shown, found[:_SHOWN]))
        + (f"; and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else "")
        for found, where in ((groups, ""), (leaks, " in another split"))
        if found
    ]
    if leaks and not allow_leaks:
        raise SourceError(
            f"{listing.root}: {notes[-1]}; remove them, or --allow-leaks to keep them"
        )
    return replace(listing, notes=(*listing.notes, *notes))


def _counted(copies: int) -> str:
    one = copies == 1
    return (
        "1 photo is an exact copy of another"
        if one
        else f"{copies:,} photos are exact copies of others"
    )


def _shown(group: Sequence[tuple[str, str]]) -> str:
    """Name photos that are the same: of each split its first, and as many others as are shown."""
    firsts = {split: (split, key) for split, key in reversed(group)}.values()
    named = list(dict.fromkeys([*group[:_SHOWN], *firsts]))
    more = f" and {len(group) - len(named):,} others" if len(group) > len(named) else ""
    return " = ".join(_place(*entry) for entry in named) + more


def _place(split: str, key: str) -> str:
    return f"{printable(key)} ({split})"
