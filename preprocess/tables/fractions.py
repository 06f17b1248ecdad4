"""Numbers that are to be whole, and are written like 1.0: which of them are not."""

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from preprocess.tables.columns import value_at
from preprocess.tables.options import TableOptions
from preprocess.tables.spill import Spilled, map_block
from preprocess.tables.text import plain_numbers
from preprocess.tables.values import column_array, texts_of

if TYPE_CHECKING:
    import pyarrow as pa

_LEAST, _END = -(1 << 63), 1 << 64
"""Whole numbers of 64 bits, with a sign or without."""


def first_fraction(spilled: Spilled, name: str, options: TableOptions) -> tuple[Any, str] | None:
    """Return the first number of a column that is no whole one of 64 bits, and its place."""
    for each in spilled.blocks:
        block = map_block(each)
        array = column_array(block.table, name)
        marked = np.flatnonzero(_are_fractions(array, options))
        if len(marked):
            row = int(marked[0])
            return value_at(array, row), f"{block.key}:{block.rows[row]}"
    return None


def _are_fractions(array: "pa.Array", options: TableOptions) -> NDArray[np.bool_]:
    """Mark the rows of numbers that are there and are not whole, [n] bool."""
    import pyarrow as pa

    if pa.types.is_floating(array.type):
        values = array.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            whole = (np.floor(values) == values) & (values >= _LEAST) & (values < _END)
        marked: NDArray[np.bool_] = ~whole & ~np.isnan(values)
        return marked
    if not pa.types.is_dictionary(array.type):
        return np.zeros(len(array), np.bool_)
    texts = texts_of(array)
    plain = plain_numbers(texts.values, options).to_pylist()
    return np.array([*(not _is_whole(text) for text in plain), False], np.bool_)[texts.index]


def _is_whole(text: str) -> bool:
    try:
        number = Decimal(text)
        return _LEAST <= number < _END and number == number.to_integral_value()
    except InvalidOperation:  # nan, or more places than any number of 64 bits has
        return False
