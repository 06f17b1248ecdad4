"""Files of equally long rows as one array: mapped at addresses that are whole rows apart.

One gather then takes rows of any files, as fast as of one: each file's rows begin where a row of
one long array would, since the distance between files is a multiple of a row and of a page. What
lies between is reserved, holds no memory and is never read.
"""

import ctypes
import errno
import math
import mmap
import os
import sys
import weakref
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.errors import ShardsError
from loaders.format.maps import Place

_NO_ACCESS: Final = 0
_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0 if sys.platform == "darwin" else 0x4000
"""Not in Python's mmap: POSIX leaves the numbers open; Linux and macOS have these."""

_RESERVED: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE

_FAILED: Final = ctypes.c_void_p(-1).value

_MOST_NBYTES: Final = 1 << 56
"""More than any processor has addresses. C would cut a larger number down to its lowest 64 bits,
and files would then be mapped over the memory of others."""


class JoinedMap:
    """Rows of many files at addresses that are multiples of a row apart.

    Safe across fork. Files are mapped read-only, one by one, when they are asked for.

    Args:
        row_nbytes: Bytes of a row, the same in all files.
        file_nbytes: Bytes of the largest file.
        count: Files.
        what: Names the files in errors.

    Attributes:
        step: Rows from the first row of a file to that of the next.

    Raises:
        ShardsError: The system has not so many addresses.
    """

    def __init__(self, row_nbytes: int, file_nbytes: int, count: int, what: str) -> None:
        self._row_nbytes = row_nbytes
        self._distance = distance(row_nbytes, file_nbytes)
        self.step = self._distance // row_nbytes
        self._nbytes = self._distance * count
        try:
            self._address = _map(0, self._nbytes, _NO_ACCESS, _RESERVED, -1)
        except OSError as error:
            raise ShardsError(
                f"{what}: no {self._nbytes:,} bytes of addresses are free: {error.strerror}; raise "
                'the limit ("ulimit -v")'
            ) from error
        # The memory is given back when the last array over it is gone.
        weakref.finalize(self, _unmap, self._address, self._nbytes).atexit = False

    def place(self, number: int) -> Place:
        """Return what maps an open file at its place: (descriptor, bytes) -> [bytes] uint8."""
        address = self._address + number * self._distance

        def place(descriptor: int, nbytes: int) -> NDArray[np.uint8]:
            _map(address, nbytes, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, descriptor)
            return self._array(address, (nbytes,))

        return place

    def rows(self, start: int, count: int) -> NDArray[np.uint8]:
        """Return rows that lie side by side, the first at a byte of the first file.

        Args:
            start: Byte of the first file at which its rows begin; the same in all files.
            count: Rows, those in between included.

        Returns:
            [count, row_nbytes] uint8, read-only. What lies between files must not be touched.
        """
        return self._array(self._address + start, (count, self._row_nbytes))

    def _array(self, address: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        return np.asarray(_Bytes(self, address, shape))


def distance(row_nbytes: int, file_nbytes: int) -> int:
    """Return the bytes from the start of a file to that of the next: whole rows and whole pages."""
    unit = math.lcm(row_nbytes, mmap.PAGESIZE)
    return -(-file_nbytes // unit) * unit


class _Bytes:
    """Memory as NumPy asks for it; keeps the map alive."""

    def __init__(self, owner: JoinedMap, address: int, shape: tuple[int, ...]) -> None:
        self.owner = owner
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "data": (address, True),  # read-only
            "shape": shape,
            "typestr": "|u1",
        }


def _map(address: int, nbytes: int, access: int, flags: int, descriptor: int) -> int:
    """Call mmap of the C library, which Python's cannot tell where to map.

    Raises:
        OSError: The system refuses.
    """
    if nbytes > _MOST_NBYTES:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    # A library object of our own: argtypes set on a shared one would be everybody's.
    system = ctypes.CDLL(None, use_errno=True)
    system.mmap.restype = ctypes.c_void_p
    system.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    found = system.mmap(address, nbytes, access, flags, descriptor, 0)
    if found == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(found)


def _unmap(address: int, nbytes: int) -> None:
    system = ctypes.CDLL(None)
    system.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    system.munmap(address, nbytes)
