"""Exact, mergeable statistics of a column of numbers: the same for any cut into blocks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.table_statistics import ColumnStatistics

_TOGETHER: Final = 1 << 16
"""Values that are summed at a time: the arrays in between stay in the cache."""

_MOST_COUNTED: Final = 1 << 25
"""Rows whose pieces of 28 bits add up exactly in a float64."""

_COUNT_BITS: Final = 9
"""Of counts that are summed at a time: so many of `_TOGETHER` values are within the above."""

_FLOAT_BITS: Final = 53
_FLOAT_SCALE: Final = 1127
"""Every float64 is an integer / 2**1127: 53 bits below the smallest exponent that frexp gives."""

_ROOT_BITS: Final = 128
"""Of a root before it is rounded; the last one says whether something is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Exact sums over values; integers throughout, so that no order of merging changes them.

    Attributes:
        count: Values.
        total: Their sum, times 2**scale.
        squares: The sum of their squares, times 4**scale.
        minimum: The smallest; None without values.
        maximum: The largest; None without values.
        scale: 0 for integers.
    """

    count: int = 0
    total: int = 0
    squares: int = 0
    minimum: float | None = None
    maximum: float | None = None
    scale: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        """Merge with the tally of other values."""
        if not self.count or not other.count:
            return self if self.count else other
        if self.scale != other.scale:
            raise ValueError(f"tallies of integers and floats: {self} and {other}")
        lows = [low for low in (self.minimum, other.minimum) if low is not None]
        highs = [high for high in (self.maximum, other.maximum) if high is not None]
        return Tally(
            count=self.count + other.count,
            total=self.total + other.total,
            squares=self.squares + other.squares,
            minimum=min(lows),
            maximum=max(highs),
            scale=self.scale,
        )

    def mean(self, exponent: int = 0) -> float:
        """Return the mean of the values times 10**exponent, rounded once."""
        return float(Fraction(self.total, self.count << self.scale) * power(exponent))

    def std(self, exponent: int = 0) -> float:
        """Return the population standard deviation of the values times 10**exponent."""
        spread = self.count * self.squares - self.total * self.total
        root = Fraction(spread, (self.count << self.scale) ** 2) * power(exponent) ** 2
        return _root(root.numerator, root.denominator)


def tally(values: NDArray[Any], counts: NDArray[np.int64] | None = None) -> Tally:
    """Sum values exactly.

    Args:
        values: [n] int64 or uint64, or float64 without NaN and infinities.
        counts: [n] int64: how often each occurs; None for once.

    Returns:
        The sums, whatever the order of the values.
    """
    if counts is not None:
        values, counts = values[counts > 0], counts[counts > 0]
    found = Tally()
    for start in range(0, len(values), _TOGETHER):
        part = values[start : start + _TOGETHER]
        times = None if counts is None else counts[start : start + _TOGETHER]
        found += _tally_part(part, times)
    return found


def _tally_part(values: NDArray[Any], counts: NDArray[np.int64] | None) -> Tally:
    count = len(values) if counts is None else int(counts.sum())
    low, high = values.min().item(), values.max().item()
    if values.dtype == np.float64:
        total, squares = _float_sums(values, counts)
        # A minimum of -0.0 or 0.0 would depend on the order of the values.
        low, high, scale = low + 0.0, high + 0.0, _FLOAT_SCALE
    else:
        total, squares = _integer_sums(values, counts, low)
        scale = 0
    return Tally(count=count, total=total, squares=squares, minimum=low, maximum=high, scale=scale)


def _integer_sums(
    values: NDArray[Any], counts: NDArray[np.int64] | None, low: int
) -> tuple[int, int]:
    """Return the sum and the sum of squares: of distances from the lowest, in halves of 32 bits."""
    times = None if counts is None else counts.astype(np.uint64)
    far = values.view(np.uint64) - np.uint64(low % (1 << 64))  # wraps to the distance
    high, rest = far >> np.uint64(32), far & np.uint64(0xFFFFFFFF)
    count = len(values) if counts is None else int(counts.sum())
    total = _sum(rest, times)
    squares = _sum(rest * rest, times)
    if high.any():
        total += _sum(high, times) << 32
        squares += (_sum(high * rest, times) << 33) + (_sum(high * high, times) << 64)
    return total + count * low, squares + 2 * low * total + count * low * low


def _sum(values: NDArray[np.uint64], counts: NDArray[np.uint64] | None) -> int:
    """Sum 64-bit numbers exactly: of fewer than 2**32 rows the halves cannot overflow."""
    high, rest = values >> np.uint64(32), values & np.uint64(0xFFFFFFFF)
    if counts is not None:
        high, rest = high * counts, rest * counts
    return (int(high.sum()) << 32) + int(rest.sum())


def _float_sums(values: NDArray[np.float64], counts: NDArray[np.int64] | None) -> tuple[int, int]:
    """Return the sum times 2**1127 and the sum of squares times 4**1127.

    A float is a mantissa of 53 bits times a power of two: pieces of at most 28 bits of those that
    share the power add up exactly in float64, as bincount adds.
    """
    if counts is not None and int(counts.sum()) > _MOST_COUNTED:
        few = _float_sums(values, counts & ((1 << _COUNT_BITS) - 1))
        many = _float_sums(values, counts >> _COUNT_BITS)
        return few[0] + (many[0] << _COUNT_BITS), few[1] + (many[1] << _COUNT_BITS)
    parts, powers = np.frexp(values)
    mantissas = np.abs(np.ldexp(parts, _FLOAT_BITS)).astype(np.int64)
    powers = powers.astype(np.int64) + (_FLOAT_SCALE - _FLOAT_BITS)
    high, low = mantissas >> 27, mantissas & ((1 << 27) - 1)  # 26 and 27 bits
    # (high * 2**27 + low)**2 as upper * 2**54 + lower, neither of them beyond 55 bits.
    across = high * low
    upper = high * high + (across >> 26)
    lower = ((across & ((1 << 26) - 1)) << 28) + low * low
    signs = np.where(values < 0, -1, 1) if counts is None else np.where(values < 0, -counts, counts)
    total = _sum_powers(powers, ((27, high), (0, low)), signs)
    mask = (1 << 28) - 1
    pieces = ((82, upper >> 28), (54, upper & mask), (28, lower >> 28), (0, lower & mask))
    return total, _sum_powers(2 * powers, pieces, np.abs(signs))


def _sum_powers(
    powers: NDArray[np.int64],
    pieces: Sequence[tuple[int, NDArray[np.int64]]],
    counts: NDArray[np.int64],
) -> int:
    """Return the sum of piece * count * 2**(shift + power) over pieces and values."""
    lowest = int(powers.min())
    places = powers - lowest
    total = 0
    for shift, piece in pieces:
        sums = np.bincount(places, weights=piece * counts)
        for place in np.flatnonzero(sums).tolist():
            total += int(sums[place]) << (shift + place)
    return total << lowest


def power(exponent: int) -> Fraction:
    """Return 10**exponent."""
    return Fraction(10) ** exponent


def _root(numerator: int, denominator: int) -> float:
    """Return the root of a fraction, rounded once.

    Source:
        Rounding to odd: Boldo and Melquiond, "When double rounding is odd", 2005.
    """
    if not numerator:
        return 0.0
    shift = (_ROOT_BITS * 2 + denominator.bit_length() - numerator.bit_length()) // 2
    shift = max(shift, 0)
    whole, left = divmod(numerator << (2 * shift), denominator)
    root = math.isqrt(whole)
    odd = root | (left > 0 or root * root != whole)
    return odd / (1 << shift)


def column_statistics(
    found: Tally, quantiles: tuple[float, ...], *, missing: int, infinite: int, exponent: int = 0
) -> ColumnStatistics:
    """Return the statistics of a column from its sums.

    Args:
        found: Sums over the finite values.
        quantiles: As `table_quantiles.quantiles` returns them; () without values.
        missing: Rows without a value.
        infinite: Rows whose value is infinite: counted, and part of nothing else.
        exponent: The values are those of the tally times 10**exponent.
    """
    if found.minimum is None or found.maximum is None:
        return ColumnStatistics(
            count=missing + infinite,
            missing=missing,
            mean=None,
            std=None,
            minimum=None,
            maximum=None,
            quantiles=(),
        )
    return ColumnStatistics(
        count=found.count + missing + infinite,
        missing=missing,
        mean=found.mean(exponent),
        std=found.std(exponent),
        minimum=scaled(found.minimum, exponent),
        maximum=scaled(found.maximum, exponent),
        quantiles=quantiles,
    )


def scaled(value: float, exponent: int) -> float:
    """Return a value times 10**exponent, rounded once; integers stay integers."""
    return value if exponent == 0 else float(Fraction(value) * power(exponent))
