"""What the values of a column are: one column of a block -> NumPy numbers, or texts and codes.

Text is converted once for each different value of a block, whatever number of rows it has.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from preprocess.errors import SourceError
from preprocess.tables.buffers import stored_numbers, validity
from preprocess.tables.decimals import units_of
from preprocess.tables.options import TableOptions
from preprocess.tables.plan import refuse_column
from preprocess.tables.text import (
    to_booleans,
    to_dates,
    to_datetimes,
    to_floats,
    to_integers,
    written,
)

if TYPE_CHECKING:
    import pyarrow as pa

WHOLE_KINDS: Final = frozenset({"integer", "boolean", "date", "datetime", "decimal"})
"""Kinds whose values are int64 on the way, and codes with an offset in the record."""

EXACT_FLOAT: Final = 1 << 53
"""Whole numbers up to here are the same in float64."""

DATETIME_PARTS: Final = ("year", "month", "day", "weekday", "hour")
"""What may stand beside times, of which dates have all but the hour; Monday is 0."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of one column of a block.

    Attributes:
        values: [k] int64, uint64 or float64; what is missing is 0 or NaN.
        valid: [k] bool; False for missing ones.
        index: [n] int64: which of the values each row has; the last one is a missing one. None
            where row i has value i.
    """

    values: NDArray[Any]
    valid: NDArray[np.bool_]
    index: NDArray[np.int64] | None = None

    def rows(self) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return the value of every row, [n], and whether it has one, [n] bool."""
        if self.index is None:
            return self.values, self.valid
        return self.values[self.index], self.valid[self.index]

    def of_rows(self, rows: NDArray[np.bool_]) -> "Numbers":
        """Return the numbers of the rows that are marked, [n] bool."""
        if rows.all():
            return self
        if self.index is None:
            return Numbers(self.values[rows], self.valid[rows])
        return Numbers(self.values, self.valid, self.index[rows])

    def counted(self) -> tuple[NDArray[Any], NDArray[np.int64] | None, int]:
        """Return what the rows hold: values, how often each occurs, and how many are missing.

        Returns:
            [m] values without missing ones, [m] int64 counts (None: each once), missing rows.
        """
        if self.index is None:
            found = self.values if self.valid.all() else self.values[self.valid]
            return found, None, self.valid.size - found.size
        counts = np.bincount(self.index, minlength=len(self.values))
        keep = self.valid & (counts > 0)
        return self.values[keep], counts[keep], int(counts[~self.valid].sum())


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of one column of a block.

    Attributes:
        values: [k] large_string, each different.
        index: [n] int64: which of them each row has; k for a missing one.
    """

    values: "pa.LargeStringArray"
    index: NDArray[np.int64]

    def of_rows(self, rows: NDArray[np.bool_]) -> "Texts":
        """Return the texts of the rows that are marked, [n] bool; of the same values."""
        return self if rows.all() else Texts(self.values, self.index[rows])

    def counts(self) -> NDArray[np.int64]:
        """Return how often each value occurs, [k + 1] int64, the last for missing ones."""
        return np.bincount(self.index, minlength=len(self.values) + 1)


def column_array(table: "pa.Table", name: str) -> "pa.Array":
    """Return a column in one piece; all missing if the block has none of the name."""
    import pyarrow as pa

    index = table.schema.get_field_index(name)
    if index < 0:
        return pa.nulls(table.num_rows)
    column = table.column(index)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def numbers_of(
    array: "pa.Array",
    kind: str,
    options: TableOptions,
    *,
    name: str,
    exponent: int | None = None,
    unsigned: bool = False,
) -> Numbers:
    """Convert a column to numbers.

    Args:
        array: As a `Block` holds it.
        kind: One of `WHOLE_KINDS` (dates in days, times in microseconds since 1970, booleans 0
            and 1), or "float".
        options: How numbers are written as text.
        name: Names the column in errors.
        exponent: Decimals are in units of 10**exponent, and `NO_MULTIPLE` where they have more
            places; None for that of their type.
        unsigned: Whole numbers become uint64, not int64.

    Raises:
        SourceError: A value is not of the kind, or beyond the type.
    """
    import pyarrow as pa

    try:
        if pa.types.is_dictionary(array.type):
            if kind == "decimal":
                values, valid = units_of(array.dictionary, exponent, options)
            else:
                found = _from_text(array.dictionary, kind, options)
                values, valid = _plain(found, kind, unsigned=unsigned)
            fill = np.array([np.nan if kind == "float" else 0], values.dtype)
            index = _indices(array, len(values))
            return Numbers(np.append(values, fill), np.append(valid, False), index)
        if kind == "decimal":
            return Numbers(*units_of(array, exponent, options))
        return Numbers(*_plain(array, kind, unsigned=unsigned))
    except OverflowError as error:
        refuse_column(name, str(error), *(("--categorical",) if kind == "decimal" else ()))
    except (pa.ArrowException, ValueError, ArithmeticError) as error:
        raise SourceError(f"column {name!r}: not all of kind {kind}: {error}") from error


def texts_of(array: "pa.Array") -> Texts:
    """Convert a column to texts: numbers as `number_text` writes them, times by ISO 8601."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(array.type):
        return Texts(pa.array([], pa.large_string()), np.zeros(len(array), np.int64))
    if pa.types.is_floating(array.type):
        array = pc.add(array.cast(pa.float64()), 0.0)  # -0.0 is 0.0
        array = pc.if_else(pc.is_nan(array), None, array)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    values = array.dictionary
    if not pa.types.is_large_string(values.type):
        values = written(values)
    return Texts(values, _indices(array, len(values)))


