"""Whole numbers of a column, counted: each different one, and how often it occurs."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from preprocess.tables.buffers import filled, stored_numbers, validity

if TYPE_CHECKING:
    import pyarrow as pa

_NEAR: Final = 1 << 16
"""Numbers that are so near to the smallest are counted in a table that stays in the cache."""

_SPAN: Final = 1 << 21
_DENSE: Final = 8
"""Others are counted in a table of 16 MiB where it has at most so many places for each; or they
are sorted."""

_HELD: Final = 1 << 22
"""Different numbers that are held, at most."""

_MERGED: Final = 1 << 22
"""Numbers far from the smallest that are counted together: those before are merged with them."""

Counted = tuple[NDArray[np.int64], NDArray[np.int64]]
"""[k] different numbers in rising order, and [k] how often each occurs."""


class Part(NamedTuple):
    """Numbers of a block.

    Attributes:
        numbers: [n] whole numbers of any type but uint64.
        fill: What stands in the places of missing ones: one of the others.
        missing: How many of these there are.
    """

    numbers: NDArray[Any]
    fill: int = 0
    missing: int = 0


def count_numbers(parts: Iterable[Part | None], low: int) -> Counted | None:
    """Count whole numbers.

    Args:
        parts: As `numbers_to_count` returns them.
        low: No number is smaller.

    Returns:
        The numbers and their counts; None if there are too many different ones to hold, or a part
        is None.
    """
    near = np.zeros(_NEAR, np.int64)
    far: Counted = (np.empty(0, np.int64), np.empty(0, np.int64))
    waiting: list[NDArray[np.int64]] = []
    missing: Counter[int] = Counter()
    for part in parts:
        if part is None:
            return None
        beyond = _count_near(part.numbers, low, near)
        missing[part.fill] += part.missing
        if len(beyond):
            waiting.append(beyond)
        if sum(map(len, waiting)) >= _MERGED:
            far, waiting = _merged(far, _counted(np.concatenate(waiting))), []
            if len(far[0]) > _HELD:
                return None
    if waiting:
        far = _merged(far, _counted(np.concatenate(waiting)))
    places = np.flatnonzero(near)
    values, counts = np.append(places + low, far[0]), np.append(near[places], far[1])
    for fill, count in (+missing).items():
        counts[np.searchsorted(values, fill)] -= count
    return (values, counts) if len(values) <= _HELD else None


def numbers_to_count(array: "pa.Array") -> Part | None:
    """Return the numbers of an array of whole numbers.

    Returns:
        None for an array of another type, and of uint64.
    """
    import pyarrow as pa

    if array.null_count == len(array):
        return Part(np.empty(0, np.int64))
    if not pa.types.is_integer(array.type) or pa.types.is_uint64(array.type):
        return None
    numbers = stored_numbers(array)
    if not array.null_count:
        return Part(numbers)
    valid = validity(array)
    fill = numbers[np.argmax(valid)]
    return Part(filled(numbers, valid, fill), int(fill), array.null_count)


def _count_near(numbers: NDArray[Any], low: int, near: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count those of [n] numbers that are near to `low`; return the others."""
    if not len(numbers):
        return np.empty(0, np.int64)
    highest = int(numbers.max()) - low
    if highest < len(near):
        near[: highest + 1] += np.bincount(np.subtract(numbers, low, dtype=np.int64))
        return np.empty(0, np.int64)
    beyond = low + len(near)
    limits = np.iinfo(numbers.dtype)
    if limits.min <= beyond <= limits.max:
        # Where neither a sum nor a distance of the near ones can be too large.
        places = np.subtract(np.minimum(numbers, beyond), low, dtype=np.int64)
        near += np.bincount(places, minlength=len(near) + 1)[:-1]
        return numbers[numbers >= beyond].astype(np.int64)
    # A distance may be beyond int64.
    numbers = numbers.astype(np.int64)
    far = numbers.view(np.uint64) - np.uint64(low % (1 << 64))
    places = np.minimum(far, np.uint64(len(near))).view(np.int64)
    near += np.bincount(places, minlength=len(near) + 1)[:-1]
    rest: NDArray[np.int64] = numbers[places == len(near)]
    return rest


def _counted(numbers: NDArray[np.int64]) -> Counted:
    low = int(numbers.min())
    span = int(numbers.max()) - low + 1
    if span <= min(_SPAN, _DENSE * len(numbers)):
        counts = np.bincount(numbers - low)
        places = np.flatnonzero(counts)
        return places + low, counts[places]
    numbers = np.sort(numbers)
    ends = np.flatnonzero(np.append(numbers[1:] != numbers[:-1], True))
    return numbers[ends], np.diff(ends, prepend=-1)


def _merged(one: Counted, two: Counted) -> Counted:
    if not len(one[0]):
        return two
    values = np.concatenate([one[0], two[0]])
    order = np.argsort(values, kind="stable")
    values, counts = values[order], np.concatenate([one[1], two[1]])[order]
    firsts = np.flatnonzero(np.append([True], values[1:] != values[:-1]))
    return values[firsts], np.add.reduceat(counts, firsts)
