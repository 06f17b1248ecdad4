"""Which pages of files are in memory, and how they are sent out of it."""

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np
import pytest


def resident(path: Path, offset: int = 0) -> bool:
    """Return whether a page of a file is in memory, without reading it."""
    mapped = np.memmap(path, np.uint8, "r")
    found = ctypes.c_ubyte()
    address = mapped.ctypes.data + offset // mmap.PAGESIZE * mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(1), ctypes.byref(found)):
        raise OSError(ctypes.get_errno(), "mincore")
    return bool(found.value & 1)


def forget(path: Path) -> None:
    """Have the kernel forget a file, which nobody may have mapped, if its file system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def drop(path: Path) -> None:
    """Have the kernel forget a file; skip the test where it cannot."""
    forget(path)
    if resident(path):
        pytest.skip("this file system keeps files in memory")
