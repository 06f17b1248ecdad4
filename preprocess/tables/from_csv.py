"""Records of CSV -> columns: text as it is written, whole numbers where nothing is lost by it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from preprocess.errors import SampleError
from preprocess.tables.columns import as_integers, whole
from preprocess.tables.dictionaries import invalid_rows
from preprocess.tables.options import TableOptions
from preprocess.texts.arrays import valid_utf8
from preprocess.texts.csv_rows import ParsedRows, parse_rows
from preprocess.texts.quotes import QuoteReader

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SAMPLE_NBYTES: Final = 1 << 16
"""Bytes at the beginning of a file that show which columns may be whole numbers."""


def find_integers(data: bytes, delimiter: str, count: int, options: TableOptions) -> frozenset[int]:
    """Return which columns seem to be whole numbers, from the first records.

    It is faster to read numbers as such than to look for distinct ones first. The result is a
    guess: what a column is does not depend on it.
    """
    import pyarrow as pa

    sample = data[:_SAMPLE_NBYTES]
    sample = sample[: QuoteReader(delimiter, "").last_end(sample)] if sample else b""
    if not sample or not valid_utf8(sample):
        return frozenset()
    types = dict.fromkeys(range(count), pa.string())
    table = parse_rows(sample, delimiter, count, types, options.null_values).table
    return frozenset(
        index for index in range(count) if as_integers(whole(table.column(index))) is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvBlock:
    """Whole records of one file.

    Attributes:
        key: Names the file in errors.
        data: The records.
        lines: Line ends in the data.
        names: Of all columns.
        delimiter: What stands between fields.
        integers: Columns that may be whole numbers.
    """

    key: str
    data: bytes
    lines: int
    names: tuple[str, ...]
    delimiter: str
    integers: frozenset[int]


def parse_csv(
    block: CsvBlock, options: TableOptions
) -> "tuple[dict[str, Any], NDArray[np.int64], list[tuple[int, str]]]":
    """Parse whole records.

    Returns:
        The columns that are read: dictionary<int32, large_string>, or int64 where every value is
        a canonical whole number; [N] after how many lines of the data each row begins; and such
        lines of records that are left out, in order, with the reasons.

    Raises:
        SampleError: The quotes are not paired.
    """
    import pyarrow as pa

    chosen = [index for index, name in enumerate(block.names) if name not in options.unread]
    valid = valid_utf8(block.data)
    text = pa.dictionary(pa.int32(), pa.large_string())
    types = {
        index: (pa.string() if index in block.integers else text) if valid else pa.large_binary()
        for index in chosen or [0]  # of no columns, Arrow would read all
    }
    count = len(block.names)
    rows = parse_rows(block.data, block.delimiter, count, types, options.null_values)
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


def smallest(column: Any) -> Any:
    """Return strings, or a dictionary of them: as int64 if all are whole numbers."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        found = as_integers(column)
        if found is not None:
            return found
        column = column.dictionary_encode()
        values = column.dictionary.cast(pa.large_string())
        return pa.DictionaryArray.from_arrays(column.indices, values)
    found = as_integers(column.dictionary)
    return column if found is None else found.take(column.indices)


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
