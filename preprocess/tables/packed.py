"""Columns -> records, a few rows of all columns at a time."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_NBYTES: Final = 1 << 17
"""Of the records that are packed together: they stay in the cache from column to column, where a
whole block would be fetched once for each. A third of the time with 39 columns."""


def packed(columns: Mapping[str, NDArray[Any]], count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return [count] records of a structured dtype, C-contiguous.

    Args:
        columns: Name -> [count, ...] of the field's dtype; what has no name here is 0.
        count: Rows.
        dtype: Of the records.
    """
    records = np.zeros(count, dtype)
    pairs = []
    for name, column in columns.items():
        into = records[name]
        pairs.append((into, column.reshape(into.shape)))
    rows = max(1, _NBYTES // dtype.itemsize)
    for start in range(0, count, rows):
        part = slice(start, start + rows)
        for into, column in pairs:
            into[part] = column[part]
    return records
