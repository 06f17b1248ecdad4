"""What was read of items: the CRC-32C of each file's bytes, taken as they pass."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Final

from loaders.format.crc32c import extend
from preprocess.contents import NOT_READ, Contents
from preprocess.errors import SampleError
from preprocess.item_files import is_unchanged, open_item, read_item
from preprocess.items import Item

_BLOCK_NBYTES: Final = 1 << 20


class ItemFiles:
    """The files of a source, for those who read them whole; what they hold is summed on the way.

    Used by many threads. Who only looks at a file takes `open_item`.

    Args:
        root: The source folder.
        sums: False where nobody asks what was read, as of a sample or a trial: what is opened is
            not read to its end for its sum, also where it is refused.
    """

    def __init__(self, root: Path, *, sums: bool = True) -> None:
        self.root = root
        self._sums = sums
        self._found: dict[tuple[str, int, int], str] = {}

    @contextmanager
    def open(self, item: Item) -> Iterator[FileIO]:
        """Open the file of an item as `open_item`, to read all of it that is the item's.

        What is not read in order is read again for its sum at the end, also where the item is
        refused: a file that was bad is to be known again. Where nobody waits for the end, such as
        of a table of which some rows are asked for, nothing is noted.

        Raises:
            SampleError: As `open_item`; or the item was read before and held something else.
            SourceError: As `open_item`.
        """
        if not self._sums:
            with open_item(self.root, item) as file:
                yield file
            return
        with open_item(self.root, item) as file, _Summed(file.fileno(), item.extent) as summed:
            try:
                yield summed
            except SampleError:
                found = summed.finished()
                if is_unchanged(item, os.fstat(file.fileno())):
                    self._found[item.key, item.start, 0] = found
                raise
            found = summed.finished()
        self._note(item, 0, found)

    def read(self, item: Item, max_nbytes: int | None = None) -> bytes:
        """Read the whole file of an item.

        Raises:
            SampleError: As `read_item`; or the item was read before and held something else.
            SourceError: As `read_item`.
        """
        data = read_item(self.root, item, max_nbytes)
        self._note(item, 0, f"{extend(0, data):08x}")
        return data

    def read_mask(self, item: Item, max_nbytes: int | None = None) -> bytes:
        """Read the whole mask of an item that has one.

        Raises:
            SampleError: As `read`, with the key of the mask.
            SourceError: As `read`.
        """
        folder, mask = item.files(self.root)[1]
        data = read_item(folder, mask, max_nbytes)
        self._note(item, 1, f"{extend(0, data):08x}")
        return data

    def look_at_mask(self, item: Item, max_nbytes: int | None = None) -> None:
        """Note what the mask of an item holds that was refused before it was read.

        Raises:
            SourceError: As `read`.
        """
        if item.mask is not None and (item.key, item.start, 1) not in self._found:
            with suppress(SampleError):
                self.read_mask(item, max_nbytes)

    def contents(self, items: Sequence[Item]) -> Contents:
        """Return the CRC-32C of what was read of each file of each item, as `Item.files` has them.

        Nothing at all where none was read.
        """
        if not self._found:
            return ()
        return [
            tuple(
                self._found.get((item.key, item.start, number), NOT_READ)
                for number in range(len(item.times()))
            )
            for item in items
        ]

    def _note(self, item: Item, number: int, found: str) -> None:
        """Note what one of an item's files holds, its own or its mask."""
        if self._found.setdefault((item.key, item.start, number), found) != found:
            raise SampleError(item.key, "changed while it was prepared: read twice, not the same")


def content_of(root: Path, item: Item) -> str:
    """Read what is an item's of its own file, and return the CRC-32C.

    Raises:
        SampleError: As `open_item`.
        SourceError: As `open_item`.
    """
    with open_item(root, item) as file, _Summed(file.fileno(), item.extent) as summed:
        return summed.finished()


class _Summed(FileIO):
    """A file whose bytes are summed as they are read in order; what is read at random is not.

    Args:
        descriptor: Stays open when this is closed, as Arrow does with what it has read.
        extent: First and end of the bytes that are summed.
    """

    def __init__(self, descriptor: int, extent: tuple[int, int]) -> None:
        super().__init__(descriptor, closefd=False)
        self._descriptor = descriptor
        self._next, self._stop = extent
        self._sum = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to so many bytes."""
        data = super().read(size)
        self._take(self.tell() - len(data), data)
        return data

    def finished(self) -> str:
        """Return the sum of all, also of what nobody has read."""
        while self._next < self._stop:
            wanted = min(_BLOCK_NBYTES, self._stop - self._next)
            if not (data := os.pread(self._descriptor, wanted, self._next)):
                break  # cut off meanwhile, which its opener tells
            self._take(self._next, data)
        return f"{self._sum:08x}"

    def _take(self, start: int, data: bytes) -> None:
        first, end = self._next - start, min(len(data), self._stop - start)
        if 0 <= first < end:
            self._sum = extend(self._sum, memoryview(data)[first:end])
            self._next = start + end
