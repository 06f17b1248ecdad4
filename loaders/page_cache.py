"""The files of a dataset, read into the page cache once and kept there.

# NOTE [ Residency "ram" is the page cache ]
A copy of the samples in memory of our own would be faster by nothing (rows of a warm map are copied
at the rate of memory), would lie there twice, once as page cache, and would have to be shared
between the ranks of a machine and cleaned up after a crash. Pages of a file are one copy for all
processes by nature, and go when the last of them closes the file, however it ends. What is missing
is that they are read in the order of the file, which is several times the rate of a shuffled first
epoch, and that they stay: `mlock` sees to that as far as the system lets the process lock memory.
"""

import ctypes
import mmap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.announce import will_need

_CHUNK: Final = 1 << 26
"""Bytes announced at a time, and read between two looks at the clock: 64 MiB are sequential on any
disk, and of rows that lie apart as many as keep it busy."""

_PIECES: Final = 1 << 12
"""Pieces announced at a time, at most."""

_MOST_LOCKS: Final = 1 << 14
"""Pieces that are locked. Each is a mapping of its own to the system, of which Linux gives a
process 65,530: without any left it could open nothing more."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What came of it.

    Attributes:
        nbytes: Read.
        locked: Of these, what cannot be evicted as long as the dataset is open.
    """

    nbytes: int
    locked: int


def keep_in_ram(
    parts: Iterable[NDArray[Any]], budget: int, progress: Callable[[int], None]
) -> Kept:
    """Read parts of mapped files into the page cache, in their order, and lock them there.

    Closing a map unlocks it.

    Args:
        parts: Arrays over mapped files, C-contiguous.
        budget: Bytes up to which they are read.
        progress: Told after each piece how many bytes were read by then.
    """
    lock = ctypes.CDLL(None, use_errno=True).mlock
    lock.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    read = locked = locks = 0
    lockable = True
    for pieces in _announced(_cut(parts, budget)):
        for piece in pieces:
            piece[:: mmap.PAGESIZE].max()  # touches every page
            piece[-1:].max()  # one that the steps end before
            address = piece.ctypes.data
            first = address - address % mmap.PAGESIZE
            lockable = lockable and locks < _MOST_LOCKS
            lockable = lockable and lock(first, address + len(piece) - first) == 0
            locks += 1
            read += len(piece)
            locked += len(piece) if lockable else 0
            progress(read)
    return Kept(read, locked)


def _cut(parts: Iterable[NDArray[Any]], budget: int) -> Iterator[NDArray[np.uint8]]:
    """Yield parts in pieces, as bytes, up to a budget."""
    left = budget
    for part in parts:
        data = part.reshape(-1).view(np.uint8)
        for start in range(0, len(data), _CHUNK):
            piece = data[start : start + min(_CHUNK, left)]
            if not len(piece):
                return
            left -= len(piece)
            yield piece


def _announced(pieces: Iterable[NDArray[np.uint8]]) -> Iterator[list[NDArray[np.uint8]]]:
    """Yield pieces some at a time, of which the kernel was told before any is touched."""
    told: list[NDArray[np.uint8]] = []
    nbytes = 0
    for piece in pieces:
        will_need(piece)
        told.append(piece)
        nbytes += len(piece)
        if nbytes >= _CHUNK or len(told) >= _PIECES:
            yield told
            told, nbytes = [], 0
    yield told
