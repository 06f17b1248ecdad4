"""One shard file, written row by row."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.crc32c import extend, with_other_start
from loaders.format.files import CHECKSUM_BLOCK, write_all

_SMALL_ROW: Final = 1 << 16
"""Bytes of a row below which rows are gathered to a block before they are written."""

_WRITE_BLOCK: Final = 3 << 18
"""Bytes that are looked at, summed and written while they are in the processor's cache: writing
rows of 3 MB in one call took twice the system time."""

_WRITE_BACK: Final = 8 << 20
"""Bytes after which the disk is set to work on what was written."""


class RowWriter:
    """Writes one shard file row by row: a prefix, the rows, a suffix.

    The prefix holds the count in some containers, and the count is known only at the end (items
    may turn out to be unreadable), so the prefix is written twice; its length must not change.

    Args:
        path: The file; it is made, or emptied.
        prefix: What precedes the rows, for the count that is expected.
        room: Bytes to reserve on the disk at once; what is not used is given back. A disk that
            cannot hold them says so before the work, and reserved blocks are written faster.

    Attributes:
        crc32c: Checksum of the whole file, once it is finished.
    """

    def __init__(self, path: Path, prefix: bytes, room: int = 0) -> None:
        self.path = path
        self.count = 0
        self.crc32c = ""
        self._prefix = prefix
        self._value = 0
        self._small = bytearray()
        self._written = 0
        self._started = 0
        self._file = path.open("wb", buffering=0)
        try:
            if room and hasattr(os, "posix_fallocate"):  # not on macOS
                os.posix_fallocate(self._file.fileno(), 0, room)
            self._write(prefix)
        except BaseException:
            self.discard()
            raise

    def append(
        self,
        rows: NDArray[Any],
        look: Callable[[NDArray[np.uint8]], None] | None = None,
        unit: int = 1,
    ) -> None:
        """Add rows.

        Args:
            rows: [N, *shape] of the field's dtype, C-contiguous.
            look: Called with all of their bytes, in order and part by part.
            unit: Bytes that no part divides, such as those of a pixel.
        """
        data = rows.reshape(-1).view(np.uint8)
        if data.nbytes < _SMALL_ROW:
            if look is not None:
                look(data)
            self._small += data.data
            if len(self._small) >= CHECKSUM_BLOCK:
                self._flush_small()
        else:
            self._flush_small()
            step = max(unit, _WRITE_BLOCK // unit * unit)
            for start in range(0, data.nbytes, step):
                block = data[start : start + step]
                if look is not None:
                    look(block)
                self._write(block)
        self.count += len(rows)

    def _flush_small(self) -> None:
        if self._small:
            self._write(bytes(self._small))
            self._small.clear()

    def mark(self) -> tuple[int, int, int, bytes]:
        """Return where the file stands, for `go_back`."""
        return self.count, self._written, self._value, bytes(self._small)

    def go_back(self, mark: tuple[int, int, int, bytes]) -> None:
        """Take back every row that was added since."""
        self.count, self._written, self._value, small = mark
        self._small = bytearray(small)
        self._started = min(self._started, self._written)
        os.lseek(self._file.fileno(), self._written, os.SEEK_SET)

    def _write(self, data: bytes | NDArray[np.uint8]) -> None:
        self._value = extend(self._value, data)
        write_all(self._file.fileno(), data if isinstance(data, bytes) else data.data)
        self._written += len(data)
        if self._written - self._started >= _WRITE_BACK and hasattr(os, "posix_fadvise"):
            # Linux starts to write a range's changed pages when it is told that they are not
            # needed, and keeps them: the fsync at the end then finds little left to wait for.
            start, self._started = self._started, self._written
            os.posix_fadvise(
                self._file.fileno(), start, self._written - start, os.POSIX_FADV_DONTNEED
            )

    def finish(self, prefix: bytes, suffix: bytes) -> int:
        """Write what depends on the final count, fsync and close.

        Returns:
            Bytes in the file.
        """
        if len(prefix) != len(self._prefix):
            raise ValueError(f"{self.path}: prefix of {len(prefix)} bytes, not {len(self._prefix)}")
        descriptor = self._file.fileno()
        self._flush_small()
        self._write(suffix)
        os.ftruncate(descriptor, self._written)
        if prefix != self._prefix:
            os.lseek(descriptor, 0, os.SEEK_SET)
            write_all(descriptor, prefix)
        os.fsync(descriptor)
        self._file.close()
        rest = self._written - len(prefix)
        self._value = with_other_start(self._value, self._prefix, prefix, rest)
        self.crc32c = f"{self._value:08x}"
        return self._written

    def discard(self) -> None:
        """Close and remove the file; nothing of it was visible."""
        self._file.close()
        self.path.unlink(missing_ok=True)
