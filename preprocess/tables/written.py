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
        columns: All columns of the records: whole numbers, with one of them in the places of all
            missing ones as `narrowed` puts it there, or dictionaries of text.
    """
    import pyarrow as pa

    count = len(columns[0])
    if lines + (data[-1:] not in {b"\n", b"\r"}) != count:
        return False  # empty lines, or line ends in quotes
    fields = len(data) - count * (len(columns) - 1)  # with the ends of lines
    length = 0
    large = False
    for column in columns:
        if pa.types.is_dictionary(column.type):
            length += _letters(column)
        else:
            digits, largest = _digits(column)
            length += digits
            large = large or largest >= _AS_SHORT
    ends = lines
    if length == fields - 2 * lines:  # of two bytes, perhaps
        array = np.frombuffer(data, np.uint8)
        ends = sum(int(np.count_nonzero(array == end)) for end in _ENDS)
    return length == fields - ends and not (large and _has_hexadecimal(data))


def _digits(column: Any) -> tuple[int, int]:
    """Return how long whole numbers are as text, all together, and the largest without its sign."""
    numbers = stored_numbers(column)
    if not len(numbers) - column.null_count:
        return 0, 0
    low, high = int(numbers.min()), int(numbers.max())
    length = len(numbers)
    if column.null_count:
        # All of them count as the number that stands in their places.
        length -= column.null_count * len(str(numbers[np.argmin(validity(column))]))
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


_ENDS = np.frombuffer(b"\r\n", np.uint8)
_X, _ZERO, _LOWER = np.frombuffer(b"x0 ", np.uint8)
