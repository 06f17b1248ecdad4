"""What goes in: an ordered, counted list of items out of a folder."""

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from preprocess.errors import SampleError, SourceError
from preprocess.folders import LabelMode, find_classes, find_splits
from preprocess.items import Item, Listing

UNFINISHED: Final = (".part", ".partial", ".crdownload", ".download", ".tmp")
"""Endings of downloads that have not finished."""

_REASONS: Final = 12
"""Reasons for ignoring files that are counted one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which files are items: by name for the usual ones, by content for the rest.

    Attributes:
        what: Names the kind in messages, such as "image".
        extensions: Lower-case endings that are taken unopened.
        recognizes: Whether the first bytes of a file are of that kind.
        head_nbytes: How many first bytes it wants.
    """

    what: str
    extensions: frozenset[str]
    recognizes: Callable[[bytes], bool]
    head_nbytes: int


def list_folder(
    source: Path, wanted: Wanted, *, labels: LabelMode = "auto", follow_links: bool = False
) -> Listing:
    """List the items of a folder in the order of the bytes of their paths.

    Top folders `train`, `validation` or `val`, and `test` become splits when all items lie in
    them; otherwise everything is `train`. Folders below become classes when every item of the
    split lies in one.

    Args:
        source: The folder.
        wanted: Which files are items.
        labels: "auto" as above, "folders" to insist on class folders, "none" to store no labels.
        follow_links: Take what symbolic links point to; by default each link is skipped by name.

    Raises:
        SourceError: The folder is missing, cannot be read, holds no item, or is ambiguous.
    """
    _check_folder(source)
    items, skipped, ignored = part_found(
        entry
        if isinstance(entry, SampleError)
        else _classify(key, entry, wanted, follow_links=follow_links)
        for key, entry in _walk(source, follow_links=follow_links)
    )
    if not items:
        raise SourceError(_nothing_found(source, wanted, skipped, ignored))
    items.sort(key=lambda item: os.fsencode(item.key))
    skipped.sort(key=lambda error: os.fsencode(error.key))
    listing = Listing(
        root=source,
        splits={"train": tuple(items)},
        skipped=tuple(skipped),
        ignored=_most_common(ignored),
    )
    return _arrange(listing, items, labels)


def part_found(
    found: Iterable[Item | SampleError | str],
) -> tuple[list[Item], list[SampleError], Counter[str]]:
    """Return items, errors of what is skipped by name, and how often each reason to ignore came."""
    items: list[Item] = []
    skipped: list[SampleError] = []
    ignored: Counter[str] = Counter()
    for one in found:
        if isinstance(one, Item):
            items.append(one)
        elif isinstance(one, SampleError):
            skipped.append(one)
        else:
            ignored[one] += 1
    return items, skipped, ignored


def _arrange(listing: Listing, items: Sequence[Item], labels: LabelMode) -> Listing:
    """Give every item its split and its label, by the folders that it lies in."""
    keys = [item.key for item in items]
    found = find_splits(keys, listing.root)
    splits = {name: [items[index] for index in chosen] for name, chosen in found.members.items()}
    notes = list(found.notes)
    classes: tuple[str, ...] = ()
    if labels != "none":
        by_split = {name: [item.key for item in group] for name, group in splits.items()}
        known = find_classes(
            by_split, found.depth, listing.root, insist=labels == "folders", notes=notes
        )
        classes = known.names
        for name, numbers in known.labels.items():
            pairs = zip(splits[name], numbers, strict=True)
            splits[name] = [replace(item, label=label) for item, label in pairs]
    return replace(
        listing,
        splits={name: tuple(group) for name, group in splits.items()},
        classes=classes,
        notes=tuple(notes),
    )


def _check_folder(source: Path) -> None:
    try:
        mode = source.stat().st_mode
        if not stat.S_ISDIR(mode):
            raise SourceError(f"{source}: not a folder; give the folder that holds the files")
        with os.scandir(source):
            return
    except FileNotFoundError as error:
        raise SourceError(f"{source}: no such folder") from error
    except OSError as error:
        raise SourceError(f"{source}: cannot be listed: {error.strerror}") from error


