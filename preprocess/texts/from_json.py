"""JSON lines -> documents: by Arrow where all is well, record by record where it is not.

# NOTE [ Two readers, one answer ]
Arrow's parser reads several times as fast as Python's `json`, and releases the interpreter lock,
but it is not as strict: it takes several records on a line, records over several lines and bytes
that are not UTF-8, and it does not say which line is broken. So a block is read by Arrow only if
it is UTF-8, holds no NUL, and each of its lines begins with `{` and ends with `}`. Since strings
hold no raw newline, each line then ends where a record ends, and as many rows as lines means one
record a line. If Arrow refuses anything, or a row has no text, the block is read again record by
record, which decides alone what is an error and says why.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item
from preprocess.texts.arrays import (
    json_objects,
    json_of_numbers,
    json_of_strings,
    make_texts,
    valid_utf8,
)
from preprocess.texts.content import invalid_utf8
from preprocess.texts.documents import Documents, LineNumbers
from preprocess.texts.lines import Block, Lines, find_lines, read_blocks
from preprocess.texts.options import TextOptions
from preprocess.texts.records import BadRecord, Record, read_record

if TYPE_CHECKING:
    import pyarrow as pa

_OPEN: Final = ord("{")
_CLOSE: Final = ord("}")
_MAX_FAST_NBYTES: Final = (1 << 31) - 2
"""Arrow's parser counts the bytes of a block in 32 bits."""


def read_json(files: ItemFiles, item: Item, options: TextOptions) -> Iterator[Documents]:
    """Yield the documents of a file of JSON lines, or of a range of it.

    Raises:
        SampleError: The file cannot be read, is damaged, or holds one JSON value over many lines.
    """
    begun = item.start > 0
    for block in read_blocks(files, item, options):
        if block.too_long:
            yield block.refusal(item.key, options)
            continue
        lines = find_lines(block.data)
        if not len(lines.starts):
            continue
        if not begun:
            check_is_lines(block.data[lines.starts[0] : lines.stops[0]], item.key)
            begun = True
        documents = _read_fast(block, lines, options)
        if documents is None:
            documents = _read_exactly(block, lines, item.key, options)
        if len(documents.texts) or documents.errors:
            yield documents


def check_is_lines(first: bytes, key: str) -> None:
    """Refuse a file that is one value: as lines, it would give an error for each of them."""
    first = first.strip()
    opens = first in {b"{", b"["} or (first.startswith(b"[") and first.endswith(b","))
    if opens:
        what = "list" if first.startswith(b"[") else "object"
        raise SampleError(
            key, f"one JSON {what} over several lines, not JSON lines: write one object a line"
        )


def _read_fast(block: Block, lines: Lines, options: TextOptions) -> Documents | None:
    """Return the documents of a block in which nothing is doubtful; None for others."""
    import pyarrow as pa

    data = block.data
    array = np.frombuffer(data, np.uint8)
    if (
        options.json_values
        or len(data) > _MAX_FAST_NBYTES
        or not (array[lines.starts] == _OPEN).all()
        or not (array[lines.stops - 1] == _CLOSE).all()
        or b"\0" in data
        or not valid_utf8(data)
    ):
        return None
    types = _types(data[lines.starts[0] : lines.stops[0]], options)
    schema = None if types is None else _schema(types)
    if types is None or schema is None:
        return None
    try:
        table = _parse(data, schema)
        if len(table) != len(lines.starts):
            return None
        columns = {path: _column(table, path) for path in types}
        for column in columns.values():
            column.validate(full=True)
    except pa.ArrowException:
        return None
    texts = columns[_path(options.text_key)]
    pairs = columns[_path(options.pair_key)] if options.pair_key is not None else None
    if texts.null_count or (pairs is not None and pairs.null_count):
        return None
    metadata = _metadata(columns, options) if options.metadata_keys else None
    if options.metadata_keys and metadata is None:
        return None
    return Documents(
        texts=texts,
        places=lines.starts + block.offset,
        lines=LineNumbers(block.first_line, lines.numbers),
        pairs=pairs,
        metadata=metadata,
    )


