"""Raw blocks -> blocks of columns; pure, and free of the interpreter lock where it counts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from preprocess.errors import SampleError
from preprocess.tables.block import TEXT_KINDS, Block, Evidence
from preprocess.tables.columns import is_bytes, is_text, whole
from preprocess.tables.dictionaries import as_strings, encoded, invalid_rows
from preprocess.tables.evidence import Place, text_evidence, typed_evidence, unread_evidence
from preprocess.tables.from_csv import CsvBlock, parse_csv, smallest
from preprocess.tables.from_json import parse_json
from preprocess.tables.json_texts import JsonTexts, with_json_types
from preprocess.tables.options import TableOptions
from preprocess.tables.raw_block import RawBlock
from preprocess.tables.read import MAX_RECORD_NBYTES
from preprocess.tables.typed import as_held, kinds_of
from preprocess.texts.from_arrow import named_faults
from preprocess.texts.records import BadRecord

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_WRITTEN = {
    "integer": frozenset({"integer", "float", "string"}),
    "float": frozenset({"float", "string"}),
    "boolean": frozenset({"boolean", "string"}),
}
"""What numbers of CSV and JSON could be: also text, since the text of each is known."""

_OF_STRINGS = frozenset({"date", "datetime", "string"})
"""What values that are strings by their type could be, in JSON and in tables alike."""


def parse_block(raw: RawBlock, options: TableOptions, most: int | None = None) -> Block:
    """Parse a block, and look at its columns.

    Args:
        raw: The block.
        options: How numbers are written.
        most: Rows that are taken, from the first on; None for all.

    Raises:
        SampleError: The file as a whole is refused.
    """
    with named_faults(raw.key):
        if raw.kind == "csv":
            return _block(raw, *_csv_rows(raw, options), options, most)
        if raw.kind == "json":
            return _block(raw, *_json_rows(raw, options), options, most)
        return _block(raw, *_table_rows(raw), options, most)


_Rows = tuple[
    Mapping[str, Any], "NDArray[np.int64]", Sequence[tuple[int, str]], Mapping[str, JsonTexts]
]
"""Columns, the place of each row, those of what is left out with the reasons, and what columns of
JSON were that are texts for want of one type."""


def _csv_rows(raw: RawBlock, options: TableOptions) -> _Rows:
    found = CsvBlock(
        key=raw.key,
        data=raw.data,
        lines=raw.after - raw.first,
        names=raw.names,
        delimiter=raw.delimiter,
        guess=raw.guess,
    )
    columns, lines, wrong = parse_csv(found, options)
    return {name: columns.get(name) for name in raw.names}, lines, wrong, {}


def _json_rows(raw: RawBlock, options: TableOptions) -> _Rows:
    if raw.too_long:
        reason = f"{raw.too_long:,} bytes, a record may have {MAX_RECORD_NBYTES:,}"
        return {}, np.empty(0, np.int64), [(0, reason)], {}
    try:
        found, lines, wrong, texts = parse_json(raw.data, dict(raw.guessed), options.unread)
    except BadRecord as error:
        raise SampleError(raw.key, str(error)) from error
    if "" in found:
        raise SampleError(raw.key, "a key that is the empty string; give every column a name")
    columns = {n: None if n in options.unread else column for n, column in found.items()}
    return columns, lines, wrong, texts


def _table_rows(raw: RawBlock) -> _Rows:
    import pyarrow as pa

    table = raw.table if raw.table is not None else pa.table({})
    columns, bad = _held_columns(table, raw.key)
    rows = np.arange(len(table), dtype=np.int64)
    if bad:
        good = np.ones(len(table), bool)
        good[list(bad)] = False
        columns, _ = _held_columns(table.filter(pa.array(good)), raw.key)
        rows = rows[good]
    return columns, rows, sorted(bad.items()), {}


def _held_columns(table: "pa.Table", key: str) -> tuple[dict[str, Any], dict[int, str]]:
    """Return the columns, and rows with text that is not UTF-8: those are to be left out first.

    Bytes that are UTF-8 are text. Of others the first is left, to name its place.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns: dict[str, Any] = {}
    invalid: dict[str, Any] = {}
    for name in table.column_names:
        column = whole(table.column(name))
        kind = column.type
        if is_text(kind.value_type if pa.types.is_dictionary(kind) else kind):
            found = encoded(column, name, key)
            columns[name] = as_strings(found)
            if columns[name] is None:
                invalid[name] = found
        elif is_bytes(kind):
            found = encoded(column, name, key)
            columns[name] = as_strings(found)
            if columns[name] is None:
                first = pa.array(np.arange(len(found)) == min(invalid_rows({name: found})))
                columns[name] = pc.if_else(first, found.dictionary_decode(), None).cast(pa.binary())
        else:
            columns[name] = as_held(column, name, key)
    return columns, invalid_rows(invalid)


