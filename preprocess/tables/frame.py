"""Tables in memory -> blocks: of pandas, polars, Arrow, or a dict of columns."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from preprocess.errors import SourceError
from preprocess.tables.block import FRAME, Block
from preprocess.tables.columns import fault_of_names, readable_columns, with_unread
from preprocess.tables.options import TableOptions
from preprocess.tables.parse import parse_block
from preprocess.tables.raw_block import RawBlock

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_ROWS: Final = 1 << 16
_SHOWN: Final = 5


def blocks_of_frame(frame: Any, options: TableOptions) -> Iterator[Block]:
    """Yield the rows of a frame; they are numbered from 1. Its index is no column.

    Args:
        frame: A DataFrame of pandas or polars, a table of pyarrow, a dict of columns, or a
            structured array of NumPy.
        options: Which columns are not looked at.

    Raises:
        SourceError: It is no frame, or a column holds what no column of one type can.
    """
    table = _as_table(frame, options)
    for start in range(0, len(table), _MAX_ROWS):
        part = table.slice(start, _MAX_ROWS)
        raw = RawBlock(key=FRAME, kind="table", first=start + 1, table=part)
        yield parse_block(raw, options)


def _as_table(frame: Any, options: TableOptions) -> "pa.Table":
    import pyarrow as pa

    if hasattr(frame, "to_arrow"):
        frame = frame.to_arrow()
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        _check_names(list(frame.column_names))
        selected = frame.select(readable_columns(frame.schema, options, FRAME))
        return with_unread(selected, frame.schema, len(frame), options)
    given = _columns_of(frame)
    names = [name for name, _ in given]
    _check_names(names)
    lengths = {name: _length(values, name) for name, values in given}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name!r} {length:,}" for name, length in [*lengths.items()][:_SHOWN])
        raise SourceError(f"{FRAME}: columns of different lengths: {shown}")
    columns = [
        pa.nulls(lengths[name]) if name in options.unread else _as_column(values, name)
        for name, values in given
    ]
    table = pa.table(columns, names=names)
    readable_columns(table.schema, options, FRAME)
    return with_unread(table, table.schema, len(table), options)


def _columns_of(frame: Any) -> list[tuple[str, Any]]:
    """Return the names and the values of columns: of pandas, of a dict, of a structured array."""
    if isinstance(frame, Mapping):
        return [(str(name), values) for name, values in frame.items()]
    if hasattr(frame, "iloc") and hasattr(frame, "columns"):
        return [(str(name), frame.iloc[:, place]) for place, name in enumerate(frame.columns)]
    if isinstance(frame, np.ndarray) and frame.dtype.names is not None and frame.ndim == 1:
        return [(name, frame[name]) for name in frame.dtype.names]
    kind = f"{type(frame).__module__}.{type(frame).__qualname__}".removeprefix("builtins.")
    remedy = ""
    if hasattr(frame, "collect"):
        remedy = "; .collect() makes one of it"
    elif isinstance(frame, Sequence) or hasattr(frame, "__next__"):
        remedy = "; pandas.DataFrame(list(rows)) makes one of rows"
    elif hasattr(frame, "shape"):
        remedy = "; its columns need names, as in {'x': array[:, 0]}"
    raise SourceError(
        f"{kind}: expected a path, a DataFrame of pandas or polars, an Arrow table, or a dict of "
        f"columns{remedy}"
    )


def _length(values: Any, name: str) -> int:
    try:
        if not isinstance(values, str | bytes | Mapping | AbstractSet):
            return len(values)
    except TypeError:
        pass  # a single number, or a generator
    raise SourceError(
        f"{FRAME}: column {name!r} is of type {type(values).__name__}; expected a list or an "
        "array with a value for each row"
    )


def _check_names(names: list[str]) -> None:
    if (fault := fault_of_names(names)) is not None:
        raise SourceError(f"{FRAME}: {fault}")


def _as_column(values: Any, name: str) -> "pa.Array | pa.ChunkedArray":
    """Return a column of pandas, NumPy or Python; NaN and NaT among objects are missing values."""
    import pyarrow as pa

    if hasattr(values, "to_arrow"):
        values = values.to_arrow()
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    try:
        if isinstance(values, np.ndarray) and values.ndim == 2:
            flat = pa.array(np.ascontiguousarray(values).reshape(-1))
            return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        return pa.Array.from_pandas(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        kinds = Counter(type(value).__name__ for value in values)
        found = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(4))
        raise SourceError(
            f"{FRAME}: column {name!r} holds values of several types, or of one that no column "
            f"can be ({found}); give it one type, as by .astype(str), or --ignore it"
        ) from error