def _path(key: str) -> tuple[str, ...]:
    return tuple(key.split("."))


def _types(first: bytes, options: TextOptions) -> dict[tuple[str, ...], Any] | None:
    """Return path -> Arrow type of all that is read, as the first record has it.

    Of a block whose other records differ, Arrow refuses the conversion; none is ever changed.
    """
    import pyarrow as pa

    keys = [options.text_key, *([] if options.pair_key is None else [options.pair_key])]
    types = dict.fromkeys(map(_path, keys), pa.large_string())
    if not options.metadata_keys:
        return types
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        return None
    strings = pa.large_string()
    known = {str: strings, type(None): strings, int: pa.int64(), bool: pa.bool_()}
    for key in options.metadata_keys:
        value = record
        for name in _path(key):
            value = value.get(name) if isinstance(value, dict) else None
        if type(value) not in known:
            return None
        types.setdefault(_path(key), known[type(value)])
    return types


def _schema(types: Mapping[tuple[str, ...], Any]) -> "pa.Schema | None":
    """Return the schema with these paths; None if one path goes on below another."""
    import pyarrow as pa

    tree: dict[str, Any] = {}
    for path in sorted(types):
        node = tree
        for name in path[:-1]:
            node = node.setdefault(name, {})
            if not isinstance(node, dict):
                return None
        if path[-1] in node:
            return None
        node[path[-1]] = types[path]

    def fields(node: dict[str, Any]) -> list[Any]:
        return [
            (name, pa.struct(fields(kind)) if isinstance(kind, dict) else kind)
            for name, kind in node.items()
        ]

    return pa.schema(fields(tree))


def _parse(data: bytes, schema: "pa.Schema") -> "pa.Table":
    import pyarrow as pa
    import pyarrow.json

    return pyarrow.json.read_json(
        pa.BufferReader(data),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema,
            newlines_in_values=False,
            unexpected_field_behavior="ignore",
        ),
    )


def _column(table: "pa.Table", path: Sequence[str]) -> Any:
    import pyarrow.compute as pc

    chunks = table.column(path[0])
    # Arrow copies even what is one chunk already.
    column = chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _metadata(columns: Mapping[tuple[str, ...], Any], options: TextOptions) -> Any:
    import pyarrow as pa

    values = []
    for key in options.metadata_keys:
        column = columns[_path(key)]
        if pa.types.is_large_string(column.type):
            values.append(json_of_strings(column))
        else:
            values.append(json_of_numbers(column))
    if any(value is None for value in values):
        return None
    return json_objects(options.metadata_keys, values)


def _read_exactly(block: Block, lines: Lines, key: str, options: TextOptions) -> Documents:
    """Return the good records of a block, and why each other one is refused."""
    records: list[Record] = []
    places: list[int] = []
    after: list[int] = []
    errors: list[SampleError] = []
    for line, place, number in lines.each(block):
        if not line.strip(b" \t\r"):
            continue
        try:
            records.append(read_record(_decoded(line, place, options), options))
        except BadRecord as error:
            errors.append(SampleError(f"{key}:{block.first_line() + number}", str(error)))
        else:
            places.append(place)
            after.append(number)
    return Documents(
        texts=make_texts([record.text for record in records]),
        places=np.array(places, np.int64),
        lines=LineNumbers(block.first_line, np.array(after, np.int64)),
        pairs=make_texts([record.pair for record in records]) if options.pair_key else None,
        metadata=(
            make_texts([record.metadata for record in records]) if options.metadata_keys else None
        ),
        errors=tuple(errors),
    )


def _decoded(line: bytes, place: int, options: TextOptions) -> str:
    if options.replaces:
        return line.decode(errors="replace")
    if fault := invalid_utf8(line):
        raise BadRecord(f"not valid UTF-8: {fault[1]} at byte {place + fault[0]:,}")
    return line.decode()
