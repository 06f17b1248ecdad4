"""Files of tables -> raw blocks: bytes of whole records, or ranges of rows, some MB at a time."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Final
from urllib.parse import unquote

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.item_files import check_nbytes
from preprocess.items import Item
from preprocess.tables.columns import check_names
from preprocess.tables.from_csv import guess_columns
from preprocess.tables.from_json import columns_of_sample
from preprocess.tables.listing import kind_of_item
from preprocess.tables.options import DELIMITERS, TableOptions
from preprocess.tables.raw_block import RawBlock
from preprocess.tables.read_columns import read_arrow, read_parquet
from preprocess.texts.content import open_text
from preprocess.texts.csv_rows import take_record
from preprocess.texts.from_arrow import named_faults
from preprocess.texts.from_json import check_is_lines
from preprocess.texts.kinds import COMPRESSED_ENDINGS, Kind
from preprocess.texts.lines import find_lines
from preprocess.texts.lines import read_blocks as read_line_blocks
from preprocess.texts.options import TextOptions
from preprocess.texts.quotes import count_lines, numbered_records

MAX_RECORD_NBYTES: Final = 16_000_000
"""Records of more bytes are refused by name: a quote that is never closed would end nowhere."""

BLOCK_NBYTES: Final = 1 << 23
"""Bytes of CSV that one thread parses at a time: what each call costs is nothing beside them."""

CHUNK_NBYTES: Final = 1 << 18
"""Bytes of CSV that are read at once: they are in the processor's cache when records are cut."""

_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Stands for null in the names of folders."""


def read_blocks(files: ItemFiles, item: Item, options: TableOptions) -> Iterator[RawBlock]:
    """Yield the rows of a file, or of a range of it, in order.

    Raises:
        SampleError: The file as a whole is refused, even after some blocks: those do not count,
            since they are not all that it holds.
        SourceError: The machine is short of descriptors or memory, or lost the file system.
    """
    if item.nbytes == 0 and item.key.lower().endswith(COMPRESSED_ENDINGS):
        raise SampleError(item.key, "truncated: an empty file, which nothing compresses to")
    check_nbytes(item, options.max_item_nbytes)
    kind = kind_of_item(files.root, item)
    partitions = _partitions(item.key)
    if kind == "json":
        found = _read_json(files, item, options)
    elif kind == "parquet":
        found = read_parquet(files, item, options)
    elif kind == "arrow":
        found = read_arrow(files, item, options)
    else:
        found = _read_csv(files, item, options, kind)
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
    return TextOptions(
        encoding=options.encoding,
        max_document_nbytes=MAX_RECORD_NBYTES,
        max_item_nbytes=options.max_item_nbytes,
    )


def _read_csv(
    files: ItemFiles, item: Item, options: TableOptions, kind: Kind | None
) -> Iterator[RawBlock]:
    with files.open(item) as file, named_faults(item.key):
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
    check_names(names, key)
    given = zip(fields, names, strict=True) if options.header else ()
    return names, frozenset(name for field, name in given if not field), rest


def _read_json(files: ItemFiles, item: Item, options: TableOptions) -> Iterator[RawBlock]:
    text_options = _text_options(options)
    guessed: tuple[tuple[str, bool], ...] | None = None
    for block in read_line_blocks(files, item, text_options):
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
