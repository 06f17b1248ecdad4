"""Numbers of a table as float32 on the host: few passes of NumPy over all columns together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.table_put import Put, Run
from loaders.views import Take

ROWS: Final = 64
"""Rows whose constants stand side by side: with those of one alone the loops of NumPy are as short
as a row, and an addition takes three times as long."""

_OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "add": np.add,
    "multiply": np.multiply,
    "divide": np.divide,
}

_INT32: Final = np.iinfo(np.int32)
_FLOAT32: Final = np.dtype(np.float32)


def fits_int32(run: Run) -> bool:
    """Return whether int32 holds what is stored."""
    return run.dtype in {"uint8", "uint16", "int32"}


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What becomes of stored numbers, in order.

    Attributes:
        operations: Each with its constants [columns].
        dtype: What they are done in, float32 or float64.
        zero: Missing numbers become 0, not NaN.
    """

    operations: tuple[tuple[str, NDArray[Any]], ...]
    dtype: np.dtype[Any]
    zero: bool

    def of(self, columns: Sequence[int]) -> "Work":
        """Return the same for some of the columns."""
        chosen = [*columns]
        operations = tuple((name, constants[chosen]) for name, constants in self.operations)
        return Work(operations, self.dtype, self.zero)

    def loops(self) -> list[tuple[Callable[..., Any], NDArray[Any]]]:
        """Return the operations with the constants of `ROWS` rows."""
        return [
            (_OPERATIONS[name], np.tile(constants.astype(self.dtype), ROWS))
            for name, constants in self.operations
        ]


class SmallCodes:
    """Makes float32 of codes that int32 holds, 0 of which is a missing number.

    Args:
        runs: The columns, side by side.
        work: What is done to them.
    """

    def __init__(self, runs: Sequence[Run], work: Work) -> None:
        self._put = Put(runs, _INT32.dtype)
        self._width = sum(run.width for run in runs)
        # Where whole numbers stay within int32 they are added as such: half of the passes, and the
        # float32 next to the sum is the same one.
        work = _in_int32(runs, work) or work
        self._dtype = work.dtype
        self._loops = work.loops()
        self._zero = work.zero

    def __call__(self, rows: NDArray[np.uint8], take: Take) -> NDArray[np.float32]:
        """Return [B, columns] float32 of [B, itemsize] bytes, in memory that `take` gives."""
        codes, mask = take((2, _padded(len(rows)), self._width), _INT32.dtype)
        self._put(rows, codes)
        # All ones where a code is not 0, or where it is: a branch for each value took four times as
        # long where some are missing.
        if self._zero:
            np.negative(codes, out=mask)
        else:
            np.subtract(codes, 1, out=mask)
        mask >>= 31
        values = _as(codes, self._dtype, take)
        flat = values.reshape(-1, ROWS * self._width)
        # Values beyond float32 are infinite: no warning.
        with np.errstate(over="ignore"):
            for operation, constants in self._loops:
                operation(flat, constants, out=flat)
            shown = _as(values, _FLOAT32, take)
        _blank(shown, mask, zero=self._zero)
        return shown[: len(rows)]


class Numbers:
    """Makes float32 of any stored numbers.

    Args:
        runs: The columns, side by side.
        work: What is done to them.
        lost: [columns], what a missing number is stored as; NaN where nothing else is.
        whole: Number of a run -> what is added to its codes first, as integers of 64 bits.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        work: Work,
        lost: NDArray[np.float64],
        whole: Mapping[int, NDArray[np.int64]],
    ) -> None:
        self._runs = runs
        self._width = sum(run.width for run in runs)
        self._put = Put(runs, work.dtype)
        self._dtype = work.dtype
        self._loops = work.loops()
        self._zero = work.zero
        self._lost = np.tile(lost.astype(work.dtype), ROWS)
        self._has_floats = bool(np.isnan(lost).any())
        self._whole = whole

    def __call__(self, rows: NDArray[np.uint8], take: Take) -> NDArray[np.float32]:
        """Return [B, columns] float32 of [B, itemsize] bytes, in memory that `take` gives."""
        shape = _padded(len(rows)), self._width
        values = take(shape, self._dtype)
        self._put(rows, values)
        flat = values.reshape(-1, ROWS * self._width)
        known = flat != self._lost
        if self._has_floats:
            known &= flat == flat  # NaN is not
        start = 0
        for number, run in enumerate(self._runs):
            columns = values[: len(rows), start : start + run.width]
            start += run.width
            if number in self._whole:  # integers that float64 rounds
                sums = run.stored(rows) + self._whole[number]
                columns[...] = sums.view(np.uint64) if run.unsigned else sums
        # Infinities, and float64 beyond float32, are what they are: no warning.
        with np.errstate(over="ignore", invalid="ignore"):
            for operation, constants in self._loops:
                operation(flat, constants, out=flat)
            shown = _as(values, _FLOAT32, take)
        mask = take(shape, _INT32.dtype)
        np.copyto(mask, known.view(np.int8).reshape(shape))
        if self._zero:
            np.negative(mask, out=mask)  # keep all, or none
        else:
            mask -= 1  # all ones is NaN
        _blank(shown, mask, zero=self._zero)
        return shown[: len(rows)]


def _padded(count: int) -> int:
    """Return a multiple of `ROWS`."""
    return -(-count // ROWS) * ROWS


def _as(values: NDArray[Any], dtype: np.dtype[Any], take: Take) -> NDArray[Any]:
    """Return the values in that dtype: themselves where they have it."""
    if values.dtype == dtype:
        return values
    cast = take(values.shape, dtype)
    np.copyto(cast, values, casting="unsafe")
    return cast


def _blank(shown: NDArray[np.float32], mask: NDArray[np.int32], *, zero: bool) -> None:
    """Put 0 where the mask has no bits, or NaN where it has all."""
    bits = shown.view(np.int32)
    if zero:
        bits &= mask
    else:
        bits |= mask


def _in_int32(runs: Sequence[Run], work: Work) -> Work | None:
    """Return the work as an addition of int32 that stays within; None if it is not."""
    needed = [
        (name, constants)
        for name, constants in work.operations
        if (constants != (0 if name == "add" else 1)).any()
    ]
    if len(needed) > 1 or any(name != "add" for name, _ in needed):
        return None
    highest = np.concatenate([np.full(run.width, np.iinfo(run.dtype).max) for run in runs])
    for _, added in needed:
        sums = added.astype(np.float64) + highest
        if (
            (added != np.rint(added)).any()
            or (added < _INT32.min).any()
            or (sums > _INT32.max).any()
        ):
            return None
    return Work(tuple(needed), np.dtype(np.int32), work.zero)
