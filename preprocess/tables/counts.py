"""Whole numbers of a column, counted: each different one, and how often it occurs."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

_NEAR: Final = 1 << 21
"""Numbers that are so near to the smallest are counted in a table of 16 MiB; others are sorted."""

_HELD: Final = 1 << 22
"""Different numbers that are held, at most."""

_MERGED: Final = 1 << 22
"""Numbers that are counted together: those before are merged with them."""

Counted = tuple[NDArray[np.int64], NDArray[np.int64]]
"""[k] different numbers in rising order, and [k] how often each occurs."""


def count_numbers(parts: Iterable[NDArray[Any] | None], low: int) -> Counted | None:
    """Count whole numbers.

    Args:
        parts: As `present_numbers` returns them.
        low: No number is smaller.

    Returns:
        The numbers and their counts; None if there are too many different ones to hold, or a part
        is None.
    """
    found: Counted = (np.empty(0, np.int64), np.empty(0, np.int64))
    waiting: list[NDArray[Any]] = []
    count = 0
    for part in parts:
        if part is None:
            return None
        waiting.append(part)
        count += len(part)
        if count >= _MERGED:
            found = _merged(found, _counted(waiting, low))
            waiting, count = [], 0
            if len(found[0]) > _HELD:
                return None
    if waiting:
        found = _merged(found, _counted(waiting, low))
    return found if len(found[0]) <= _HELD else None


def present_numbers(array: "pa.Array") -> NDArray[Any] | None:
    """Return the numbers of an array of whole numbers without missing ones.

    Returns:
        [n] signed integers; None for an array of another type, and of uint64.
    """
    import pyarrow as pa

    if array.null_count == len(array):
        return np.empty(0, np.int64)
    if not pa.types.is_integer(array.type) or pa.types.is_uint64(array.type):
        return None
    found: NDArray[Any] = (array.drop_null() if array.null_count else array).to_numpy()
    # Together with signed ones the others would become floats.
    return found.astype(np.int64) if pa.types.is_unsigned_integer(array.type) else found


def _counted(parts: list[NDArray[Any]], low: int) -> Counted:
    numbers = np.concatenate(parts)
    if len(numbers) and int(numbers.max()) - low >= _NEAR:
        near = numbers < low + _NEAR
        far, numbers = np.sort(numbers[~near]), numbers[near]
    else:
        far = numbers[:0]
    counts = np.bincount(numbers.astype(np.int64) - low)
    places = np.flatnonzero(counts)
    ends = np.flatnonzero(np.append(far[1:] != far[:-1], [True] * bool(len(far))))
    values = np.concatenate([places + low, far[ends].astype(np.int64)])
    return values, np.concatenate([counts[places], np.diff(ends, prepend=-1)])


def _merged(one: Counted, two: Counted) -> Counted:
    if not len(one[0]):
        return two
    values = np.concatenate([one[0], two[0]])
    order = np.argsort(values, kind="stable")
    values, counts = values[order], np.concatenate([one[1], two[1]])[order]
    firsts = np.flatnonzero(np.append([True], values[1:] != values[:-1]))
    return values[firsts], np.add.reduceat(counts, firsts)
