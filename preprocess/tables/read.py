"""Files of tables -> raw blocks: bytes of whole records, or ranges of rows, some MB at a time."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from preprocess.errors import SampleError
from preprocess.item_files import open_item
from preprocess.items import Item
from preprocess.tables.columns import fault_of_names, is_text, readable_columns, with_unread
from preprocess.tables.from_csv import NO_GUESS, Guess, guess_columns
from preprocess.tables.from_json import columns_of_sample
from preprocess.tables.int96 import unit_of_times
from preprocess.tables.listing import kind_of_item
from preprocess.tables.options import DELIMITERS, TableOptions
from preprocess.texts.content import open_text
from preprocess.texts.csv_rows import take_record
from preprocess.texts.from_arrow import named_faults, of_block_size, open_batches, open_table
from preprocess.texts.from_json import check_is_lines
from preprocess.texts.kinds import COMPRESSED_ENDINGS, Kind
from preprocess.texts.lines import find_lines
from preprocess.texts.lines import read_blocks as read_line_blocks
from preprocess.texts.options import TextOptions
from preprocess.texts.quotes import count_lines, numbered_records

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet

MAX_RECORD_NBYTES: Final = 16_000_000
"""Records of more bytes are refused by name: a quote that is never closed would end nowhere."""

BLOCK_NBYTES: Final = 1 << 23
"""Bytes of CSV, or of columns of Parquet, that one thread parses at a time: what each call costs is
nothing beside them."""

CHUNK_NBYTES: Final = 1 << 18
"""Bytes of CSV that are read at once: they are in the processor's cache when records are cut."""

_MAX_ROWS: Final = 1 << 16
_READ_NBYTES: Final = 1 << 20
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Stands for null in the names of folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawBlock:
    """Some rows of one file, not parsed.

    Attributes:
        key: The file.
        kind: "csv", "json" or "table".
        first: The line of the first record of CSV and JSON lines, the first row of others; from 1.
        after: CSV: the line that what follows the records begins in.
        data: Whole records of CSV, whole lines of JSON.
        table: Rows that Arrow has read.
        texts: Columns of it that are dictionaries, and plain text by their type in the file.
        names: CSV: the columns.
        unnamed: CSV: those that the header gives no name.
        delimiter: CSV: what stands between fields.
        guess: CSV: what the columns seemed to be at the beginning of the file, which makes parsing
            faster.
        guessed: JSON: columns at the beginning of the file, and whether they seemed to be strings:
            another guess.
        partitions: Columns that the names of the folders above give, with their values.
        too_long: JSON: bytes of a line that is left out for its length; then there are no data.
    """

    key: str
    kind: str
    first: int = 1
    after: int = 1
    data: bytes = b""
    table: "pa.Table | None" = None
    texts: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    unnamed: frozenset[str] = frozenset()
    delimiter: str = ","
    guess: Guess = NO_GUESS
    guessed: tuple[tuple[str, bool], ...] = ()
    partitions: tuple[tuple[str, str | None], ...] = ()
    too_long: int = 0


def read_blocks(root: Path, item: Item, options: TableOptions) -> Iterator[RawBlock]:
    """Yield the rows of a file, or of a range of it, in order.

    Raises:
        SampleError: The file as a whole is refused, even after some blocks: those do not count,
            since they are not all that it holds.
        SourceError: The machine is short of descriptors or memory, or lost the file system.
    """
    if item.nbytes == 0 and item.key.lower().endswith(COMPRESSED_ENDINGS):
        raise SampleError(item.key, "truncated: an empty file, which nothing compresses to")
    kind = kind_of_item(root, item)
    partitions = _partitions(item.key)
    if kind == "json":
        found = _read_json(root, item, options)
    elif kind == "parquet":
        found = _read_parquet(root, item, options)
    elif kind == "arrow":
        found = _read_arrow(root, item, options)
    else:
        found = _read_csv(root, item, options, kind)
    for block in found:
        yield replace(block, partitions=partitions) if partitions else block


