"""Exact quantiles of more values than memory holds: histograms, refined pass by pass."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.table_statistics import QUANTILES
from preprocess.tables.column_statistics import power

Part = tuple[NDArray[Any], NDArray[np.int64] | None]
"""[n] int64, uint64 or finite float64 values, and [n] int64 counts; None for once."""

Stream = Callable[[], Iterable[Part]]
"""Gives all parts of a column, every time that it is called."""

HELD: Final = 1 << 22
"""Values that are held at a time: 32 MiB."""

_FIRST_BITS: Final = 20
_NEXT_BITS: Final = 16
"""Of the bins of one histogram, and of one of several: 8 MiB, and 512 KiB for each."""

_SIGN: Final = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class _Interval:
    """Values whose images are in first..last, and how many are below."""

    first: int
    last: int
    below: int
    count: int


def order_image(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Return integers that are in the same order as the values.

    Args:
        values: [n] int64, uint64, or float64 without NaN; -0.0 counts as 0.0.
    """
    if values.dtype == np.uint64:
        return values
    if values.dtype == np.int64:
        image: NDArray[np.uint64] = values.view(np.uint64) ^ _SIGN
        return image
    bits = (values + 0.0).view(np.uint64)
    # Negative floats are in falling order of their bits.
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def value_of_image(image: int, dtype: np.dtype[Any]) -> float:
    """Return the int64, uint64 or float64 value of an image."""
    sign = 1 << 63
    if dtype == np.uint64:
        return image
    if dtype == np.int64:
        return image - sign
    bits = image ^ sign if image & sign else image ^ (2 * sign - 1)
    return float(np.array([bits], np.uint64).view(np.float64)[0])


def quantiles(stream: Stream, count: int, exponent: int = 0) -> tuple[float, ...]:
    """Return the quantiles of values times 10**exponent, at `QUANTILES`.

    Between two neighbours in order they are interpolated, each rounded once.

    Args:
        stream: The values.
        count: How many there are.
        exponent: See above.

    Source:
        Definition 7 of Hyndman and Fan, "Sample quantiles in statistical packages", 1996, which is
        numpy.quantile's own.
    """
    ranks = _ranks(count)
    return _interpolated(order_statistics(stream, ranks), count, exponent) if count else ()


def quantiles_of_counted(
    values: NDArray[Any], counts: NDArray[np.int64], exponent: int = 0
) -> tuple[float, ...]:
    """Return the same of [k] values in rising order, and [k] int64 how often each occurs."""
    ends = np.cumsum(counts)
    count = int(ends[-1]) if len(ends) else 0
    ranks = _ranks(count)
    found = values[np.searchsorted(ends, ranks, side="right")].tolist() if count else []
    return _interpolated(dict(zip(ranks, found, strict=True)), count, exponent) if count else ()


def _places(count: int) -> list[Fraction]:
    return [Fraction(str(share)) * (count - 1) for share in QUANTILES]


def _ranks(count: int) -> list[int]:
    """Return which ranks the quantiles of so many values are made of, rising."""
    ranks = {int(place) for place in _places(count)}
    return sorted(ranks | {min(rank + 1, count - 1) for rank in ranks})


def _interpolated(found: Mapping[int, float], count: int, exponent: int) -> tuple[float, ...]:
    """Return the quantiles: between two neighbours in order, each rounded once."""
    exact = []
    for place in _places(count):
        rank = int(place)
        low, high = found[rank], found[min(rank + 1, count - 1)]
        exact.append(Fraction(low) + (place - rank) * (Fraction(high) - Fraction(low)))
    return tuple(float(value * power(exponent)) for value in exact)


