"""Stored numbers out of records into columns, by NumPy: with few calls, and long loops in each.

A slice of records is short, so a cast of it spends its time between the rows, 4 nanoseconds each.
Runs of 2, 4, 8 or 16 bytes NumPy moves as if they were one number each: out of the records at once,
cast where they lie side by side, and to their columns at once.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

_AT_ONCE: Final = frozenset({2, 4, 8, 16})
"""Bytes of a run that NumPy moves as one; others take four times as long."""


class Run(Protocol):
    """Columns of one dtype, as `table_views.Group` is."""

    @property
    def dtype(self) -> str:
        """As stored."""

    @property
    def spans(self) -> tuple[slice, ...]:
        """Where they lie in a record, in bytes."""

    @property
    def width(self) -> int:
        """How many there are."""

    @property
    def nullable(self) -> bool:
        """Code 0 is a missing number."""

    @property
    def unsigned(self) -> bool:
        """Sums of 64 bits have no sign."""

    def stored(self, rows: NDArray[np.uint8]) -> NDArray[Any]:
        """Return [B, width] of the dtype out of [B, itemsize] bytes."""


class Put:
    """Casts stored numbers to columns; all that does not depend on the rows is known before.

    Args:
        runs: The columns, side by side.
        dtype: What they become, which holds what is stored.

    Attributes:
        width: Columns.
    """

    width: int

    def __init__(self, runs: Sequence[Run], dtype: np.dtype[Any]) -> None:
        self.width = sum(run.width for run in runs)
        self._moves: list[_Move] = []
        start = 0
        for run in runs:
            stored = np.dtype(run.dtype).newbyteorder("<")
            for span in run.spans:
                width = (span.stop - span.start) // stored.itemsize
                self._moves.append(_Move(span.start, start, width, stored, dtype))
                start += width

    def __call__(self, rows: NDArray[np.uint8], columns: NDArray[Any]) -> None:
        """Cast.

        Args:
            rows: [B, itemsize] records, C-contiguous.
            columns: [B or more, width], C-contiguous; rows that only fill up become 0.
        """
        if not len(rows):
            return
        if len(columns) > len(rows):
            columns[len(rows) :] = 0
        for move in self._moves:
            move(rows, columns)


class _Move:
    """Casts one run.

    Args:
        first: Byte of a record where it begins.
        start: Its first column.
        width: Columns.
        stored: Dtype in the record.
        shown: Dtype of the columns.
    """

    def __init__(
        self, first: int, start: int, width: int, stored: np.dtype[Any], shown: np.dtype[Any]
    ) -> None:
        nbytes, size = width * stored.itemsize, width * shown.itemsize
        self._first, self._place = first, start * shown.itemsize
        self._row: tuple[int, ...] = ()
        self._cast: tuple[np.dtype[Any], np.dtype[Any]] | None = None
        self._from, self._into = stored, shown
        if stored == shown or (width > 1 and {nbytes, size} <= _AT_ONCE):
            self._cast = (stored, shown) if stored != shown else None
            self._from, self._into = np.dtype(f"V{nbytes}"), np.dtype(f"V{size}")
        elif width > 1:
            self._row = (width,)

    def __call__(self, rows: NDArray[np.uint8], columns: NDArray[Any]) -> None:
        """Cast, as `Put` does."""
        # Arrays over the memory by one call each, where slices and views take three.
        shape = (len(rows), *self._row)
        stored: NDArray[Any] = np.ndarray(
            shape, self._from, rows, self._first, _strides(rows, self._row, self._from)
        )
        into: NDArray[Any] = np.ndarray(
            shape, self._into, columns, self._place, _strides(columns, self._row, self._into)
        )
        if self._cast is not None:
            packed, shown = self._cast
            stored = stored.copy().view(packed).astype(shown).view(self._into)
        into[...] = stored


def _strides(rows: NDArray[Any], row: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    return (rows.strides[0], dtype.itemsize) if row else (rows.strides[0],)