def _partitions(key: str) -> tuple[tuple[str, str | None], ...]:
    """Return the columns that folders such as `year=2024` stand for."""
    found = {}
    for part in key.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if name and equals:
            found[unquote(name)] = None if value == _NO_VALUE else unquote(value)
    return tuple(found.items())


def _text_options(options: TableOptions) -> TextOptions:
    return TextOptions(encoding=options.encoding, max_document_nbytes=MAX_RECORD_NBYTES)


def _read_csv(
    root: Path, item: Item, options: TableOptions, kind: Kind | None
) -> Iterator[RawBlock]:
    with open_item(root, item) as file, named_faults(item.key):
        chunks = open_text(file, item.key, _text_options(options), CHUNK_NBYTES).chunks
        head = next(chunks, b"")
        within = options.decimal + (options.thousands or "")
        found = "\t" if kind == "tsv" else find_delimiter(head, within)
        delimiter = options.delimiter or found
        form: RawBlock | None = None
        for records in numbered_records(
            _ended(chain([head], chunks)), delimiter, item.key, MAX_RECORD_NBYTES, BLOCK_NBYTES
        ):
            line, rest = records.line, records.data
            if form is None:
                begin = rest.lstrip(b"\r\n")
                names, unnamed, begin = _take_names(begin, delimiter, f"{item.key}:{line}", options)
                if not names:
                    continue
                line += count_lines(rest, len(rest) - len(begin))
                rest = begin
                form = RawBlock(
                    key=item.key,
                    kind="csv",
                    names=names,
                    unnamed=unnamed,
                    delimiter=delimiter,
                    guess=guess_columns(rest, delimiter, len(names), options),
                )
            if rest:
                yield replace(form, first=line, after=records.after, data=rest)


