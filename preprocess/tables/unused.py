"""A number of 64 bits that no row has, whose code can stand for missing values."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_DIGIT: Final = 16
"""Bits that are looked at in one pass."""

_REST: Final = 0x5555_5555_5555
"""Bits below a number that nothing begins with: no round number, which new rows are likelier to
have."""


def unused_number(
    parts: Callable[[], Iterable[tuple[NDArray[Any], object]]], *, unsigned: bool
) -> int:
    """Find a number that is not among some: one alone for the same, in whatever order.

    Each pass looks at the next 16 bits of the numbers that begin with the rarest ones of those
    before: a pass is enough of up to 65,535 numbers, and 2 of up to 2**32.

    Args:
        parts: Begins a pass: [m] int64 or uint64 each, in pairs with what is not looked at.
        unsigned: They are without a sign.
    """
    begin = 0
    for shift in range(64 - _DIGIT, -1, -_DIGIT):
        counts = np.zeros(1 << _DIGIT, np.int64)
        for values, _ in parts():
            bits = values.reshape(-1).view(np.uint64) >> np.uint64(shift)
            digits = bits & np.uint64(len(counts) - 1)
            if shift + _DIGIT < 64:
                digits = digits[bits >> np.uint64(_DIGIT) == begin]
            counts += np.bincount(digits.astype(np.int64), minlength=len(counts))
        rarest = int(np.argmin(counts))
        begin = begin << _DIGIT | rarest
        if not counts[rarest]:
            found = begin << shift | _REST & (1 << shift) - 1
            return found if unsigned or not found >> 63 else found - (1 << 64)
    raise ValueError("there are 2**64 numbers or more")
