"""Data frames in memory -> blocks: of pandas, polars, or anything that Arrow takes as a table."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from preprocess.errors import SourceError
from preprocess.tables.block import Block
from preprocess.tables.columns import fault_of_names, readable_columns, with_unread
from preprocess.tables.options import TableOptions
from preprocess.tables.ordinals import refuse_ordinals
from preprocess.tables.parse import parse_block
from preprocess.tables.read import RawBlock

if TYPE_CHECKING:
    import pyarrow as pa

FRAME: Final = "DataFrame"
"""Names a frame, where files have their paths."""

_MAX_ROWS: Final = 1 << 16


def blocks_of_frame(frame: Any, options: TableOptions) -> Iterator[Block]:
    """Yield the rows of a frame; they are numbered from 1. Its index is no column.

    Args:
        frame: A DataFrame of pandas or polars, or a table of pyarrow.
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
    if isinstance(frame, pa.Table):
        _check_names(list(frame.column_names))
        selected = frame.select(readable_columns(frame.schema, options, FRAME))
        return with_unread(selected, frame.schema, len(frame), options)
    if not hasattr(frame, "iloc"):
        kind = f"{type(frame).__module__}.{type(frame).__qualname__}"
        raise SourceError(f"{kind}: expected a DataFrame of pandas or polars, or an Arrow table")
    names = [str(name) for name in frame.columns]
    _check_names(names)
    unread = options.unread
    columns = [
        pa.nulls(len(frame)) if name in unread else _as_column(frame.iloc[:, index], name)
        for index, name in enumerate(names)
    ]
    table = pa.table(columns, names=names)
    refuse_ordinals(table.schema, options, FRAME)
    return table


def _check_names(names: list[str]) -> None:
    if (fault := fault_of_names(names)) is not None:
        raise SourceError(f"{FRAME}: {fault}")


def _as_column(series: Any, name: str) -> "pa.Array | pa.ChunkedArray":
    """Return a column of pandas; NaN of object columns and NaT are missing values."""
    import pyarrow as pa

    try:
        return pa.Array.from_pandas(series)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        kinds = Counter(type(value).__name__ for value in series)
        found = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(4))
        raise SourceError(
            f"{FRAME}: column {name!r} holds values of several types, or of one that no column "
            f"can be ({found}); give it one type, as by .astype(str), or --ignore it"
        ) from error
