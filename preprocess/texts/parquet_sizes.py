"""What texts and lists of Parquet hold in memory, as the file says before any of it is read."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from preprocess.errors import SampleError

if TYPE_CHECKING:
    import pyarrow.parquet

_WIDTHS: Final[Mapping[str, int]] = MappingProxyType(
    {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
)
"""Bytes of a value, by its physical type."""

_BESIDE_NBYTES: Final = 64
_BESIDE_TEXT_NBYTES: Final = 16
"""What a column, and each of its texts, may have beside the bytes of the texts."""


def check_held_nbytes(
    file: "pyarrow.parquet.ParquetFile",
    groups: Iterable[int],
    names: Sequence[str],
    max_nbytes: int | None,
    key: str,
) -> None:
    """Refuse a file whose texts and lists hold more bytes than files may, before they are read.

    One of them is in memory whole; of other columns a few rows are at a time.

    Args:
        file: Its metadata; what it says of itself may be wrong, and is looked at again as it is
            read.
        groups: Of rows, that will be read.
        names: Columns, or paths to what is within them, that will be read.
        max_nbytes: What a file may hold; None for any size.
        key: Names it.

    Raises:
        SampleError: That is so.
    """
    if max_nbytes is None:
        return
    held = 0
    for index in groups:
        group = file.metadata.row_group(index)
        for number in range(group.num_columns):
            column = group.column(number)
            if not is_within(column.path_in_schema, names):
                continue
            if column.physical_type == "BYTE_ARRAY":
                beside = _BESIDE_NBYTES + _BESIDE_TEXT_NBYTES * column.num_values
                held += max(0, column.total_uncompressed_size - beside)
            elif column.num_values > group.num_rows:
                width = _WIDTHS.get(column.physical_type) or file.schema.column(number).length
                held += width * column.num_values
    if held > max_nbytes:
        raise SampleError(
            key,
            f"its texts and lists hold {held:,} bytes or more, files may have {max_nbytes:,}; "
            "raise --max-item-bytes",
        )


def is_within(path: str, names: Sequence[str]) -> bool:
    """Return whether a path in a schema is one of some, or within one of them."""
    return any(f"{path}.".startswith(f"{name}.") for name in names)