def order_statistics(stream: Stream, ranks: Sequence[int], held: int = HELD) -> dict[int, float]:
    """Return which values have the given ranks, from 0, among all in rising order.

    Holds `held` values at most, and one histogram for each rank.

    Args:
        stream: The values; more than the largest rank.
        ranks: Rising.
        held: How many values may be held.
    """
    dtype, whole = _whole(stream)
    open_intervals = {whole: list(ranks)}
    found: dict[int, float] = {}
    while open_intervals:
        several = [each for each in open_intervals if each.first < each.last]
        bits = _FIRST_BITS if len(several) == 1 else _NEXT_BITS
        wide = any((each.last - each.first).bit_length() > bits for each in several)
        if wide and sum(each.count for each in several) <= held:
            images = _collected(stream, {each: open_intervals[each] for each in several})
            for interval, mine in open_intervals.items():
                for rank in mine:
                    image = interval.first
                    if interval.first < interval.last:
                        image = int(images[interval][rank - interval.below])
                    found[rank] = value_of_image(image, dtype)
            return found
        if several:
            open_intervals = _refined(stream, open_intervals, bits)
        for interval in [each for each in open_intervals if each.first == each.last]:
            for rank in open_intervals.pop(interval):
                found[rank] = value_of_image(interval.first, dtype)
    return found


def _whole(stream: Stream) -> tuple[np.dtype[Any], _Interval]:
    """Return the type of the values and the interval of all of them."""
    dtype = np.dtype(np.int64)
    first, last, count = (1 << 64) - 1, 0, 0
    for values, counts in stream():
        dtype = values.dtype
        there = values if counts is None else values[counts > 0]
        if len(there):
            images = order_image(np.array([there.min(), there.max()]))
            first, last = min(first, int(images[0])), max(last, int(images[1]))
            count += len(there) if counts is None else int(counts.sum())
    return dtype, _Interval(first, last, 0, count)


def _collected(
    stream: Stream, intervals: dict[_Interval, list[int]]
) -> dict[_Interval, NDArray[np.uint64]]:
    """Return the images of each interval, those of its ranks in their places of rising order."""
    parts: dict[_Interval, list[NDArray[np.uint64]]] = {each: [] for each in intervals}
    for values, counts in stream():
        images = order_image(values)
        for interval, mine in parts.items():
            inside = (images >= np.uint64(interval.first)) & (images <= np.uint64(interval.last))
            picked = images[inside]
            mine.append(picked if counts is None else np.repeat(picked, counts[inside]))
    # A third of the time that sorting takes.
    return {
        each: np.partition(np.concatenate(mine), [rank - each.below for rank in intervals[each]])
        for each, mine in parts.items()
    }


def _refined(
    stream: Stream, intervals: dict[_Interval, list[int]], bits: int
) -> dict[_Interval, list[int]]:
    """Return intervals of a 2**bits-th of the width, with the same ranks."""
    shifts = {each: max((each.last - each.first).bit_length() - bits, 0) for each in intervals}
    sums = {each: np.zeros(1 << bits, np.int64) for each in intervals}
    for values, counts in stream():
        images = order_image(values)
        for interval, histogram in sums.items():
            inside = (images >= np.uint64(interval.first)) & (images <= np.uint64(interval.last))
            bins = (images[inside] - np.uint64(interval.first)) >> np.uint64(shifts[interval])
            if counts is None:
                found = np.bincount(bins.astype(np.int64))
                histogram[: len(found)] += found
            else:
                np.add.at(histogram, bins.astype(np.int64), counts[inside])
    narrower: dict[_Interval, list[int]] = {}
    for interval, ranks in intervals.items():
        ends = np.cumsum(sums[interval])
        for rank in ranks:
            bin_ = int(np.searchsorted(ends, rank - interval.below, side="right"))
            before = int(ends[bin_ - 1]) if bin_ else 0
            first = interval.first + (bin_ << shifts[interval])
            last = min(interval.last, first + (1 << shifts[interval]) - 1)
            part = _Interval(first, last, interval.below + before, int(ends[bin_]) - before)
            narrower.setdefault(part, []).append(rank)
    return narrower
