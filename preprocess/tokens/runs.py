"""Runs of tokens copied from one flat array to another: the step that all layouts share."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# Tokens that are moved at a time by index: three arrays of 8 bytes each, so 3 MiB.
_MOVED: Final = 1 << 17

# A slice costs about a microsecond and the interpreter's lock, an index 15 nanoseconds a token and
# no lock (measured): runs of this many tokens are copied as slices.
_LONG: Final = 256


def starts_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each run begins when runs of these lengths lie back to back.

    Args:
        counts: [N] lengths.

    Returns:
        [N + 1] int64 from 0; the last value is the sum.
    """
    starts = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


def copy_runs(
    out: NDArray[Any],
    out_starts: NDArray[np.int64],
    values: NDArray[Any],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """Copy `values[starts[i]:][:counts[i]]` to `out[out_starts[i]:]` for every i.

    Args:
        out: Flat array that is written; its dtype must hold every value (`check_ids`).
        out_starts: [N] places in `out`; the runs do not overlap there.
        values: Flat array that is read.
        starts: [N] places in `values`.
        counts: [N] lengths, 0 or more.
    """
    long = counts >= _LONG
    columns = [column[long].tolist() for column in (out_starts, starts, counts)]
    for target, source, count in zip(*columns, strict=True):
        out[target : target + count] = values[source : source + count]
    short = ~long
    out_starts, starts, counts = out_starts[short], starts[short], counts[short]
    ends = np.cumsum(counts)
    first = 0
    while first < len(counts):
        done = int(ends[first] - counts[first])
        last = max(first + 1, int(np.searchsorted(ends, done + _MOVED, side="right")))
        lengths = counts[first:last]
        before = ends[first:last] - lengths - done
        place = np.arange(int(ends[last - 1]) - done, dtype=np.int64)
        sources = np.repeat(starts[first:last] - before, lengths)
        sources += place
        targets = np.repeat(out_starts[first:last] - before, lengths)
        targets += place
        out[targets] = values[sources]
        first = last


def check_ids(ids: NDArray[Any], dtype: np.dtype[Any], name: str) -> None:
    """Refuse ids that `dtype` cannot hold: NumPy would wrap them without a word.

    Args:
        ids: Integers.
        dtype: What they will be stored as.
        name: What the ids are, for the message.

    Raises:
        ValueError: An id does not fit; the message names it.
    """
    if not len(ids):
        return
    limits = np.iinfo(dtype)
    ends = [ids.max()] if np.iinfo(ids.dtype).min == limits.min == 0 else [ids.max(), ids.min()]
    for value in map(int, ends):
        if not limits.min <= value <= limits.max:
            raise ValueError(f"{name}: id {value} does not fit {dtype} (up to {limits.max})")
