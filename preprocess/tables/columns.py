"""Columns as Arrow has read them: which are read at all, and what their values are."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from loaders.format.records import NAME_RULE, is_name
from preprocess.errors import SampleError, SourceError
from preprocess.tables.options import TableOptions
from preprocess.tables.ordinals import refuse_ordinals
from preprocess.tables.structs import fault_of_structs, flattened, leaves
from preprocess.texts.records import listed

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


LETTERS_SHOWN: Final = 60
"""Of a name that is too long, in a message."""


def is_text(kind: "pa.DataType") -> bool:
    """Whether a type is that of strings."""
    import pyarrow as pa

    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: "pa.DataType") -> bool:
    """Whether a type is that of bytes of any length, or of a dictionary of them."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return is_bytes(kind.value_type)
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def is_readable(kind: "pa.DataType") -> bool:
    """Whether a column of a type can be in a table of numbers, words and lists of them."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        inner = kind.value_type
        return is_readable(inner) and not types.is_nested(inner)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = kind.value_type
        return bool(
            types.is_integer(inner)
            or types.is_floating(inner)
            or types.is_boolean(inner)
            or types.is_date(inner)
            or types.is_timestamp(inner)
            or types.is_null(inner)
            or is_text(inner)
        )
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
        or types.is_time(kind)
        or types.is_decimal(kind)
        or types.is_null(kind)
        or is_text(kind)
        or is_bytes(kind)
    )


def fault_of_names(names: Sequence[str]) -> str | None:
    """Say why columns cannot have these names, if they cannot."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        return f"several columns are named {listed(twice)}; give every column a name of its own"
    for number, name in enumerate(names, 1):
        if not name:
            return f"column {number} has no name"
        if not is_name(name):
            return (
                f"column {number} is called {listed([name[:LETTERS_SHOWN]])}, expected {NAME_RULE}"
            )
    return None


def check_names(names: Sequence[str], key: str) -> None:
    """Refuse a file, which `key` names, whose columns cannot have these names.

    Raises:
        SampleError: That is so.
    """
    if (fault := fault_of_names(names)) is not None:
        raise SampleError(key, fault)


def readable_columns(schema: "pa.Schema", options: TableOptions, key: str) -> list[str]:
    """Name the columns that are read; `key` names the file.

    Raises:
        SourceError: One of them would be stored as something else, or two as one.
    """
    refuse_ordinals(schema, options, key)
    unread = options.unread
    if (fault := fault_of_structs(schema, unread)) is not None:
        raise SourceError(f"{key}: {fault}")
    return [field.name for field in schema if field.name not in unread and _is_read(field, unread)]


def _is_read(field: "pa.Field", unread: Collection[str]) -> bool:
    """Whether all that a column becomes can be read, or is ignored."""
    parts = leaves(field.name, field.type, unread)
    return all(name in unread or is_readable(kind) for name, kind in parts.items())


def with_unread(
    table: "pa.Table", schema: "pa.Schema", count: int, options: TableOptions
) -> "pa.Table":
    """Return all columns of a file, those that are not read as nulls.

    Structs are a column for each of their fields. Of ignored columns the type does not matter: they
    are of no type.
    """
    import pyarrow as pa

    read, unread = set(table.column_names), options.unread
    columns: dict[str, Any] = {}
    for field in schema:
        if field.name in read:
            columns[field.name] = table.column(field.name)
            continue
        for name, kind in leaves(field.name, field.type, unread).items():
            columns[name] = pa.nulls(count) if name in unread else _nulls(count, kind)
    found = flattened(pa.table([*columns.values()], names=[*columns]), unread)
    for place, name in enumerate(found.column_names):
        if name in options.unread and name not in schema.names:
            found = found.set_column(place, name, pa.nulls(count))
    return found


