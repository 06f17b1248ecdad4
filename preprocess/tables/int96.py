"""Times of 96 bits in Parquet, as Spark and Hive write them: which are finer than microseconds."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from preprocess.items import Item

if TYPE_CHECKING:
    import pyarrow as pa

_NANOSECONDS: Final = ((1 << 63) - 1) // 1000
"""Microseconds up to which nanoseconds since 1970 are within 64 bits."""

_BATCH_ROWS: Final = 1 << 16


def unit_of_times(source: Any, item: Item, wanted: Sequence[str]) -> str:
    """Return "ns" where some times are finer than microseconds, which would cut them silently.

    Nanoseconds hold no times far from 1970: with them, a column is to be refused.

    Args:
        source: The Parquet file, which is left at its beginning.
        item: Says which row groups are looked at.
        wanted: Columns that are looked at.

    Raises:
        pyarrow.ArrowException: The file cannot be read.
    """
    import pyarrow.parquet

    source.seek(0)
    metadata = pyarrow.parquet.read_metadata(source)
    source.seek(0)
    schema, count = metadata.schema, metadata.num_row_groups
    columns = [schema.column(index) for index in range(len(schema.names))]
    names = [c.path for c in columns if c.physical_type == "INT96" and c.path in set(wanted)]
    groups = range(item.start, count if item.stop is None else min(item.stop, count))
    if not names or not groups:
        return "us"
    # Of the same columns, so that both give the same rows at a time.
    readers = (_batches(source, unit, groups, names) for unit in ("us", "ns"))
    for coarse, fine in zip(*readers, strict=True):
        for name in names:
            micro, nano = (_numbers(batch.column(name)) for batch in (coarse, fine))
            within = (micro > -_NANOSECONDS) & (micro < _NANOSECONDS)
            if (within & (nano != micro * np.where(within, 1000, 0))).any():
                source.seek(0)
                return "ns"
    source.seek(0)
    return "us"


def _batches(source: Any, unit: str, groups: Sequence[int], names: list[str]) -> Any:
    import pyarrow.parquet

    source.seek(0)
    file = pyarrow.parquet.ParquetFile(
        source, pre_buffer=False, page_checksum_verification=True, coerce_int96_timestamp_unit=unit
    )
    return file.iter_batches(_BATCH_ROWS, row_groups=[*groups], columns=names, use_threads=False)


def _numbers(column: "pa.Array") -> Any:
    import pyarrow as pa

    return column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
