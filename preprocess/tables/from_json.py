"""JSON lines -> columns: by Arrow where all is well, record by record where it is not.

`text_json` says how one reader checks the other. Numbers stay what they are: Arrow turns whole
numbers beyond int64, and all those of a column with decimal places, into float64, so that a block
in which that could have changed one is read record by record.
"""

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from preprocess.tables.columns import is_readable, is_text, whole
from preprocess.tables.dictionaries import encoded
from preprocess.tables.json_columns import fault_of_keys
from preprocess.tables.json_depth import are_objects, may_be_deep
from preprocess.tables.json_texts import JsonTexts, json_texts_of
from preprocess.tables.json_values import EXACT, column_of_values
from preprocess.tables.structs import (
    fault_of_structs,
    flat_record,
    flattened,
    is_struct,
    leaves,
    structs_of,
)
from preprocess.texts.arrays import valid_utf8
from preprocess.texts.content import invalid_utf8
from preprocess.texts.json_keys import Doubtful
from preprocess.texts.lines import Lines, find_lines
from preprocess.texts.records import BadRecord, dump_json, read_object, refuse_doubt

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_NO_KEYS: Final = re.compile(rb"^[ \t]*\{[ \t]*\}", re.MULTILINE)


def columns_of_sample(data: bytes) -> "dict[str, bool]":
    """Return the columns of the first lines of a file in order, and whether they seem strings.

    A guess: what a column is does not depend on it.
    """
    import pyarrow as pa

    lines = find_lines(data)
    if may_be_deep(data, lines) or fault_of_keys(data, lines) is not None:
        return {}
    try:
        schema = _parse(data, {}).schema
    except pa.ArrowException:
        return {}
    # What is in objects follows its own column; a guess of its type would name another one.
    return {
        name: (is_text(kind) or pa.types.is_timestamp(kind)) and name == field.name
        for field in schema
        for name, kind in leaves(field.name, field.type, ()).items()
    }


def parse_json(
    data: bytes, guessed: dict[str, bool], unread: Collection[str] = ()
) -> "tuple[dict[str, Any], NDArray[np.int64], list[tuple[int, str]], dict[str, JsonTexts]]":
    """Parse whole lines, each one object; objects in it are columns with a dot in their names.

    Args:
        data: The lines.
        guessed: Columns that are there in this order, if they are, and whether they seem strings.
        unread: Columns of objects that are left as they are.

    Returns:
        The columns; [N] after how many lines of the data each row stands; such lines of records
        that are left out, with the reasons; and what the columns were that are texts for want of
        one type. Lists of lists are of their type, which no table holds.

    Raises:
        BadRecord: The records would be too many columns.
    """
    import pyarrow as pa

    lines = find_lines(data)
    if (fault := fault_of_keys(data, lines)) is not None:
        raise BadRecord(fault)
    found = _read_fast(data, lines, guessed, unread)
    wrong: list[tuple[int, str]] = []
    texts: dict[str, JsonTexts] = {}
    numbers = lines.numbers
    if found is None:
        found, numbers, wrong, texts = _read_exactly(data, lines, unread)
    for name in [name for name, column in found.items() if pa.types.is_null(column.type)]:
        if any(other.startswith(f"{name}.") for other in guessed):
            del found[name]  # an object that no record here has
    order = [name for name in guessed if name in found]
    order += [name for name in found if name not in guessed]
    return {name: found[name] for name in order}, numbers, wrong, texts


def _read_fast(
    data: bytes, lines: Lines, guessed: dict[str, bool], unread: Collection[str]
) -> "dict[str, Any] | None":
    """Return the columns of a block in which nothing is doubtful; None for others."""
    import pyarrow as pa

    if (
        not are_objects(data, lines)
        or may_be_deep(data, lines)
        or b"\0" in data
        or _NO_KEYS.search(data)
        or not valid_utf8(data)
    ):
        return None
    strings = {name: pa.string() for name, seems in guessed.items() if seems}
    try:
        table = _parse(data, strings)
        # Arrow takes strings that look like times for times, whose text is lost.
        times = {f.name: _without_times(f.type) for f in table.schema if _has_times(f.type)}
        if times:
            table = _parse(data, {**strings, **times})
    except pa.ArrowException:
        return None
    if len(table) != len(lines.starts) or len(set(table.column_names)) < table.num_columns:
        return None
    if any(is_struct(field.type) for field in table.schema):
        if fault_of_structs(table.schema, unread) is not None:
            return None
        table = flattened(table, unread)
        if any(_has_times(field.type) for field in table.schema):
            return None
    # Of a list that begins with null and is the first with a value, Arrow 26 loses one of these.
    if any(_is_broken(table.column(name)) for name in table.column_names):
        return None
    found = {name: whole(table.column(name)) for name in table.column_names}
    if any(_may_have_changed(column) for column in found.values()):
        return None
    return {name: _plain(column) for name, column in found.items()}


