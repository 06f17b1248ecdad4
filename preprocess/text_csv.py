"""CSV and TSV -> rows: strict about quotes and about how many fields a row has."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from preprocess.documents import Documents
from preprocess.errors import SampleError
from preprocess.item_files import open_item
from preprocess.sources import Item
from preprocess.text_bytes import invalid_utf8, open_text
from preprocess.text_columns import Rows, documents_of, needed_keys, read_column
from preprocess.text_options import TextOptions
from preprocess.text_quotes import QuoteReader, whole_records
from preprocess.text_records import listed
from preprocess.text_tables import named_faults

_MAX_NBYTES: Final = (1 << 31) - 2
"""Arrow's parser counts the bytes of a block in 32 bits."""


def read_csv(root: Path, item: Item, options: TextOptions, delimiter: str) -> Iterator[Documents]:
    """Yield the documents of a table of text; rows are numbered from 1 below the header.

    Empty lines are no rows, and an empty field is an empty text. The file as a whole is refused
    where a quoted field goes on behind its closing quote, or is never closed: which field holds
    what would be a guess from there on (RFC 4180 section 2).

    Raises:
        SampleError: The file cannot be read, is damaged, or has no such columns; its quotes are
            not paired.
    """
    with open_item(root, item) as file, named_faults(item.key):
        text = open_text(file, item.key, options)
        names: list[str] = []
        done = 0
        for block in whole_records(text.chunks, delimiter, item.key, options.max_document_nbytes):
            data = block.lstrip(b"\r\n")
            if not names:
                names, data = _take_header(data, delimiter, item.key)
                _check_names(names, item.key, options)
            if not data:
                continue
            rows = _parse(data, names, delimiter, item.key, done, needed_keys(options))
            done += len(rows.numbers) + len(rows.errors)
            yield documents_of(rows, item.key, options)


def _take_header(data: bytes, delimiter: str, key: str) -> tuple[list[str], bytes]:
    """Return the names of the columns, and what follows them."""
    if not data:
        return [], data
    ends = QuoteReader(delimiter, key).ends(data)
    end = int(ends[0]) if len(ends) else len(data)
    if fault := invalid_utf8(data[:end]):
        raise SampleError(key, f"the header is not valid UTF-8: {fault[1]} at byte {fault[0]:,}")
    try:
        header = next(csv.reader(io.StringIO(data[:end].decode(), ""), delimiter=delimiter))
    except csv.Error as error:
        raise SampleError(key, f"the header cannot be read: {error}") from error
    return header, data[end:].lstrip(b"\r\n")


def _check_names(names: list[str], key: str, options: TextOptions) -> None:
    for name in needed_keys(options) if names else ():
        count = names.count(name)
        if count == 0:
            raise SampleError(key, f"no column {name!r}; the columns are {listed(names)}")
        if count > 1:
            raise SampleError(key, f"{count} columns are named {name!r}")


def _parse(
    data: bytes, names: list[str], delimiter: str, key: str, done: int, needed: tuple[str, ...]
) -> Rows:
    """Return the rows of whole records; those with too few or too many fields as errors."""
    import pyarrow as pa
    import pyarrow.csv

    if len(data) > _MAX_NBYTES:
        raise SampleError(key, f"row {done + 1:,} or one soon after has more than 2 GB")
    wrong: list[int] = []
    errors: list[SampleError] = []

    def leave_out(row: Any) -> str:
        wrong.append(row.number)
        reason = f"{row.actual_columns:,} fields, and the header has {row.expected_columns:,}"
        errors.append(SampleError(f"{key}:{done + row.number}", reason))
        return "skip"

    columns = {name: str(names.index(name)) for name in needed}
    table = pyarrow.csv.read_csv(
        pa.BufferReader(data),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False,
            block_size=len(data) + 1,
            column_names=[str(index) for index in range(len(names))],
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, invalid_row_handler=leave_out
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(columns.values()),
            column_types=dict.fromkeys(columns.values(), pa.large_binary()),
            strings_can_be_null=False,
            null_values=[],
        ),
    )
    numbers = np.arange(1, len(table) + len(wrong) + 1, dtype=np.int64)
    numbers = np.delete(numbers, np.array(wrong, np.int64) - 1) + done
    found = {name: read_column(table, (index,)) for name, index in columns.items()}
    return Rows(found, numbers, tuple(errors))
