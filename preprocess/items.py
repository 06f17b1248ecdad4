"""What is prepared: one raw input, and the ordered list of all of them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from preprocess.errors import SampleError
from preprocess.paired import Boxes, PairedFile, Values


@dataclass(frozen=True, slots=True)
class Item:
    """One raw input before preparation.

    Attributes:
        key: Path below the source, with `/`; bytes that are not UTF-8 as lone surrogates.
        nbytes: Size when it was listed.
        mtime_ns: Time of its last change when it was listed.
        label: Class index; None where the split has no labels.
        start: Where in the file it begins, if the file is cut into several: a byte, or a row
            group of Parquet.
        stop: Where it ends, exclusive; None for the end of the file.
        part_nbytes: Bytes of the file that this part takes, about; 0 for all.
        own: First and end of the bytes of the file that are its own; None for all. Those of the
            parts of a file are all of the file.
        mask: The file with its mask, below a folder of its own.
        boxes: Its boxes.
        values: What a table says of it, beside its label.
    """

    key: str
    nbytes: int
    mtime_ns: int
    label: int | None = None
    start: int = 0
    stop: int | None = None
    part_nbytes: int = 0
    own: tuple[int, int] | None = None
    mask: PairedFile | None = None
    boxes: Boxes | None = None
    values: Values | None = None

    @property
    def extent(self) -> tuple[int, int]:
        """First and end of the bytes of the file that are its own."""
        return (0, self.nbytes) if self.own is None else self.own

    def files(self, root: Path) -> "list[tuple[Path, Item]]":
        """Return the files that it is made of, its own first: folder, and what is read there."""
        mask = self.mask
        if mask is None:
            return [(root, self)]
        return [(root, self), (mask.folder, Item(mask.key, mask.nbytes, mask.mtime_ns))]

    def times(self) -> list[int]:
        """Return the times of last change of all that it is made of."""
        return [self.mtime_ns] if self.mask is None else [self.mtime_ns, self.mask.mtime_ns]


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
    skipped: Sequence[SampleError] = ()
    ignored: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Items in all splits."""
        return sum(len(items) for items in self.splits.values())

    @property
    def name(self) -> str:
        """The source as errors name it: the file, if it is one, else the folder."""
        items = (item.key for items in self.splits.values() for item in items)
        keys: set[str] = set()
        for key in chain(items, (error.key for error in self.skipped)):
            keys.add(key)
            if len(keys) > 1:
                return str(self.root)
        return str(self.root / next(iter(keys))) if keys else str(self.root)

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
        """Return SHA-256 over split, key, size, label and part of all items, and the classes."""
        digest = hashlib.sha256()
        for name, items in self.splits.items():
            for item in items:
                part = f"\0{item.start}\0{item.stop}" if item.start or item.stop else ""
                part += "".join(p.identity for p in (item.mask, item.boxes, item.values) if p)
                line = f"{name}\0{item.key}\0{item.nbytes}\0{item.label}{part}\n"
                digest.update(line.encode(errors="surrogateescape"))
        digest.update("\0".join(self.classes).encode(errors="surrogateescape"))
        return digest.hexdigest()


def printable(key: str) -> str:
    """Return a key as one printable line: control characters and lone surrogates escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in key)