def _nulls(count: int, kind: "pa.DataType") -> Any:
    """Return nulls that tell a type and take as little however wide its values are.

    What no table holds is a dictionary of it: a few bytes of a file may say that each value has a
    million.
    """
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if not is_readable(kind):
        return pa.DictionaryArray.from_arrays(pa.nulls(count, pa.int8()), pa.nulls(0, kind))
    if pa.types.is_fixed_size_list(kind):
        kind = pa.list_(kind.value_field)
    return pa.nulls(count, kind)


def whole(column: Any) -> Any:
    """Return a column of a table as one array that begins where its memory does."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1 and not column.chunk(0).offset:
            return column.chunk(0)
        if pa.types.is_dictionary(column.type):
            column = column.unify_dictionaries()
        return pa.concat_arrays(column.chunks) if column.num_chunks else _empty(column.type)
    return pa.concat_arrays([column]) if column.offset else column


def _empty(kind: "pa.DataType") -> Any:
    import pyarrow as pa

    return pa.nulls(0, kind)


def list_counts(array: Any) -> "NDArray[np.int64]":
    """Return how many values each list has, [n] int64; none where it is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.int64)
    counts = pc.list_value_length(array).cast(pa.int64()).fill_null(0)
    return np.asarray(counts.to_numpy(zero_copy_only=False))


def value_at(array: Any, row: int) -> Any:
    """Return a value for a message: times that Python has not as their numbers.

    Of a long list only the first values, more than a message shows: it may have millions.
    """
    import pyarrow as pa

    scalar = array[row]
    if isinstance(scalar, pa.ListScalar) and scalar.is_valid and len(scalar) > LETTERS_SHOWN:
        return [value_at(scalar.values, index) for index in range(LETTERS_SHOWN)]
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar.value


def string_buffers(
    values: Any,
) -> "tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]":
    """Return the bytes of strings, and where each begins and ends in them.

    Args:
        values: Array of string or large_string, of 4 or 8 bytes a place.
    """
    import pyarrow as pa

    width: Any = np.int64 if pa.types.is_large_string(values.type) else np.int32
    _, places, data = values.buffers()
    if data is None or not len(values):
        nothing = np.zeros(len(values), np.int64)
        return np.empty(0, np.uint8), nothing, nothing
    offsets = np.frombuffer(places, width, values.offset + len(values) + 1)[values.offset :]
    return np.frombuffer(data, np.uint8), offsets[:-1], offsets[1:]


def as_integers(values: Any) -> Any:
    """Return strings as int64 if every value is what `str` gives of one, else None.

    Args:
        values: Strings; nulls stay nulls. Only nulls give None.
    """
    import pyarrow as pa

    if values.null_count == len(values) or not _begins_with_number(values):
        return None
    try:
        numbers = values.cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    return numbers if _are_canonical(*string_buffers(values)) else None


def _begins_with_number(values: Any) -> bool:
    """Whether the first value, which is one of many mostly, could be a whole number."""
    first = values[0].as_py()
    return first is None or first.removeprefix("-").isdecimal()


def _are_canonical(data: "NDArray[np.uint8]", starts: "NDArray[Any]", ends: "NDArray[Any]") -> bool:
    """Whether strings that are numbers to Arrow are canonical: 007, -0 and 0x1F are numbers too.

    Nulls are empty.
    """
    # Behind an empty one at the end there is nothing: any byte will do.
    first = data.take(starts, mode="clip")
    # A digit that is no zero begins a canonical number, and nothing else.
    doubtful = np.flatnonzero(first - _ONE > 8)  # unsigned: what is before 1 is above 9
    if not len(doubtful):
        return True
    starts = starts[doubtful]
    lengths, first = ends[doubtful] - starts, first[doubtful]
    good = (lengths == 0) | (first == _ZERO) & (lengths == 1)
    minus = (first == _MINUS) & (lengths > 1)
    good[minus] = data[starts[minus] + 1] - _ONE <= 8
    return bool(good.all())


_ZERO, _ONE, _MINUS = np.frombuffer(b"01-", np.uint8)
