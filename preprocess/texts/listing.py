"""Which files of a source hold texts, and how large ones are cut for many workers."""

import glob
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from preprocess.errors import SampleError, SourceError
from preprocess.folders import find_splits
from preprocess.items import Item, Listing
from preprocess.sources import UNFINISHED, Wanted, list_folder, part_found
from preprocess.texts.cut import cut_item, kind_inside
from preprocess.texts.kinds import (
    HEAD_NBYTES,
    UNOPENED_ENDINGS,
    inner_ending,
    is_input,
    kind_by_name,
)
from preprocess.texts.options import TextOptions

WANTED = Wanted(
    what="input text", extensions=UNOPENED_ENDINGS, recognizes=is_input, head_nbytes=HEAD_NBYTES
)

_SETTINGS = frozenset(
    {"dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json"}
    | {"_metadata", "_common_metadata"}
)
"""Files beside Arrow and Parquet data that describe them."""


def list_texts(source: Path, options: TextOptions) -> Listing:
    """List the items of a folder, a file, or all files that a pattern such as `a/*.jsonl` matches.

    As `list_files`, with large files of JSON lines and of `lines` as several items, each the
    records that begin in `start..stop`, and large Parquet files as several groups of row groups.

    Raises:
        SourceError: Nothing is there, nothing can be read, or the splits are ambiguous.
    """
    listing = list_files(source, options)
    cut = {
        name: tuple(part for item in items for part in cut_item(listing.root, item, options))
        for name, items in listing.splits.items()
    }
    return replace(listing, splits=cut, notes=(*listing.notes, *_notes(listing, options)))


def list_files(source: Path, options: TextOptions) -> Listing:
    """List the files of a folder, a file, or all files that a pattern matches.

    In folders, files are taken by their endings, and Parquet, Arrow and JSON by content as well;
    of a dataset that `save_to_disk` wrote, the data files that its state names. Files that are
    named, alone or by a pattern, are taken whatever their names end with. Splits are found as in
    `list_folder`; there are no labels.

    Raises:
        SourceError: Nothing is there, nothing can be read, or the splits are ambiguous.
    """
    if source.is_dir():
        listing = list_folder(source, WANTED, labels="none", follow_links=options.follow_links)
        listing = _selected(listing, _reasons_by_content(listing))
    else:
        listing = _list_named(source, options)
    listing = _selected(listing, _reasons_by_dataset(listing))
    if listing.count == 0:
        raise SourceError(_nothing_found(source, listing))
    return listing


def _selected(listing: Listing, reasons: dict[str, str]) -> Listing:
    """Return the listing without some files: key -> why."""
    if not reasons:
        return listing
    splits = {
        name: tuple(item for item in items if item.key not in reasons)
        for name, items in listing.splits.items()
    }
    return replace(
        listing,
        splits={name: items for name, items in splits.items() if items},
        ignored=dict(sorted((Counter(listing.ignored) + Counter(reasons.values())).items())),
    )


def _reasons_by_content(listing: Listing) -> dict[str, str]:
    """Say which files whose names say nothing are passed over, for what is in them."""
    reasons = {}
    for item in _items(listing):
        if kind_by_name(item.key) is not None:
            continue
        ending = inner_ending(item.key)
        try:
            kind = kind_inside(listing.root, item)
        except SampleError:
            continue  # the reader meets it again, and names it
        # Other tools' settings, notebooks and the like are JSON too.
        if kind is None or (kind == "json" and ending):
            reasons[item.key] = f"not an input text ({ending or 'no ending'})"
    return reasons


def _reasons_by_dataset(listing: Listing) -> dict[str, str]:
    """Say which files of saved datasets are passed over: what describes the data, and caches."""
    tables = [item.key for item in _items(listing) if _is_table(item.key)]
    reasons = {
        item.key: "describes a dataset"
        for item in _items(listing)
        if tables and item.key.rpartition("/")[2] in _SETTINGS
    }
    named = {folder: _data_files(listing.root / folder) for folder in set(map(_folder, tables))}
    for key in tables:
        files = named[_folder(key)]
        if files is not None and key.endswith(".arrow") and key.rpartition("/")[2] not in files:
            reasons[key] = "not among the data files of its saved dataset"
    return reasons


