"""Records of CSV -> columns: text as it is written, whole numbers where nothing is lost by it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from preprocess.errors import SampleError
from preprocess.tables.buffers import narrowed, whole_range
from preprocess.tables.columns import as_integers, whole
from preprocess.tables.dictionaries import invalid_rows
from preprocess.tables.options import TableOptions
from preprocess.tables.written import are_as_written
from preprocess.texts.arrays import valid_utf8
from preprocess.texts.csv_rows import ParsedRows, parse_rows
from preprocess.texts.quotes import QuoteReader, count_lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SAMPLE_NBYTES: Final = 1 << 16
"""Bytes at the beginning of a file that show which columns may be whole numbers."""


@dataclass(frozen=True, slots=True)
class Guess:
    """What the first records of a file look like: what a column is does not depend on it.

    Attributes:
        integers: Numbers of the columns that seem to be whole numbers: it is faster to read them
            as such than to look for distinct ones first.
        plain: Whether all fields are as their values are written: nothing is in quotes, and
            nothing but an empty field stands for none.
    """

    integers: frozenset[int] = frozenset()
    plain: bool = False


NO_GUESS: Final = Guess()


def guess_columns(data: bytes, delimiter: str, count: int, options: TableOptions) -> Guess:
    """Look at the first records of a file."""
    import pyarrow as pa

    sample = data[:_SAMPLE_NBYTES]
    sample = sample[: QuoteReader(delimiter, "").last_end(sample)] if sample else b""
    if not sample or not valid_utf8(sample):
        return NO_GUESS
    types = dict.fromkeys(range(count), pa.string())
    table = parse_rows(sample, delimiter, count, types, options.null_values).table
    columns = [whole(table.column(index)) for index in range(count)]
    numbers = [as_integers(column) for column in columns]
    read = [
        column.dictionary_encode() if found is None else _narrow(found)
        for column, found in zip(columns, numbers, strict=True)
    ]
    plain = are_as_written(sample, count_lines(sample, len(sample)), read)
    return Guess(frozenset(i for i, found in enumerate(numbers) if found is not None), plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvBlock:
    """Whole records of one file.

    Attributes:
        key: Names the file in errors.
        data: The records.
        lines: Line ends in the data.
        names: Of all columns.
        delimiter: What stands between fields.
        guess: What the columns may be.
    """

    key: str
    data: bytes
    lines: int
    names: tuple[str, ...]
    delimiter: str
    guess: Guess


def parse_csv(
    block: CsvBlock, options: TableOptions
) -> "tuple[dict[str, Any], NDArray[np.int64], list[tuple[int, str]]]":
    """Parse whole records.

    Returns:
        The columns that are read: dictionary<int32, large_string>, or the narrowest signed type
        where every value is a canonical whole number; [N] after how many lines of the data each
        row begins; and such lines of records that are left out, in order, with the reasons.

    Raises:
        SampleError: The quotes are not paired.
    """
    import pyarrow as pa

    chosen = [index for index, name in enumerate(block.names) if name not in options.unread]
    valid = valid_utf8(block.data)
    rows = _plain_rows(block, options) if valid and len(chosen) == len(block.names) else None
    if rows is None:
        text = pa.dictionary(pa.int32(), pa.large_string())
        number = pa.string()  # which shows how it is written
        types = {
            index: (number if index in block.guess.integers else text)
            if valid
            else pa.large_binary()
            for index in chosen or [0]  # of no columns, Arrow would read all
        }
        rows = _rows(block, types, options)
    lines = _lines(block, rows)
    wrong = [(int(lines[number]), reason) for number, reason in rows.wrong]
    found = {block.names[index]: whole(rows.table.column(str(index))) for index in chosen}
    numbers = rows.numbers
    if not valid:
        bad = invalid_rows(found)
        wrong += [(int(lines[numbers[row]]), reason) for row, reason in bad.items()]
        wrong.sort()
        good = np.ones(len(numbers), bool)
        good[list(bad)] = False
        numbers = numbers[good]
        found = {name: whole(column.filter(pa.array(good))) for name, column in found.items()}
        found = {name: column.view(pa.large_string()) for name, column in found.items()}
    columns = {name: smallest(column) for name, column in found.items()}
    return columns, lines[numbers], wrong


def _rows(block: CsvBlock, types: Mapping[int, Any], options: TableOptions) -> ParsedRows:
    count = len(block.names)
    return parse_rows(block.data, block.delimiter, count, types, options.null_values)


def _plain_rows(block: CsvBlock, options: TableOptions) -> ParsedRows | None:
    """Read numbers as such: see NOTE [ Numbers read as numbers ]; None if that would lose any."""
    import pyarrow as pa

    if not block.guess.plain or b'"' in block.data:
        return None  # quotes are no part of a value: it would be parsed twice
    text = pa.dictionary(pa.int32(), pa.large_string())
    integers = block.guess.integers
    kinds = {i: pa.int64() if i in integers else text for i in range(len(block.names))}
    try:
        rows = _rows(block, kinds, options)
    except pa.ArrowInvalid:  # no number, or a table that the other way refuses as well
        return None
    columns = [_narrow(whole(column)) for column in rows.table.columns]
    if rows.wrong or not are_as_written(block.data, block.lines, columns):
        return None
    return replace(rows, table=pa.table(columns, names=rows.table.column_names))


def _narrow(column: Any) -> Any:
    """Return whole numbers in the narrowest type; what is none, or has no value, as it is."""
    import pyarrow as pa

    bounds = whole_range(column) if pa.types.is_integer(column.type) else None
    return column if bounds is None else narrowed(column, bounds)


def smallest(column: Any) -> Any:
    """Return strings, or a dictionary of them: if all are whole numbers, these in few bytes."""
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        # Where there is no value, there is nothing that must be a number.
        return column if column.null_count < len(column) else smallest(column.cast(pa.string()))
    if not pa.types.is_dictionary(column.type):
        found = as_integers(column)
        if found is not None:
            return _narrow(found)
        column = column.dictionary_encode()
        values = column.dictionary.cast(pa.large_string())
        return pa.DictionaryArray.from_arrays(column.indices, values)
    found = as_integers(column.dictionary)
    return column if found is None else _narrow(found.take(column.indices))


def _lines(block: CsvBlock, rows: ParsedRows) -> "NDArray[np.int64]":
    """Return after how many lines each record begins."""
    count = len(rows.numbers) + len(rows.wrong)
    # Empty lines, and line ends within quotes, both make more lines than records.
    if block.lines + (block.data[-1:] not in {b"\n", b"\r"}) == count:
        return np.arange(count, dtype=np.int64)
    _, lines = QuoteReader(block.delimiter, block.key).record_starts(block.data)
    if len(lines) != count:
        reason = f"{len(lines):,} records, of which {count:,} could be read"
        raise SampleError(block.key, reason)
    return lines