def _parse(data: bytes, types: "dict[str, Any]") -> "pa.Table":
    import pyarrow as pa
    import pyarrow.json

    return pyarrow.json.read_json(
        pa.BufferReader(data),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(types) if types else None, newlines_in_values=False
        ),
    )


def _has_times(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_timestamp(kind)
        or (pa.types.is_list(kind) and pa.types.is_timestamp(kind.value_type))
    )


def _without_times(kind: "pa.DataType") -> "pa.DataType":
    import pyarrow as pa

    return pa.list_(pa.string()) if pa.types.is_list(kind) else pa.string()


def _is_broken(column: Any) -> bool:
    """Whether lists end behind the values that there are."""
    import pyarrow as pa

    try:
        column.validate()
    except pa.ArrowInvalid:
        return True
    return False


def _may_have_changed(column: Any) -> bool:
    """Whether a number may be another than what is written."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_list(column.type):
        return _may_have_changed(pc.list_flatten(column))
    if not pa.types.is_floating(column.type):
        return False
    largest = pc.max(pc.abs(column)).as_py()
    return largest is not None and not largest < EXACT


def _plain(column: Any) -> Any:
    """Return strings as a dictionary, and a column of nulls alone as of no type."""
    import pyarrow as pa

    if column.null_count == len(column) and is_readable(column.type):
        return pa.nulls(len(column))
    if not is_text(column.type):
        return column
    found = encoded(column, "", "")
    values = found.dictionary.view(pa.large_string())
    return pa.DictionaryArray.from_arrays(found.indices, values)


def _read_exactly(
    data: bytes, lines: Lines, unread: Collection[str]
) -> "tuple[dict[str, Any], NDArray[np.int64], list[tuple[int, str]], dict[str, JsonTexts]]":
    """Return the good records of a block, and why each other one is left out; as `parse_json`."""
    import pyarrow as pa

    records: list[dict[str, Any]] = []
    numbers: list[int] = []
    wrong: list[tuple[int, str]] = []
    for start, stop, number in zip(
        lines.starts.tolist(), lines.stops.tolist(), lines.numbers.tolist(), strict=True
    ):
        line = data[start:stop]
        if not line.strip(b" \t\r"):
            continue
        try:
            record = _record(line, unread)
            dump_json(record).encode()
        except UnicodeEncodeError:
            wrong.append((number, "a lone surrogate, which is no letter"))
        except RecursionError:
            wrong.append((number, "JSON that is nested too deeply"))
        except BadRecord as error:
            wrong.append((number, str(error)))
        else:
            if record:
                records.append(record)
                numbers.append(number)
            else:
                wrong.append((number, "an object without keys"))
    if structs := structs_of(records, unread):
        try:
            records = [flat_record(record, structs) for record in records]
        except KeyError as error:
            raise BadRecord(
                f"two columns are named {error.args[0]!r} once objects are columns; rename one, or "
                "leave the object out with --ignore"
            ) from error
    names = dict.fromkeys(name for record in records for name in record)
    values = {name: [record.get(name) for record in records] for name in names}
    found = {name: column_of_values(each) for name, each in values.items()}
    are_texts = [name for name, each in found.items() if pa.types.is_dictionary(each.type)]
    looks = ((name, json_texts_of(values[name])) for name in are_texts)
    texts = {name: look for name, look in looks if look is not None}
    return found, np.array(numbers, np.int64), wrong, texts


def _record(line: bytes, unread: Collection[str]) -> dict[str, Any]:
    """Return the object of a line, in no doubt but for columns that are not read.

    Raises:
        BadRecord: It is none.
    """
    record = read_object(_decoded(line))
    if isinstance(record, Doubtful):
        refuse_doubt(record, [[key] for key in record if key not in unread])
        return dict(record)
    return record


def _decoded(line: bytes) -> str:
    if fault := invalid_utf8(line):
        raise BadRecord(f"not valid UTF-8: {fault[1]} at byte {fault[0]:,} of the line")
    return line.decode()