def _ended(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes; the last line is ended if it is not, or it would be its own block."""
    before = b""
    for chunk in chunks:
        if before:
            yield before
        before = chunk
    if before:
        yield before if before.endswith((b"\n", b"\r")) else before + b"\n"


def find_delimiter(head: bytes, within: str = "") -> str:
    """Return what stands between the fields of the first record; a comma where that is in doubt.

    Marks that stand within numbers do so here too, if there is another one.
    """
    # What stands between quotes is taken out, whole lines with it.
    line = re.sub(rb'"[^"]*("|$)', b"", head.lstrip(b"\r\n"))
    line = re.split(rb"[\r\n]", line, maxsplit=1)[0]
    found = [mark for mark in DELIMITERS if mark.encode() in line]
    between = [mark for mark in found if mark not in within] or found
    return between[0] if len(between) == 1 else ","


def _take_names(
    data: bytes, delimiter: str, key: str, options: TableOptions
) -> tuple[tuple[str, ...], frozenset[str], bytes]:
    """Return the names of the columns, those that the header does not give, and the rows."""
    fields, rest = take_record(data, delimiter, key)
    if not options.header:
        fields, rest = [""] * len(fields), data
    names = tuple(name or f"column_{index}" for index, name in enumerate(fields, 1))
    _check_names(names, key)
    given = zip(fields, names, strict=True) if options.header else ()
    return names, frozenset(name for field, name in given if not field), rest


def _check_names(names: Sequence[str], key: str) -> None:
    if (fault := fault_of_names(names)) is not None:
        raise SampleError(key, fault)


def _read_json(root: Path, item: Item, options: TableOptions) -> Iterator[RawBlock]:
    text_options = _text_options(options)
    guessed: tuple[tuple[str, bool], ...] | None = None
    for block in read_line_blocks(root, item, text_options):
        raw = RawBlock(
            key=item.key,
            kind="json",
            first=block.first_line(),
            data=block.data,
            too_long=block.too_long,
        )
        lines = find_lines(block.data)
        if guessed is None and len(lines.starts):
            check_is_lines(block.data[lines.starts[0] : lines.stops[0]], item.key)
            sample = block.data[: lines.stops[:_SAMPLE_LINES][-1]]
            guessed = tuple(columns_of_sample(sample).items())
        if len(lines.starts) or block.too_long:
            yield replace(raw, guessed=guessed or ())


_SAMPLE_LINES: Final = 100


def _read_parquet(root: Path, item: Item, options: TableOptions) -> Iterator[RawBlock]:
    import pyarrow as pa
    import pyarrow.parquet

    with open_table(root, item) as source:
        schema = pyarrow.parquet.read_schema(source)
        _check_names(schema.names, item.key)
        wanted = readable_columns(schema, options, item.key)
        texts = _dictionaries(source, schema)
        with pyarrow.parquet.ParquetFile(
            source,
            buffer_size=_READ_NBYTES,
            pre_buffer=False,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit=unit_of_times(source, item, wanted),
            read_dictionary=texts,
        ) as file:
            count = file.metadata.num_row_groups
            groups = range(item.start, count if item.stop is None else item.stop)
            if groups.stop > count:
                raise SampleError(item.key, "changed while it was prepared: fewer row groups")
            sizes = [file.metadata.row_group(index).num_rows for index in range(groups.stop)]
            row = 1 + sum(sizes[: groups.start])
            if not sum(sizes[groups.start :]):
                return
            for batch in file.iter_batches(
                batch_size=_batch_rows(file, groups),
                row_groups=list(groups),
                columns=wanted,
                use_threads=False,
            ):
                table = with_unread(pa.Table.from_batches([batch]), schema, len(batch), options)
                raw = RawBlock(key=item.key, kind="table", first=row, table=table)
                yield replace(raw, texts=frozenset(texts))
                row += len(batch)
            if row != 1 + sum(sizes):
                raise SampleError(
                    item.key, f"ends before row {row:,}, and says that it has {sum(sizes):,}"
                )


def _dictionaries(source: Any, schema: "pa.Schema") -> list[str]:
    """Name the columns of text that are dictionaries in the file, at least where they begin."""
    import pyarrow.parquet

    metadata = pyarrow.parquet.read_metadata(source)
    source.seek(0)
    names = {field.name for field in schema if is_text(field.type)}
    others: set[str] = set()
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        for number in range(group.num_columns):
            column = group.column(number)
            if not _AS_DICTIONARY.issuperset(column.encodings):
                others.add(column.path_in_schema)
    return sorted(names - others)


_AS_DICTIONARY: Final = frozenset(
    {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
)
"""Encodings that Arrow can read as a dictionary."""


def _batch_rows(file: "pyarrow.parquet.ParquetFile", groups: range) -> int:
    """Return how many rows hold about a block: of a group of rows, parts of one size."""
    metadata = [file.metadata.row_group(index) for index in groups]
    rows: int = sum(group.num_rows for group in metadata)
    nbytes: int = sum(group.total_byte_size for group in metadata)
    wanted = max(1, min(_MAX_ROWS, rows * BLOCK_NBYTES // max(1, nbytes)))
    # What is left over at the end of a group would be a small block of its own.
    largest: int = max(group.num_rows for group in metadata)
    parts = max(round(largest / wanted), -(-largest // _MAX_ROWS))
    return -(-largest // parts) if largest > wanted else wanted


def _read_arrow(root: Path, item: Item, options: TableOptions) -> Iterator[RawBlock]:
    with open_table(root, item) as source:
        schema, batches = open_batches(source, item.key)
        _check_names(schema.names, item.key)
        wanted = readable_columns(schema, options, item.key)
        row = 1
        for part in of_block_size(batch.select(wanted) for batch in batches if len(batch)):
            for start in range(0, len(part), _MAX_ROWS):
                table = part.slice(start, _MAX_ROWS)
                count = len(table)
                table = with_unread(table, schema, count, options)
                yield RawBlock(key=item.key, kind="table", first=row, table=table)
                row += count
