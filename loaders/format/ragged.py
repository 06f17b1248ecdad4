"""Places of values that lie back to back, of samples of any length."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def ranges(starts: NDArray[Any], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `start, start + 1, ...` of each, as many as it counts, one after the other.

    Args:
        starts: [n] integers.
        counts: [n] int64, none negative.

    Returns:
        [sum of counts] int64.
    """
    ends = np.cumsum(counts, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    shifts = np.asarray(starts, np.int64) - (ends - counts)
    return np.asarray(np.arange(total, dtype=np.int64) + np.repeat(shifts, counts))


def filled_up(values: NDArray[Any], counts: NDArray[np.int64], length: int) -> NDArray[Any]:
    """Return lists as rows of one length.

    Args:
        values: [sum of counts] what they hold, one after the other.
        counts: [n] int64: values of each, at most `length`.
        length: Of a row.

    Returns:
        [n, length] of the dtype of the values; what a list lacks is missing: NaN, or code 0.
    """
    empty = np.nan if values.dtype.kind == "f" else 0
    rows = np.full((len(counts), length), empty, values.dtype)
    rows.reshape(-1)[ranges(np.arange(len(counts)) * length, counts)] = values
    return rows


def length_codes(counts: NDArray[np.int64], missing: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return how many values each list has as it is stored: 0 missing, 1 none, from 2 on."""
    return np.where(missing, 0, counts + 1)
