"""Values that many rows share: a few kB of Parquet or Arrow stand for as many GB of text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from preprocess.texts.parquet_sizes import is_within

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet

_BATCH_NBYTES: Final = 1 << 27
"""What a batch of rows may take in memory if every row has the longest of the values."""

_READ_NBYTES: Final = 1 << 20

_ITEM_NBYTES: Final = 32
"""What an item of a list may take, where it is no text: a few bytes may be millions of items."""

_DICTIONARY: Final = frozenset({"PLAIN_DICTIONARY", "RLE_DICTIONARY"})

_VIEW_WORDS: Final = 4
"""Of 32 bits, in what Arrow has of each string of a view; the first is its length."""

_PREFIXES: Final = "DELTA_BYTE_ARRAY"
"""Values begin with what the one before has."""

_FIRST_ROWS: Final = 16
_PREFIX_TIMES: Final = 16
_PREFIX_NBYTES: Final = 1 << 16
"""Of such a column values are taken to be up to so many times as long as the longest of the first
ones, and never for shorter than that: enough for honest files, which would else be read row by row.
"""


def most_rows(
    source: Any, file: "pyarrow.parquet.ParquetFile", groups: Iterable[int], names: Sequence[str]
) -> int | None:
    """Return how many rows of Parquet can be read at once, whatever values they share.

    Args:
        source: What the file is read from.
        file: Its metadata.
        groups: Of rows, that will be read.
        names: Columns, or paths to what is within them, that will be read as they are.

    Returns:
        Rows, which may be of several groups; None where no values are shared and no rows are lists.
    """
    most: int | None = None
    for index in groups:
        group = file.metadata.row_group(index)
        nbytes = 0  # that a row may take
        for number in range(group.num_columns):
            column = group.column(number)
            if is_within(column.path_in_schema, names):
                values = -(-column.num_values // max(1, group.num_rows))  # a row has, on average
                least = _ITEM_NBYTES if values > 1 else 0
                nbytes += values * max(least, _longest(source, file, index, number))
        if nbytes:
            rows = max(1, _BATCH_NBYTES // nbytes)
            most = rows if most is None else min(most, rows)
    return most


def _longest(
    source: Any, file: "pyarrow.parquet.ParquetFile", group_index: int, number: int
) -> int:
    """Return the bytes of the longest value that rows of a column may share; 0 if none do.

    Or more, where that limits no batch to fewer rows than the group has.
    """
    column = file.metadata.row_group(group_index).column(number)
    encodings = set(column.encodings)
    nbytes: int = column.total_uncompressed_size
    in_dictionary = not _DICTIONARY.isdisjoint(encodings)
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return int(file.schema.column(number).length)  # shared or not
    if column.physical_type != "BYTE_ARRAY" or not (in_dictionary or _PREFIXES in encodings):
        return 0
    if column.num_values * nbytes <= _BATCH_NBYTES:
        return nbytes
    path = column.path_in_schema
    if _PREFIXES in encodings:  # nothing says how long these are: taken from the first of them
        longest = _longest_of_first(source, file, group_index, path, _FIRST_ROWS)
        return min(nbytes, max(_PREFIX_NBYTES, _PREFIX_TIMES * longest))
    return _longest_of_first(source, file, group_index, path, 1, [path]) or nbytes


def _longest_of_first(
    source: Any,
    file: "pyarrow.parquet.ParquetFile",
    group: int,
    path: str,
    rows: int,
    dictionaries: Sequence[str] = (),
) -> int:
    """Return the bytes of the longest value in the first rows of a column; 0 if there is none.

    Of a column that is read as a dictionary: in all of the dictionary.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(
        source,
        metadata=file.metadata,
        buffer_size=_READ_NBYTES,
        pre_buffer=False,
        page_checksum_verification=True,
        read_dictionary=list(dictionaries),
    ) as probed:
        batches = probed.iter_batches(
            batch_size=rows, row_groups=[group], columns=[path], use_threads=False
        )
        found = next(batches, None)
        values = None if found is None else _innermost(found.column(0))
    if values is None:
        return 0
    return int(pc.max(pc.binary_length(values)).as_py() or 0)


def _innermost(array: "pa.Array") -> Any:
    """Return the texts within structs and lists, or their dictionary; None if there are none."""
    import pyarrow as pa

    while pa.types.is_nested(array.type):
        array = array.field(0) if pa.types.is_struct(array.type) else array.values
    if pa.types.is_dictionary(array.type):
        array = array.dictionary
    return array if _has_lengths(array.type) else None


def cut_shared(table: Any, columns: Sequence[Any], nbytes: int) -> Iterator[slice]:
    """Yield the rows of a table in parts whose texts, each row with its own, have some bytes.

    Args:
        table: Of Arrow.
        columns: Its columns that will be made texts.
        nbytes: Of a part, unless one row has more.
    """
    lengths = [found for column in columns if (found := _shared_lengths(column)) is not None]
    if not lengths:
        yield slice(0, len(table))
        return
    ends = np.cumsum(np.sum(lengths, axis=0))
    start = 0
    while start < len(table):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + nbytes, side="right")))
        yield slice(start, stop)
        start = stop


def _shared_lengths(column: Any) -> Any:
    """Return [N] int64, the bytes of each value of a column whose rows may share them; else None.

    Lengths that damaged views or indices have are not told from others here.

    Raises:
        ArrowInvalid: Its buffers are too small.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        if not _has_lengths(kind.value_type):
            return None
        column.validate()
        found = pc.take(pc.binary_length(column.dictionary), column.indices, boundscheck=True)
        return _as_counts(found)
    if is_view(kind):
        column.validate()
        words = (column.offset + len(column)) * _VIEW_WORDS
        views = np.frombuffer(column.buffers()[1], "<i4", words).reshape(-1, _VIEW_WORDS)
        return np.maximum(views[column.offset :, 0], 0).astype(np.int64)
    return _lengths_within(column) if pa.types.is_nested(kind) else None


def _lengths_within(column: Any) -> Any:
    """Return the same of a column of structs, or of lists, which may share their items too."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_struct(kind):
        return _sum_of(column.flatten())
    viewed = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    if pa.types.is_map(kind):
        parts = [column.keys, column.items]
    elif viewed or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parts = [column.values]
    else:
        return None
    each = _sum_of(parts)
    if each is None:
        if not viewed:
            return None
        each = np.full(len(column.values), _ITEM_NBYTES, np.int64)
        if _has_lengths(column.values.type):
            each += _as_counts(pc.binary_length(column.values))
    column.validate(full=True)  # or what follows could look anywhere
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(each)])
    starts = column.offsets.to_numpy(zero_copy_only=False)
    if viewed:
        return ends[starts + column.sizes.to_numpy(zero_copy_only=False)] - ends[starts]
    return ends[starts[1:]] - ends[starts[:-1]]


def _as_counts(lengths: Any) -> Any:
    """Return [N] int64: none for nulls."""
    import pyarrow as pa

    return lengths.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)


def _sum_of(columns: Iterable[Any]) -> Any:
    """Return the sum of what rows of some columns may share; None if they do not."""
    found = [one for column in columns if (one := _shared_lengths(column)) is not None]
    return np.sum(found, axis=0) if found else None


def is_view(kind: Any) -> bool:
    """Return whether a type of Arrow is of texts that may lie in the same bytes."""
    import pyarrow as pa

    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _has_lengths(kind: Any) -> bool:
    import pyarrow as pa

    plain = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string)
    return any(is_kind(kind) for is_kind in (*plain, pa.types.is_large_binary))