def _indices(array: "pa.DictionaryArray", missing: int) -> NDArray[np.int64]:
    """Return which value each row has, and `missing` where it has none."""
    indices = array.indices
    # Not fill_null: an index of 8 bits may have no room for the number of a missing one.
    found = stored_numbers(indices).astype(np.int64)
    if indices.null_count:
        found[~validity(indices)] = missing
    return found


def _plain(
    array: "pa.Array", kind: str, *, unsigned: bool
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return an array of a numeric type as int64, uint64 or float64, and what is not missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    source = array.type
    valid = validity(array)
    if kind == "float":
        if pa.types.is_decimal(source):
            array = pc.cast(array, pa.string())  # Arrow's own way is not to the nearest float
        elif pa.types.is_integer(source):
            array = pc.cast(array, pa.float64(), safe=False)
        values = pc.cast(array, pa.float64()).fill_null(np.nan).to_numpy()
        return values, ~np.isnan(values)
    if pa.types.is_null(source):
        return np.zeros(len(array), np.int64), valid
    if pa.types.is_floating(source):
        array = pc.if_else(pc.is_nan(array), None, array)
        valid = validity(array)
    if pa.types.is_date32(source):
        if kind == "datetime":
            array = pc.cast(array, pa.timestamp("us"))
        else:
            array = pc.cast(array, pa.int32())
    if pa.types.is_timestamp(array.type):
        array = pc.cast(array, pa.timestamp("us", array.type.tz))
    array = pc.cast(array, pa.int64()) if pa.types.is_time64(array.type) else array
    integer = pa.uint64() if unsigned else pa.int64()
    return pc.cast(array, integer).fill_null(0).to_numpy(), valid


def _from_text(texts: "pa.Array", kind: str, options: TableOptions) -> "pa.Array":
    """Convert texts to Arrow's numbers, booleans or times; ArrowInvalid if one is none."""
    if kind == "integer":
        return to_integers(texts, options)
    if kind == "float":
        return to_floats(texts, options)
    if kind == "boolean":
        return to_booleans(texts)
    if kind == "date":
        return to_dates(texts)
    if kind == "datetime":
        return to_datetimes(texts)
    raise ValueError(f"text is not of kind {kind}")


def datetime_part(values: NDArray[np.int64], kind: str, part: str) -> NDArray[np.int64]:
    """Return the year, month, day, weekday (Monday 0) or hour of days or microseconds, in UTC.

    Args:
        values: [n] int64, as `numbers_of` gives them for the kind.
        kind: "date" or "datetime".
        part: One of `DATETIME_PARTS`.
    """
    times = values.view("datetime64[D]" if kind == "date" else "datetime64[us]")
    days = times.astype("datetime64[D]")
    if part == "hour":
        return np.asarray((times - days).astype("timedelta64[h]").astype(np.int64))
    if part == "weekday":
        return (days.astype(np.int64) + 3) % 7  # the first day of 1970 was a Thursday
    months = days.astype("datetime64[M]")
    if part == "day":
        return np.asarray((days - months).astype(np.int64) + 1)
    if part == "month":
        return months.astype(np.int64) % 12 + 1
    return days.astype("datetime64[Y]").astype(np.int64) + 1970
