"""What goes in: an ordered, counted list of items out of a folder."""

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from loaders.format.spec import SPLITS
from preprocess.errors import SampleError, SourceError

LabelMode = Literal["auto", "folders", "none"]

SPLIT_FOLDERS: Final = {
    "train": "train",
    "validation": "validation",
    "val": "validation",
    "test": "test",
}
"""Top folder -> split."""

UNFINISHED: Final = (".part", ".partial", ".crdownload", ".download", ".tmp")
"""Endings of downloads that have not finished."""

_HEAD_NBYTES: Final = 64
"""Bytes of a file that tell what it is."""


@dataclass(frozen=True, slots=True)
class Item:
    """One raw input before preparation.

    Attributes:
        key: Path below the source, with `/`; bytes that are not UTF-8 as lone surrogates.
        nbytes: Size when it was listed.
        mtime_ns: Time of its last change when it was listed.
        label: Class index; None where the split has no labels.
    """

    key: str
    nbytes: int
    mtime_ns: int
    label: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which files are items: by name for the usual ones, by content for the rest.

    Attributes:
        what: Names the kind in messages, such as "image".
        extensions: Lower-case endings that are taken unopened.
        recognizes: Whether the first bytes of a file are of that kind.
    """

    what: str
    extensions: frozenset[str]
    recognizes: Callable[[bytes], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All items of a source.

    Attributes:
        root: The source folder.
        splits: Split name -> its items in order.
        classes: Class names in label order (bytes order); empty without labels.
        skipped: Entries that look like items and cannot be read.
        ignored: Why other files were passed over -> how many.
        notes: What the user should know about how the folder was understood.
    """

    root: Path
    splits: dict[str, tuple[Item, ...]]
    classes: tuple[str, ...] = ()
    skipped: tuple[SampleError, ...] = ()
    ignored: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Items in all splits."""
        return sum(len(items) for items in self.splits.values())

    def limited(self, limit: int) -> "Listing":
        """Return a listing of `limit` items, evenly spaced over this one, labels kept."""
        total = self.count
        if limit >= total:
            return self
        chosen = {index * total // limit for index in range(limit)}
        splits: dict[str, tuple[Item, ...]] = {}
        first = 0
        for name, items in self.splits.items():
            splits[name] = tuple(item for i, item in enumerate(items, first) if i in chosen)
            first += len(items)
        return replace(self, splits={name: items for name, items in splits.items() if items})

    def fingerprint(self) -> str:
        """Return SHA-256 over split, key, size and label of every item and over the classes."""
        digest = hashlib.sha256()
        for name, items in self.splits.items():
            for item in items:
                line = f"{name}\0{item.key}\0{item.nbytes}\0{item.label}\n"
                digest.update(line.encode(errors="surrogateescape"))
        digest.update("\0".join(self.classes).encode(errors="surrogateescape"))
        return digest.hexdigest()


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
    if not source.is_dir():
        raise SourceError(f"{source}: {'not a folder' if source.exists() else 'no such folder'}")
    items: list[Item] = []
    skipped: list[SampleError] = []
    ignored: Counter[str] = Counter()
    for key, entry in _walk(source, "", frozenset(), follow_links=follow_links):
        found = _classify(key, entry, wanted, follow_links=follow_links)
        if isinstance(found, Item):
            items.append(found)
        elif isinstance(found, SampleError):
            skipped.append(found)
        else:
            ignored[found] += 1
    if not items:
        raise SourceError(_nothing_found(source, wanted, skipped, ignored))
    items.sort(key=lambda item: os.fsencode(item.key))
    skipped.sort(key=lambda error: os.fsencode(error.key))
    splits, depth = _split_by_folder(items, source)
    listing = Listing(
        root=source, splits=splits, skipped=tuple(skipped), ignored=dict(sorted(ignored.items()))
    )
    if labels == "none":
        return listing
    return _label_by_folder(listing, depth, insist=labels == "folders")


def _walk(
    folder: Path,
    prefix: str,
    above: frozenset[tuple[int, int]],
    *,
    follow_links: bool,
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield every entry that is not a folder to go into; links in a loop end it."""
    try:
        status = folder.stat()
        identity = (status.st_dev, status.st_ino)
        if identity in above:
            return
        with os.scandir(folder) as entries:
            found = list(entries)
    except OSError as error:
        raise SourceError(f"{folder}: cannot be listed: {error.strerror}") from error
    for entry in found:
        if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=follow_links):
            below = folder / entry.name
            inside = above | {identity}
            yield from _walk(below, f"{prefix}{entry.name}/", inside, follow_links=follow_links)
        else:
            yield prefix + entry.name, entry


