"""The file of a parsed block, as Arrow writes to it."""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loaders.format.crc32c import extend
from loaders.format.files import write_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_TOGETHER: Final = 1 << 20
"""Bytes that are written at a time: Arrow gives some hundred pieces to a block. It puts them
together itself: for each that it hands over, a thread waits for the interpreter."""


@dataclass(slots=True)
class BlockSink:
    """What Arrow writes a block to, where a buffer of its own would grow and be copied each time.

    Attributes:
        descriptor: Of the file.
        nbytes: Written so far.
        crc32c: Of them.
        closed: Arrow asks for it.
    """

    descriptor: int
    nbytes: int = 0
    crc32c: int = 0
    closed: bool = False

    @contextmanager
    def opened(self) -> "Iterator[pa.BufferedOutputStream]":
        """Give what Arrow writes to; at the end all of it is in the file."""
        import pyarrow as pa

        with (
            pa.PythonFile(self, mode="w") as file,
            pa.BufferedOutputStream(file, _TOGETHER) as stream,
        ):
            yield stream

    def write(self, data: Any) -> None:
        """Write all of some bytes."""
        piece = np.frombuffer(data, np.uint8)
        write_all(self.descriptor, piece.data)
        self.nbytes += len(piece)
        self.crc32c = extend(self.crc32c, piece)

    def flush(self) -> None:
        """Do nothing: all bytes are written. Arrow calls it."""

    def close(self) -> None:
        """Take note: Arrow hands nothing over any more, also what it held when a write failed."""
        self.closed = True
