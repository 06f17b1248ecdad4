"""What every reader of CSV shares: the header, and rows whose fields are counted."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from preprocess.errors import SampleError
from preprocess.texts.column_limit import check_column_count
from preprocess.texts.content import invalid_utf8
from preprocess.texts.quotes import QuoteReader

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

MAX_NBYTES: Final = (1 << 31) - 2
"""Arrow's parser counts the bytes of a block in 32 bits."""


_HEADER_NBYTES: Final = 1 << 16
"""Bytes in which nearly every header ends."""


@dataclass(frozen=True, slots=True)
class ParsedRows:
    """Some records of a table of text.

    Attributes:
        table: The columns that were asked for.
        numbers: [N] int64: which of the records each row is, from 0.
        wrong: Records that have too few or too many fields, from 0, and why.
    """

    table: "pa.Table"
    numbers: "NDArray[np.int64]"
    wrong: tuple[tuple[int, str], ...]


def take_record(data: bytes, delimiter: str, key: str) -> tuple[list[str], bytes]:
    """Return the fields of the first record, and what follows it.

    Args:
        data: Begins with the record; empty lines behind it belong to it.
        delimiter: What stands between fields.
        key: Names the file in errors.

    Raises:
        SampleError: It is not valid UTF-8, cannot be read as CSV, or has too many fields.
    """
    if not data:
        return [], data
    starts, _ = QuoteReader(delimiter, key).record_starts(data[:_HEADER_NBYTES])
    if len(starts) < 2 and len(data) > _HEADER_NBYTES:  # the first is that of the header
        starts, _ = QuoteReader(delimiter, key).record_starts(data)
    end = int(starts[1]) if len(starts) > 1 else len(data)
    # What stands in quotes may hold delimiters; before a header of millions is cut into strings.
    plain = re.sub(rb'"[^"]*"', b"", data[:end])
    check_column_count(plain.count(delimiter.encode()) + 1, key)
    if fault := invalid_utf8(data[:end]):
        raise SampleError(key, f"the header is not valid UTF-8: {fault[1]} at byte {fault[0]:,}")
    try:
        header = next(csv.reader(io.StringIO(data[:end].decode(), ""), delimiter=delimiter))
    except csv.Error as error:
        raise SampleError(key, f"the header cannot be read: {error}") from error
    return header, data[end:]


def parse_rows(
    data: bytes,
    delimiter: str,
    count: int,
    types: Mapping[int, Any],
    null_values: Sequence[str] | None = None,
) -> ParsedRows:
    """Parse whole records, and leave out those that have another number of fields.

    Args:
        data: The records, at most `MAX_NBYTES`; not proven to be UTF-8.
        delimiter: What stands between fields.
        count: Fields of a record.
        types: Number of each column that is wanted, from 0 -> its Arrow type.
        null_values: Fields that are null where they are not quoted; None for no nulls.

    Returns:
        Rows; the columns of the table are named by their numbers.
    """
    import pyarrow as pa
    import pyarrow.csv

    wrong: list[tuple[int, str]] = []

    def leave_out(row: Any) -> str:
        reason = f"{row.actual_columns:,} fields, and the header has {row.expected_columns:,}"
        wrong.append((row.number - 1, reason))
        return "skip"

    table = pyarrow.csv.read_csv(
        pa.BufferReader(data),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False,
            block_size=len(data) + 1,
            column_names=[str(index) for index in range(count)],
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=leave_out
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=[str(index) for index in types],
            column_types={str(index): kind for index, kind in types.items()},
            strings_can_be_null=null_values is not None,
            quoted_strings_can_be_null=False,
            null_values=list(null_values or ()),
            check_utf8=False,
        ),
    )
    numbers = np.arange(len(table) + len(wrong), dtype=np.int64)
    return ParsedRows(table, np.delete(numbers, [row for row, _ in wrong]), tuple(wrong))
