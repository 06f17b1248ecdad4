"""The file of a parsed block, as Arrow writes to it."""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.crc32c import extend
from loaders.format.files import write_all

_TOGETHER: Final = 1 << 20
"""Bytes that are written at a time: Arrow gives some hundred pieces to a block."""


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
    _held: bytearray = field(default_factory=bytearray)

    def write(self, data: Any) -> None:
        """Take some bytes."""
        piece = np.frombuffer(data, np.uint8)
        if piece.nbytes >= _TOGETHER:  # of a list of millions of values: not copied
            self.flush()
            self._write(piece)
            return
        self._held += piece.data
        if len(self._held) >= _TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write all bytes that are held."""
        # The traceback of a failure holds on to these: no more can be added to them.
        held, self._held = self._held, bytearray()
        self._write(held)

    def _write(self, data: bytearray | NDArray[np.uint8]) -> None:
        write_all(self.descriptor, data if isinstance(data, bytearray) else data.data)
        self.nbytes += len(data)
        self.crc32c = extend(self.crc32c, data)

    def close(self) -> None:
        """Write nothing more: after a failure the descriptor may be another file's by now."""
        self._held = bytearray()
        self.closed = True
