"""Text as Arrow has read it -> dictionaries whose values are distinct, used, and valid UTF-8."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from preprocess.errors import SampleError
from preprocess.tables.buffers import stored_numbers, validity, whole_range
from preprocess.tables.columns import is_text
from preprocess.tables.plan import with_name
from preprocess.texts.content import invalid_utf8

if TYPE_CHECKING:
    from numpy.typing import NDArray


def bytes_of(column: Any, name: str, key: str) -> Any:
    """Return strings as large_binary, whose places in memory have been looked at.

    Raises:
        SampleError: They lie outside of the memory.
    """
    import pyarrow as pa

    kind = column.type
    binary = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(kind)
    try:
        # As bytes first: to convert damaged offsets could read outside of the memory.
        column = column.view(binary or pa.binary_view()) if is_text(kind) else column
        column.validate(full=True)
        return column.cast(pa.large_binary())
    except pa.ArrowException as error:
        raise _damaged(str(error), name, key) from error


def _damaged(fault: str, name: str, key: str) -> SampleError:
    said = f"damaged Arrow data in column {name!r}: {fault}; {with_name('--ignore', name)}"
    return SampleError(key, said)


def encoded(column: Any, name: str, key: str) -> Any:
    """Return text as dictionary<int32, large_binary>: distinct, all used, by first appearance.

    Args:
        column: Strings or bytes, or a dictionary of them.
        name: Names the column in errors.
        key: Names the file in errors.

    Raises:
        SampleError: The column's memory is damaged.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return bytes_of(column, name, key).dictionary_encode()
    values, indices = bytes_of(column.dictionary, name, key), column.indices
    try:
        indices.validate()
    except pa.ArrowException as error:
        raise _damaged(str(error), name, key) from error
    bounds = whole_range(indices)
    if bounds is not None and not 0 <= bounds[0] <= bounds[1] < len(values):
        raise _damaged("an index without a value", name, key)
    places = stored_numbers(indices).astype(np.intp)
    missing = ~validity(indices) if indices.null_count else None
    used = _by_appearance(places if missing is None else places[~missing], len(values))
    taken = values.take(pa.array(used))
    if taken.null_count or len(pc.unique(taken)) < len(taken):
        return values.take(indices).dictionary_encode()
    numbers = np.zeros(max(len(values), 1), np.int32)
    numbers[used] = np.arange(len(used), dtype=np.int32)
    # What lies in the places of missing ones may be beyond the values.
    found = pa.array(numbers.take(places, mode="clip"), mask=missing)
    return pa.DictionaryArray.from_arrays(found, taken, safe=False)  # they are within


def _by_appearance(places: "NDArray[np.intp]", count: int) -> "NDArray[np.intp]":
    """Return the different ones of places below `count`, in the order in which they come first."""
    firsts = np.full(count, len(places), np.int32)
    backwards = np.ascontiguousarray(places[::-1])
    # Of several that are assigned to one place the last one stays, as NumPy promises.
    firsts[backwards] = np.arange(len(places) - 1, -1, -1, dtype=np.int32)
    return places[np.sort(firsts[firsts < len(places)])]


def as_strings(column: Any) -> Any:
    """Return a dictionary of bytes as one of strings; None where some are not UTF-8."""
    import pyarrow as pa

    values = column.dictionary.view(pa.large_string())
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return pa.DictionaryArray.from_arrays(column.indices, values, safe=False)


def invalid_rows(columns: Mapping[str, Any]) -> dict[int, str]:
    """Return which rows of columns of bytes, or dictionaries of them, are not UTF-8, and why."""
    import pyarrow as pa

    found: dict[int, str] = {}
    for name, column in columns.items():
        dictionary = column.dictionary if pa.types.is_dictionary(column.type) else None
        values = column if dictionary is None else dictionary
        bad = {
            index: f"column {name!r} is not valid UTF-8: {fault[1]} at byte {fault[0]:,} of it"
            for index, value in enumerate(values.to_pylist())
            if value is not None and (fault := invalid_utf8(value))
        }
        if dictionary is None:
            rows: Iterable[tuple[int, str]] = bad.items()
        else:
            codes = column.indices.fill_null(-1).to_numpy()
            chosen = np.flatnonzero(np.isin(codes, list(bad)))
            rows = [(row, bad[int(codes[row])]) for row in chosen.tolist()]
        for row, reason in rows:
            found.setdefault(row, reason)
    return found
