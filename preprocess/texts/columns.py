"""Columns of a table -> documents: each row that has no text is named."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from preprocess.errors import SampleError
from preprocess.texts.arrays import json_objects, json_of_numbers, json_of_strings, make_texts
from preprocess.texts.content import invalid_utf8
from preprocess.texts.documents import Documents
from preprocess.texts.options import TextOptions
from preprocess.texts.records import dump_json, listed

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a table.

    Attributes:
        columns: The columns that are needed, by their name in the options; one array each.
        numbers: [N] int64: each row's number in the file, from 1.
        errors: Rows among these that the reader had to leave out.
    """

    columns: dict[str, Any]
    numbers: "NDArray[np.int64]"
    errors: tuple[SampleError, ...] = ()


def needed_keys(options: TextOptions) -> tuple[str, ...]:
    """Return what the options name, each once."""
    pair = () if options.pair_key is None else (options.pair_key,)
    return tuple(dict.fromkeys((options.text_key, *pair, *options.metadata_keys)))


def find_column(schema: "pa.Schema", key: str, file: str) -> tuple[str, ...]:
    """Return the path to a column: the one of exactly that name, else through structs.

    Raises:
        SampleError: It is not there, or there are two of that name.
    """
    import pyarrow as pa

    path = (key,) if key in schema.names else tuple(key.split("."))
    count = schema.names.count(path[0])
    if count > 1:
        raise SampleError(file, f"{count} columns are named {path[0]!r}")
    if count == 0:
        raise SampleError(file, f"no column {key!r}; the columns are {listed(schema.names)}")
    kind = schema.field(path[0]).type
    for name in path[1:]:
        if not pa.types.is_struct(kind):
            raise SampleError(file, f"no column {key!r}: {path[0]!r} is {kind}")
        names = [field.name for field in kind]
        if names.count(name) != 1:
            raise SampleError(file, f"no column {key!r}; {path[0]!r} has {listed(names)}")
        kind = kind.field(names.index(name)).type
    if pa.types.is_run_end_encoded(kind):
        raise SampleError(file, f"column {key!r} is run-end encoded, which is not read: decode it")
    return path


def read_column(table: Any, path: Sequence[str]) -> Any:
    """Return a column of a table or batch, in one array, with nulls where a struct is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(path[0])
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def documents_of(rows: Rows, file: str, options: TextOptions) -> Documents:
    """Turn rows into documents.

    Raises:
        SampleError: A column holds no text at all, or its memory is damaged.
    """
    faults: dict[int, str] = {}  # row among these -> why it is refused
    columns = {name: _plain(column) for name, column in rows.columns.items()}
    column = columns[options.text_key]
    if options.json_values:
        _note_nulls(column, options.text_key, faults)
        texts = _as_json(column, options.text_key, file, options, faults)
    else:
        texts = _as_texts(column, options.text_key, file, options, faults)
    pairs = metadata = None
    if options.pair_key is not None:
        pairs = _as_texts(columns[options.pair_key], options.pair_key, file, options, faults)
    if options.metadata_keys:
        kept = [
            _as_json(columns[name], name, file, options, faults) for name in options.metadata_keys
        ]
        metadata = json_objects(options.metadata_keys, kept)
    numbers = rows.numbers
    errors = list(rows.errors)
    if faults:
        good = np.ones(len(numbers), bool)
        good[list(faults)] = False
        errors += [SampleError(f"{file}:{numbers[row]}", faults[row]) for row in faults]
        errors.sort(key=lambda error: int(error.key.rpartition(":")[2]))
        texts, pairs, metadata = (_kept(column, good) for column in (texts, pairs, metadata))
        numbers = numbers[good]
    return Documents(
        texts=_compact(texts),
        places=numbers,
        pairs=None if pairs is None else _compact(pairs),
        metadata=metadata,
        errors=tuple(errors),
    )


def _compact(texts: Any) -> Any:
    """Return the same strings, not as a slice of more: engines take the buffers as they are."""
    import pyarrow as pa

    return pa.concat_arrays([texts]) if texts.offset else texts


def _plain(column: Any) -> Any:
    """Return a dictionary column as plain values: a null of the dictionary is one of the row."""
    import pyarrow as pa

    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _kept(column: Any, good: "NDArray[np.bool_]") -> Any:
    import pyarrow as pa

    return None if column is None else column.filter(pa.array(good))


def _note_nulls(column: Any, key: str, faults: dict[int, str]) -> None:
    if column.null_count:
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            faults.setdefault(row, f"{key!r} is null")


def _as_texts(
    column: Any, key: str, file: str, options: TextOptions, faults: dict[int, str]
) -> Any:
    """Return strings, valid but in the rows that are added to the faults."""
    import pyarrow as pa

    _note_nulls(column, key, faults)
    if column.null_count == len(column):  # of whatever type: there is nothing in it
        return pa.nulls(len(column), pa.large_string())
    if _binary_type(column.type) is None:
        raise SampleError(file, f"column {key!r} is {column.type}, not text")
    return _strings(column, key, file, options, faults)


def _binary_type(kind: Any) -> Any:
    """Return the type of the same bytes with no promise of UTF-8; None if this is not text."""
    import pyarrow as pa

    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.binary()
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return pa.large_binary()
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return pa.binary_view()
    return None


def _strings(column: Any, key: str, file: str, options: TextOptions, faults: dict[int, str]) -> Any:
    """Return a text column as large strings: faults are replaced, or noted by row."""
    import pyarrow as pa

    try:
        # First where the bytes lie: to convert damaged offsets could read outside of the memory.
        binary = column.view(_binary_type(column.type))
        binary.validate(full=True)
    except pa.ArrowException as error:
        raise SampleError(file, f"damaged Arrow data in column {key!r}: {error}") from error
    texts = binary.cast(pa.large_binary()).view(pa.large_string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return _mended(binary, key, options, faults)
    return texts


def _mended(binary: Any, key: str, options: TextOptions, faults: dict[int, str]) -> Any:
    import pyarrow as pa

    values: list[str | None] = []
    for row, value in enumerate(binary.to_pylist()):
        fault = None if value is None else invalid_utf8(value)
        if fault and not options.replaces:
            reason = f"{key!r} is not valid UTF-8: {fault[1]} at byte {fault[0]:,} of the text"
            faults.setdefault(row, reason)
        values.append(None if value is None else value.decode(errors="replace"))
    return pa.array(values, pa.large_string())


def _values(column: Any, key: str, file: str) -> list[Any]:
    """Return the values as Python has them."""
    try:
        values: list[Any] = column.to_pylist()
    except ValueError as error:  # strings within that are not UTF-8, times that Python has not
        raise SampleError(file, f"column {key!r} cannot be read: {error}") from error
    return values


def _as_json(column: Any, key: str, file: str, options: TextOptions, faults: dict[int, str]) -> Any:
    """Return the JSON of each value; times and decimals as strings."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return json_of_numbers(column)
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.large_string())
    if _binary_type(column.type) is not None:
        column = _strings(column, key, file, options, faults)
        found = json_of_strings(column)
        if found is not None:
            return found
    return make_texts([dump_json(value) for value in _values(column, key, file)])
