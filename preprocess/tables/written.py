"""Whether the fields of CSV are what columns say of them: proven by their length, not one by one.

# NOTE [ Numbers read as numbers ]
Arrow reads whole numbers of CSV straight into int64, which costs less than text that is looked at
afterwards, but it takes 007, -0, 0x1F and blanks around a number as well. Every other way to write
a number is longer than `str` of it, but for large ones in hexadecimal digits, and these are looked
for. A missing value is nothing at all, or longer; and text is as long as it is written, or shorter
by its quotes. So if columns are together as long as the fields that they were read from, every one
of them can be given back as it was written.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from preprocess.tables.buffers import stored_numbers, validity
from preprocess.tables.columns import string_buffers

_AS_SHORT: Final = 10**6
"""Numbers from this on may be as short in hexadecimal digits, with 0x before them."""


def are_as_written(data: bytes, lines: int, columns: Sequence[Any]) -> bool:
    """Whether records have the very texts that their columns give, and no quotes around them.

    Args:
        data: The records.
        lines: Line ends in the data, those in quotes too.
        columns: All columns of the records: int64, or dictionary<int32, large_string>.
    """
    import pyarrow as pa

    count = len(columns[0])
    if lines + (data[-1:] not in {b"\n", b"\r"}) != count:
        return False  # empty lines, or line ends in quotes
    fields = len(data) - lines - count * (len(columns) - 1)
    length = 0
    large = False
    for column in columns:
        if pa.types.is_dictionary(column.type):
            length += _letters(column)
        else:
            digits, largest = _digits(column)
            length += digits
            large = large or largest >= _AS_SHORT
    if length == fields - lines:  # line ends of two bytes, perhaps
        array = np.frombuffer(data, np.uint8)
        fields -= int(np.count_nonzero(array == _RETURN))
    return length == fields and not (large and _has_hexadecimal(data))


def _digits(column: Any) -> tuple[int, int]:
    """Return how long whole numbers are as text, all together, and the largest without its sign."""
    numbers = stored_numbers(column)
    if column.null_count:
        numbers = np.where(validity(column), numbers, 0)
    low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    if low >= -(1 << 31) and high < 1 << 31:
        numbers = numbers.astype(np.int32)
    length = len(numbers) - column.null_count
    if low < 0:
        length += int(np.count_nonzero(numbers < 0))
    power, largest = 10, max(high, -low)
    while power <= largest:
        if power <= high:
            length += int(np.count_nonzero(numbers >= power))
        if low <= -power:
            length += int(np.count_nonzero(numbers <= -power))
        power *= 10
    return length, largest


def _letters(column: Any) -> int:
    """Return how many bytes texts have, all together."""
    _, starts, ends = string_buffers(column.dictionary)
    if not len(starts):
        return 0
    lengths = ends - starts
    first = int(lengths[0])
    if (lengths == first).all():
        return first * int(len(column) - column.null_count)
    indices = stored_numbers(column.indices)
    if column.null_count:
        indices = indices[validity(column.indices)]
    return int(lengths[indices].sum())


def _has_hexadecimal(data: bytes) -> bool:
    if b"x" not in data and b"X" not in data:
        return False
    array = np.frombuffer(data, np.uint8)
    places = np.flatnonzero((array | _LOWER) == _X)
    return bool((array[places[places > 0] - 1] == _ZERO).any())


_RETURN, _X, _ZERO, _LOWER = np.frombuffer(b"\rx0 ", np.uint8)