def _walk(
    source: Path, *, follow_links: bool
) -> Iterator[tuple[str, os.DirEntry[str] | SampleError]]:
    """Yield every entry that is not a folder to go into, and folders that cannot be listed.

    A folder that a link leads back to is not entered again from inside itself, so loops end.
    """
    # A stack and no recursion: folders may nest deeper than Python's calls.
    waiting: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]
    while waiting:
        prefix, above = waiting.pop()
        folder = os.path.join(source, prefix)
        try:
            if follow_links:
                status = os.stat(folder)
                identity = (status.st_dev, status.st_ino)
                if identity in above:
                    continue
                above |= {identity}
            with os.scandir(folder) as entries:
                found = list(entries)
        except OSError as error:
            reason = f"a folder that cannot be listed: {error.strerror}"
            yield prefix, SampleError(prefix, reason)
            continue
        for entry in found:
            key = prefix + entry.name
            if not entry.name.startswith(".") and _is_folder(entry, follow_links=follow_links):
                waiting.append((f"{key}/", above))
            else:
                yield key, entry


def _is_folder(entry: os.DirEntry[str], *, follow_links: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=follow_links)
    except OSError:  # a link to itself, or one whose target may not be looked at
        return False


def _classify(
    key: str, entry: os.DirEntry[str], wanted: Wanted, *, follow_links: bool
) -> Item | SampleError | str:
    """Return an item, why it cannot be one, or why the entry is ignored."""
    if entry.name.startswith("."):
        return "hidden"
    ending = os.path.splitext(entry.name)[1].lower()
    if ending in UNFINISHED:
        return f"unfinished download ({ending})"
    try:
        status = entry.stat()
    except OSError as error:
        kind = "a symbolic link to nothing" if entry.is_symlink() else "cannot be looked at"
        return SampleError(key, f"{kind}: {error.strerror}")
    if entry.is_symlink() and not follow_links:
        return SampleError(key, "a symbolic link; give --follow-links to take what links point to")
    if not stat.S_ISREG(status.st_mode):
        reason = f"not a regular file but a {kind_of_file(status.st_mode)}"
        return SampleError(key, reason) if ending in wanted.extensions else reason
    item = Item(key, status.st_size, status.st_mtime_ns)
    if ending in wanted.extensions:
        return item
    try:
        with open(entry.path, "rb", buffering=0) as file:
            head = file.read(wanted.head_nbytes)
    except OSError as error:
        return SampleError(key, f"cannot be read: {error.strerror}")
    return item if wanted.recognizes(head) else f"not an {wanted.what} ({ending or 'no ending'})"


def kind_of_file(mode: int) -> str:
    """Name what is not a regular file."""
    kinds = {
        stat.S_IFIFO: "FIFO",
        stat.S_IFSOCK: "socket",
        stat.S_IFCHR: "character device",
        stat.S_IFBLK: "block device",
    }
    return kinds.get(stat.S_IFMT(mode), "special file")


def _nothing_found(
    source: Path, wanted: Wanted, skipped: Sequence[SampleError], ignored: Counter[str]
) -> str:
    if skipped:
        first = min(skipped, key=lambda error: os.fsencode(error.key))
        return f"{source}: none of {len(skipped):,} {wanted.what}s can be read; the first: {first}"
    if ignored:
        seen = ", ".join(f"{count:,} {reason}" for reason, count in ignored.most_common(3))
        total = sum(ignored.values())
        return f"{source}: no {wanted.what} among {total:,} file{'s' * (total != 1)}: {seen}"
    return f"{source}: the folder is empty; give one that holds {wanted.what}s"


def _most_common(ignored: Counter[str]) -> dict[str, int]:
    """Return the commonest reasons by name, and the rest (of many endings) as one."""
    shown = dict(sorted(ignored.most_common(_REASONS)))
    rest = ignored.total() - sum(shown.values())
    return {**shown, "of other endings": rest} if rest else shown
