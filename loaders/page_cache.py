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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_CHUNK: Final = 1 << 26
"""Bytes read between two looks at the clock: 64 MiB are sequential on any disk."""

_WILL_NEED: Final = 3
"""MADV_WILLNEED on Linux and macOS."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What came of it.

    Attributes:
        nbytes: Read.
        locked: Of these, what cannot be evicted as long as the dataset is open.
    """

    nbytes: int
    locked: int


def keep_in_ram(maps: Iterable[NDArray[Any]], budget: int, progress: Callable[[int], None]) -> Kept:
    """Read mapped files into the page cache from start to end, and lock them there.

    Closing a map unlocks it.

    Args:
        maps: Arrays over mapped files, C-contiguous.
        budget: Bytes up to which they are read.
        progress: Told after each piece how many bytes were read by then.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    read = locked = 0
    lockable = True
    for array in maps:
        data = array.reshape(-1).view(np.uint8)
        for start in range(0, len(data), _CHUNK):
            piece = data[start : start + min(_CHUNK, budget - read)]
            if not len(piece):
                return Kept(read, locked)
            address = piece.ctypes.data
            first = address - address % mmap.PAGESIZE
            span = ctypes.c_void_p(first), ctypes.c_size_t(address + len(piece) - first)
            libc.madvise(*span, _WILL_NEED)
            piece[:: mmap.PAGESIZE].max()  # touches every page
            lockable = lockable and libc.mlock(*span) == 0
            read += len(piece)
            locked += len(piece) if lockable else 0
            progress(read)
    return Kept(read, locked)