def _block(
    raw: RawBlock,
    columns: Mapping[str, Any],
    after: "NDArray[np.int64]",
    wrong: Sequence[tuple[int, str]],
    texts: Mapping[str, JsonTexts],
    options: TableOptions,
    most: int | None,
) -> Block:
    """Return a block of columns, of which those that are not read are None.

    Args:
        raw: Where they come from.
        columns: In the order of the file.
        after: [N] lines or rows before each row.
        wrong: The same of records that are left out, with the reasons.
        texts: Columns of JSON that are texts for want of one type -> what they were.
        options: How numbers are written.
        most: Rows that are taken.
    """
    import pyarrow as pa

    all_rows = after + raw.first
    if most is not None and len(after) > most:
        wrong = [(place, reason) for place, reason in wrong if place < after[most - 1]]
        columns = {name: _first(column, most) for name, column in columns.items()}
        after = after[:most]
    rows = all_rows[: len(after)]
    arrays = {name: pa.nulls(len(rows)) if c is None else c for name, c in columns.items()}
    for name, value in raw.partitions:
        values = pa.array([value] * len(rows), pa.large_string()).dictionary_encode()
        arrays.setdefault(name, smallest(values))

    def place(row: int) -> str:
        return f"{raw.key}:{all_rows[row]}"

    evidence: dict[str, Evidence] = {}
    of_folders = {name for name, _ in raw.partitions} - set(columns)
    for name, column in arrays.items():
        if raw.kind == "table" and name not in of_folders:
            evidence[name] = _evidence_of_table(raw, name, column, place, options)
        elif column.type == pa.null():
            evidence[name] = unread_evidence(len(rows))
        elif pa.types.is_dictionary(column.type):
            strings = raw.kind == "json" and name not in of_folders
            if name in texts and texts[name].are_numbers:
                strings = False
            allowed = _OF_STRINGS if strings else TEXT_KINDS
            evidence[name] = text_evidence(column, place, options, allowed)
        else:
            kinds = kinds_of(column.type)
            written = _WRITTEN.get(next(iter(kinds)), kinds)
            evidence[name] = typed_evidence(column, written, place)
    for name, types in texts.items():
        evidence[name] = with_json_types(evidence[name], types, place)
    evidence |= {name: replace(evidence[name], unnamed=raw.key) for name in raw.unnamed}
    errors = tuple(SampleError(f"{raw.key}:{raw.first + line}", reason) for line, reason in wrong)
    table = pa.table(list(arrays.values()), names=list(arrays))
    return Block(raw.key, table, rows, evidence, errors)


def _evidence_of_table(
    raw: RawBlock, name: str, column: Any, place: Place, options: TableOptions
) -> Evidence:
    """Look at a column that has a type in its file.

    Strings may be dates or times; what looks like a number has been made a string by somebody.
    """
    import pyarrow as pa

    if column.type == pa.null():
        return unread_evidence(len(column))
    found = typed_evidence(column, kinds_of(column.type), place)
    given = None if raw.table is None else raw.table.schema.field(name).type
    if given is None or not (is_text(given) or name in raw.texts):
        decoded = given is not None and is_bytes(given)
        return replace(found, from_bytes=decoded and found.is_typed)
    if found.missing == found.count:
        return replace(found, kinds=_OF_STRINGS, is_typed=False)
    times = text_evidence(column, place, options, _OF_STRINGS)
    return found if times.kinds == found.kinds else times


def _first(column: Any, most: int) -> Any:
    """Return the first rows of a column; of text, the values that are used in them."""
    import pyarrow as pa

    if column is None:
        return None
    part = column.slice(0, most)
    if pa.types.is_dictionary(part.type) and is_text(part.type.value_type):
        return part.dictionary_decode().dictionary_encode()
    return whole(part)
