"""Rows in an order that follows from a seed: through windows of records, each put in order alone.

A row's place follows from a keyed number of its own; sorted by that number, the rows are shuffled.
The leading bits say in which window a row falls, so that no more than a window is ever held:
records are dealt out to the windows as they come, in any order, and each is sorted when it is read.
"""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError
from loaders.format.files import write_all
from loaders.format.spec import SPLITS
from preprocess.tables.splits import mixed

WINDOW_NBYTES: Final = 8_000_000
"""Bytes of records to a window, about: a thread holds a few of them."""

MAX_WINDOWS: Final = 4096
"""Files that records are dealt out to."""

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_MASK: Final = (1 << 64) - 1


def keyed_numbers(first: int, count: int, seed: int, split: str) -> NDArray[np.uint64]:
    """Return a number for each row; no two rows have the same.

    Args:
        first: Place of the first row in its split.
        count: Rows.
        seed: Gives other numbers.
        split: Of the rows.

    Source:
        Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014: the n-th
        output of SplitMix64, whose state is scrambled by itself from seed and split.
    """
    start = np.array([(seed * len(SPLITS) + SPLITS.index(split)) & _MASK], np.uint64)
    state = mixed(mixed(start))[0]
    places = np.arange(first, first + count, dtype=np.uint64)
    return mixed(places * _GOLDEN + state)  # wraps: modulo 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The windows of one split.

    Attributes:
        folder: Where their files are.
        split: The split.
        seed: Of the order.
        counts: Rows that fall in each window.
        dtype: Of a record.
        placed: Whether the files tell where in the split each row was, for what is not dealt out.
    """

    folder: Path
    split: str
    seed: int
    counts: tuple[int, ...]
    dtype: np.dtype[Any]
    placed: bool = False

    @property
    def entry(self) -> np.dtype[Any]:
        """What lies in the files: a row's number, its place if that is told, and its record."""
        place = [("place", "<i8")] if self.placed else []
        return np.dtype([("number", "<u8"), *place, ("record", f"V{self.dtype.itemsize}")])

    def path(self, window: int) -> Path:
        """Return the file of a window."""
        return self.folder / f"{self.split}.{window:04d}"

    def read(self, window: int) -> NDArray[Any]:
        """Return the records of a window in their order.

        Raises:
            FormatError: The file cannot be read, or is not whole.
        """
        entries, order = self._entries(window)
        return entries["record"][order].view(self.dtype)

    def places(self, window: int) -> NDArray[np.int64]:
        """Return the place that each row of a window had in its split, in their order.

        Raises:
            FormatError: The file cannot be read, or is not whole.
        """
        entries, order = self._entries(window)
        found: NDArray[np.int64] = entries["place"][order]
        return found

    def _entries(self, window: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return what lies in a window's file, and the order of its rows.

        Raises:
            FormatError: The file cannot be read, or is not whole.
        """
        expected = self.counts[window] * self.entry.itemsize
        try:
            data = self.path(window).read_bytes()
        except OSError as error:
            raise FormatError(f"{self.path(window)}: cannot be read: {error.strerror}") from error
        if len(data) != expected:
            raise FormatError(f"{self.path(window)}: {len(data)} bytes, {expected} were written")
        entries = np.frombuffer(data, self.entry)
        return entries, np.argsort(entries["number"])


def plan_windows(
    folder: Path,
    split: str,
    seed: int,
    count: int,
    dtype: np.dtype[Any],
    beside: int | None = None,
) -> Windows:
    """Choose how many windows there are, and count the rows that fall in each.

    Args:
        folder: Where their files will be.
        split: The split.
        seed: Of the order.
        count: Rows of the split.
        dtype: Of a record.
        beside: Bytes of what a row has beside its record, about, and its place is kept; None where
            it has nothing.
    """
    most = min(MAX_WINDOWS, 1 + count * (dtype.itemsize + (beside or 0)) // WINDOW_NBYTES)
    bits = (most - 1).bit_length()
    counts = np.zeros(1 << bits, np.int64)
    step = 1 << 20
    for first in range(0, count, step):
        numbers = keyed_numbers(first, min(step, count - first), seed, split)
        counts += np.bincount(_window_of(numbers, bits), minlength=1 << bits)
    return Windows(
        folder=folder,
        split=split,
        seed=seed,
        counts=tuple(counts.tolist()),
        dtype=dtype,
        placed=beside is not None,
    )


def _window_of(numbers: NDArray[np.uint64], bits: int) -> NDArray[np.int64]:
    if not bits:
        return np.zeros(len(numbers), np.int64)
    return (numbers >> np.uint64(64 - bits)).astype(np.int64)


class Dealer:
    """Deals records out to windows; many threads may, in any order.

    Args:
        windows: Of the split; what is in their files is dropped.
    """

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._locks = [threading.Lock() for _ in windows.counts]
        for window, count in enumerate(windows.counts):
            if count:
                windows.path(window).write_bytes(b"")

    def deal(self, first: int, records: NDArray[Any]) -> None:
        """Add records to their windows.

        Args:
            first: Place of the first of them in the split.
            records: [n] of the windows' dtype.

        Raises:
            OSError: A file cannot be written.
        """
        windows = self._windows
        numbers = keyed_numbers(first, len(records), windows.seed, windows.split)
        entries = np.empty(len(records), windows.entry)
        entries["number"] = numbers
        if windows.placed:
            entries["place"] = np.arange(first, first + len(records))
        entries["record"] = np.ascontiguousarray(records).view(f"V{windows.dtype.itemsize}")
        found = _window_of(numbers, (len(windows.counts) - 1).bit_length())
        order = np.argsort(found, kind="stable")
        ends = np.cumsum(np.bincount(found, minlength=len(windows.counts))).tolist()
        entries = entries[order]
        start = 0
        for window, end in enumerate(ends):
            if end > start:
                self._append(window, entries[start:end])
            start = end

    def _append(self, window: int, entries: NDArray[Any]) -> None:
        with self._locks[window], self._windows.path(window).open("ab", buffering=0) as file:
            write_all(file.fileno(), entries.view(np.uint8).data)