def _classify(
    key: str, entry: os.DirEntry[str], wanted: Wanted, *, follow_links: bool
) -> Item | SampleError | str:
    """Return an item, why it cannot be one, or why the entry is ignored."""
    if entry.name.startswith("."):
        return "hidden"
    ending = os.path.splitext(entry.name)[1].lower()
    if ending in UNFINISHED:
        return f"unfinished download ({ending})"
    if entry.is_symlink() and not follow_links:
        return SampleError(key, "a symbolic link; give --follow-links to take what links point to")
    try:
        status = entry.stat()
    except OSError as error:
        reason = "a symbolic link to nothing" if entry.is_symlink() else str(error.strerror)
        return SampleError(key, reason)
    if not stat.S_ISREG(status.st_mode):
        reason = f"not a regular file but a {_kind_of(status.st_mode)}"
        return SampleError(key, reason) if ending in wanted.extensions else reason
    item = Item(key, status.st_size, status.st_mtime_ns)
    if ending in wanted.extensions:
        return item
    try:
        with open(entry.path, "rb", buffering=0) as file:
            head = file.read(_HEAD_NBYTES)
    except OSError as error:
        return SampleError(key, f"cannot be read: {error.strerror}")
    return item if wanted.recognizes(head) else f"not an {wanted.what} ({ending or 'no ending'})"


def _kind_of(mode: int) -> str:
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
        return f"{source}: none of {len(skipped)} {wanted.what}s can be read; first: {skipped[0]}"
    if ignored:
        seen = ", ".join(f"{count} {reason}" for reason, count in ignored.most_common(3))
        return f"{source}: no {wanted.what} among the {sum(ignored.values())} files: {seen}"
    return f"{source}: the folder is empty"


def _split_by_folder(items: list[Item], source: Path) -> tuple[dict[str, tuple[Item, ...]], int]:
    """Return the items of each split, and how many path parts name the split."""
    tops = {item.key.partition("/")[0] for item in items if "/" in item.key}
    named = tops & set(SPLIT_FOLDERS)
    stray = next((i.key for i in items if i.key.partition("/")[0] not in named), None)
    if not named or (stray is not None and "train" not in named):
        # A class may be called "test"; it is a split only in the company of others.
        return {"train": tuple(items)}, 0
    if stray is not None:
        raise SourceError(
            f"{source}: {stray} lies outside the split folders {sorted(named)}; move it into one, "
            "or rename them if they are classes"
        )
    if {"val", "validation"} <= named:
        raise SourceError(f"{source}: both val/ and validation/ are there; keep one")
    groups: dict[str, list[Item]] = {name: [] for name in SPLITS}
    for item in items:
        groups[SPLIT_FOLDERS[item.key.partition("/")[0]]].append(item)
    return {name: tuple(group) for name, group in groups.items() if group}, 1


def _label_by_folder(listing: Listing, depth: int, *, insist: bool) -> Listing:
    """Give every item the index of its class folder, the path part at `depth`."""
    notes = []
    with_classes: dict[str, list[str]] = {}
    for name, items in listing.splits.items():
        folders = [_class_of(item.key, depth) for item in items]
        bare = folders.count("")
        first = items[folders.index("")].key if bare else ""
        if not bare:
            with_classes[name] = folders
        elif insist:
            raise SourceError(f"{listing.root}: {first} lies in no class folder")
        elif bare < len(items):
            notes.append(
                f"{name}: no labels, since {bare} of {len(items)} items lie in no class folder "
                f"(the first is {first})"
            )
    seen = {folder for folders in with_classes.values() for folder in folders}
    classes = tuple(sorted(seen, key=os.fsencode))
    index = {name: label for label, name in enumerate(classes)}
    splits = dict(listing.splits)
    for name, folders in with_classes.items():
        pairs = zip(splits[name], folders, strict=True)
        splits[name] = tuple(replace(item, label=index[folder]) for item, folder in pairs)
    return replace(listing, splits=splits, classes=classes, notes=tuple(notes))


def _class_of(key: str, depth: int) -> str:
    parts = key.split("/")
    return parts[depth] if len(parts) > depth + 1 else ""


def read_item(root: Path, item: Item) -> bytes:
    """Read the whole file of an item.

    Raises:
        SampleError: It cannot be read, is no regular file any more, or has changed in size.
    """
    path = os.path.join(root, item.key)
    try:
        # A FIFO in its place would block for ever without O_NONBLOCK.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                kind = _kind_of(status.st_mode)
                raise SampleError(item.key, f"not a regular file but a {kind}")
            data = file.readall()
    except OSError as error:
        raise SampleError(item.key, f"cannot be read: {error.strerror}") from error
    if len(data) != item.nbytes:
        reason = f"changed while it was prepared: {len(data)} bytes, listed with {item.nbytes}"
        raise SampleError(item.key, reason)
    return data


def printable(key: str) -> str:
    """Return a key as one printable line: control characters and lone surrogates escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in key)
