"""CSV and TSV -> rows: strict about quotes and about how many fields a row has."""

from collections.abc import Iterator

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item
from preprocess.texts.columns import Rows, documents_of, needed_keys, read_column
from preprocess.texts.content import open_text
from preprocess.texts.csv_rows import MAX_NBYTES, parse_rows, take_record
from preprocess.texts.documents import Documents
from preprocess.texts.from_arrow import named_faults
from preprocess.texts.options import TextOptions
from preprocess.texts.quotes import whole_records
from preprocess.texts.records import listed


def read_csv(
    files: ItemFiles, item: Item, options: TextOptions, delimiter: str
) -> Iterator[Documents]:
    """Yield the documents of a table of text; rows are numbered from 1 below the header.

    Empty lines are no rows, and an empty field is an empty text. The file as a whole is refused
    where a quoted field goes on behind its closing quote, or is never closed: which field holds
    what would be a guess from there on (RFC 4180 section 2).

    Raises:
        SampleError: The file cannot be read, is damaged, or has no such columns; its quotes are
            not paired.
    """
    with files.open(item) as file, named_faults(item.key):
        text = open_text(file, item.key, options)
        names: list[str] = []
        done = 0
        for block in whole_records(text.chunks, delimiter, item.key, options.max_document_nbytes):
            data = block.lstrip(b"\r\n")
            if not names:
                names, data = take_record(data, delimiter, item.key)
                _check_names(names, item.key, options)
            if not data:
                continue
            rows = _parse(data, names, delimiter, item.key, done, needed_keys(options))
            done += len(rows.numbers) + len(rows.errors)
            yield documents_of(rows, item.key, options)


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

    if len(data) > MAX_NBYTES:
        raise SampleError(key, f"row {done + 1:,} or one soon after has more than 2 GB")
    columns = {name: names.index(name) for name in needed}
    types = dict.fromkeys(columns.values(), pa.large_binary())
    rows = parse_rows(data, delimiter, len(names), types)
    errors = [SampleError(f"{key}:{done + 1 + row}", reason) for row, reason in rows.wrong]
    found = {name: read_column(rows.table, (str(index),)) for name, index in columns.items()}
    return Rows(found, rows.numbers + done + 1, tuple(errors))