def _is_table(key: str) -> bool:
    return kind_by_name(key) in {"arrow", "parquet"}


def _folder(key: str) -> str:
    return key.rpartition("/")[0]


def _data_files(folder: Path) -> frozenset[str] | None:
    """Return the data files that the state of a saved dataset names; None without such a state."""
    try:
        state = json.loads((folder / "state.json").read_bytes())
        return frozenset(file["filename"] for file in state["_data_files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _items(listing: Listing) -> Iterator[Item]:
    for items in listing.splits.values():
        yield from items


def _list_named(source: Path, options: TextOptions) -> Listing:
    """List one file, or what a pattern matches below the folder before its first wildcard."""
    if os.path.lexists(source):
        root, names = source.parent, [source.name]
    else:
        parts = source.parts
        wild = next((i for i, part in enumerate(parts) if set(part) & set("*?[")), None)
        if wild is None:
            raise SourceError(f"{source}: no such file or folder")
        root, pattern = Path(*parts[:wild]), os.path.join(*parts[wild:])
        names = sorted(glob.glob(pattern, root_dir=root, recursive=True), key=os.fsencode)
    linked = options.follow_links or source.name in names
    items, skipped, ignored = part_found(
        _look_at(root, name, follow_links=linked) for name in names
    )
    splits = find_splits([item.key for item in items], root)
    return Listing(
        root=root,
        splits={
            name: tuple(items[index] for index in chosen) for name, chosen in splits.members.items()
        },
        skipped=tuple(skipped),
        ignored=dict(ignored),
        notes=splits.notes,
    )


def _look_at(root: Path, key: str, *, follow_links: bool) -> Item | SampleError | str:
    """Return an item, why it cannot be one, or why it is ignored."""
    path = os.path.join(root, key)
    ending = os.path.splitext(key)[1].lower()
    if ending in UNFINISHED:
        return f"unfinished download ({ending})"
    links = (path[: len(path) - len(rest)] for rest in _tails(key))
    if not follow_links and any(os.path.islink(link) for link in links):
        return SampleError(key, "a symbolic link; give --follow-links to take what links point to")
    try:
        status = os.stat(path)
    except OSError as error:
        return SampleError(key, f"cannot be looked at: {error.strerror}")
    if stat.S_ISDIR(status.st_mode):
        return "a folder"
    if not stat.S_ISREG(status.st_mode):
        return SampleError(key, "not a regular file")
    return Item(key, status.st_size, status.st_mtime_ns)


def _tails(key: str) -> Iterator[str]:
    """Yield what is left of a key after each of its parts."""
    rest = f"/{key}"
    while rest:
        rest = rest[1:].partition("/")[2]
        rest = f"/{rest}" if rest else ""
        yield rest


def _nothing_found(source: Path, listing: Listing) -> str:
    if listing.skipped:
        count = len(listing.skipped)
        first = listing.skipped[0]
        return f"{source}: none of {count:,} input texts can be read; the first: {first}"
    seen = ", ".join(f"{count:,} {reason}" for reason, count in listing.ignored.items())
    return f"{source}: no input text{f' among: {seen}' if seen else ' matches'}"


def _notes(listing: Listing, options: TextOptions) -> tuple[str, ...]:
    """Say when some files are documents, and others hold many: a README beside the data."""
    endings: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
    for item in _items(listing):
        whole = kind_by_name(item.key) == "text" and not options.lines
        endings[whole][inner_ending(item.key) or "others"] += 1
    if not endings[True] or not endings[False]:
        return ()
    shown = {
        whole: ", ".join(f"{count:,} {ending}" for ending, count in sorted(found.items()))
        for whole, found in endings.items()
    }
    note = (
        f"each file is one document of {shown[True]}, beside {shown[False]} that hold many; name "
        "the files by a pattern such as 'folder/*.jsonl' if only those are meant"
    )
    return (note,)
