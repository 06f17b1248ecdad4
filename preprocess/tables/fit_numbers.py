"""A column of numbers, fitted: its stored type from all rows, its statistics from train."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.table_schema import ColumnSpec
from preprocess.errors import SourceError
from preprocess.tables.column_statistics import Tally, column_statistics, tally
from preprocess.tables.counts import Part as Counting
from preprocess.tables.counts import count_numbers, numbers_to_count
from preprocess.tables.fit_rows import Rows, column_numbers
from preprocess.tables.fitted_column import CODE_DTYPES, FittedColumn, make_spec, narrowest
from preprocess.tables.list_values import rows_with
from preprocess.tables.overflow import overflows
from preprocess.tables.plan import ColumnPlan, room_of, with_range
from preprocess.tables.quantiles import HELD, Part, quantiles, quantiles_of_counted
from preprocess.tables.rounded import all_values, rounded_whole, rounding
from preprocess.tables.splits import SKIPPED, TRAIN
from preprocess.tables.unused import unused_number

if TYPE_CHECKING:
    import pyarrow as pa

    from loaders.format.table_column import ColumnDtype, Wrapping

_UNSIGNED: Final = 1 << 63
"""Offset of unsigned numbers of 64 bits, as int64."""


def fit_whole(plan: ColumnPlan, rows: Rows) -> FittedColumn:
    """Fit whole numbers: the offset and the narrowest type hold all rows.

    Raises:
        SourceError: They are beyond 64 bits, or beyond the type that is asked for.
    """
    if plan.low is None or plan.high is None:
        low, high, missing = _range(plan, rows)
        plan = with_range(plan, low, high, missing=missing)
    low, high = plan.low or 0, plan.high or 0
    boolean = "boolean" in {plan.kind, plan.holds}
    offset = 0 if boolean else low
    if plan.dtype is not None:
        _check_asked(plan, rows, offset)
    dtype: ColumnDtype = "int64"
    wraps: Wrapping | None = None
    if plan.wraps:
        wraps = "uint64" if plan.unsigned else "int64"
        offset = unused_number(lambda: all_values(plan, rows), unsigned=plan.unsigned) + 1
    elif plan.nullable:
        below = 0 if boolean else room_of(plan, rows.options.room)
        offset, high = offset - below, high + below
        dtype = plan.dtype or narrowest(high - offset + 1)
    else:
        offset = _UNSIGNED if plan.unsigned else 0
    spec = make_spec(
        plan, dtype, offset=offset, exponent=plan.exponent, nullable=plan.nullable, wraps=wraps
    )
    return _with_statistics(spec, plan, rows)


def _range(plan: ColumnPlan, rows: Rows) -> tuple[int, int, bool]:
    """Return the smallest and the largest value of all rows, and whether any is missing.

    Both are 0 where there is none.
    """
    bounds: list[int] = []
    missing = False
    for numbers, splits in rows.numbers(plan):
        values, _, absent = numbers.of_rows(splits != SKIPPED).counted()
        missing = missing or absent > 0
        if len(values):
            bounds += [int(values.min()), int(values.max())]
            bounds = [min(bounds), max(bounds)]
    return (bounds[0], bounds[1], missing) if bounds else (0, 0, missing)


def _check_asked(plan: ColumnPlan, rows: Rows, offset: int) -> None:
    """Refuse a type that does not hold all values, by the first that it does not."""
    if plan.dtype not in CODE_DTYPES:
        raise SourceError(f"column {plan.name!r}: {plan.dtype} is no type of kind {plan.kind}")
    top = offset + int(np.iinfo(plan.dtype).max) - 1
    all_bits = plan.wraps or not plan.nullable
    if (plan.high or 0) <= top or (plan.dtype == "int64" and all_bits):
        return

    def beyond(array: "pa.Array") -> NDArray[np.bool_]:
        values, valid = column_numbers(array, plan, rows.options).rows()
        return rows_with((values > top) & valid, array, varies=plan.varies)

    where, value = rows.first(plan.source, beyond) or (plan.name, plan.high)
    unit = f" * 10**{plan.exponent}" if plan.exponent else ""
    raise SourceError(
        f"{where}: column {plan.name!r}: {value} is beyond {offset}..{top}{unit}, which "
        f"{plan.dtype} holds beside a code for missing values; ask for a wider type"
    )


def fit_floats(plan: ColumnPlan, rows: Rows) -> FittedColumn:
    """Fit floats: float32 where it holds all values, or is asked for.

    Raises:
        SourceError: The type that is asked for is none for floats, or its range too small.
    """
    if plan.dtype not in {None, "float32", "float64"}:
        raise SourceError(f"column {plan.name!r}: {plan.dtype} is no type of kind {plan.kind}")
    rounded = rounded_whole(plan, rows)
    # Whether float32 holds whole numbers that float64 does not hold is not asked of all blocks.
    exact = plan.float32_exact and not rounded
    narrow = plan.float32 or (exact and plan.dtype is None)
    losses = (rounding(plan, rows) if narrow and not exact else []) + rounded
    losses += overflows(plan, rows)
    spec = make_spec(plan, "float32" if narrow else "float64", tuple(losses))
    return _with_statistics(spec, plan, rows)


def _with_statistics(spec: ColumnSpec, plan: ColumnPlan, rows: Rows) -> FittedColumn:
    """Add statistics over train to a column of numbers; of lists of several lengths, of theirs."""
    if plan.kind == "vector" and not plan.varies:
        return FittedColumn(spec=spec)
    if (counted := _counted(spec, plan, rows)) is not None:
        return counted
    found, missing, infinite = Tally(), 0, 0
    held: list[Part] | None = [] if rows.train_count <= HELD else None
    for numbers in rows.train(plan):
        values, counts, absent = numbers.counted()
        values, counts, beyond = _finite(values, counts)
        found += tally(values, counts)
        missing, infinite = missing + absent, infinite + beyond
        if held is not None:
            held.append((values, counts))  # converted once
            held = held if found.count <= HELD else None  # lists hold any number of them

    def stream() -> Iterator[Part]:
        if held is not None:
            yield from held
            return
        for numbers in rows.train(plan):
            values, counts, _ = _finite(*numbers.counted()[:2])
            yield values, counts

    statistics = column_statistics(
        found,
        quantiles(stream, found.count, plan.exponent),
        missing=missing,
        infinite=infinite,
        exponent=plan.exponent,
    )
    notes = tuple(_notes(plan, found, infinite))
    return FittedColumn(
        spec=replace(spec, statistics=statistics),
        constant=found.count > 0 and found.minimum == found.maximum and not plan.varies,
        notes=notes,
    )


def _counted(spec: ColumnSpec, plan: ColumnPlan, rows: Rows) -> FittedColumn | None:
    """Do the same for whole numbers, by how often each occurs; None if that is not the way."""
    import pyarrow as pa

    if plan.kind != "integer" or plan.part is not None or plan.low is None:
        return None
    low, missing = plan.low, 0

    def parts() -> Iterator[Counting | None]:
        nonlocal missing
        for array, splits in rows.arrays(plan.source):
            train = splits == TRAIN
            mine = array if train.all() else array.filter(pa.array(train))
            missing += mine.null_count
            yield numbers_to_count(mine)

    found = count_numbers(parts(), low)
    if found is None:
        return None
    sums = tally(*found)
    statistics = column_statistics(
        sums,
        quantiles_of_counted(*found, plan.exponent),
        missing=missing,
        infinite=0,
        exponent=plan.exponent,
    )
    return FittedColumn(
        spec=replace(spec, statistics=statistics),
        constant=len(found[0]) == 1,
        notes=tuple(_notes(plan, sums, 0)),
    )


def _notes(plan: ColumnPlan, found: Tally, infinite: int) -> Iterator[str]:
    if infinite:
        yield (
            f"column {plan.name!r}: {infinite:,} infinite values in train, which its statistics "
            "leave out"
        )
    if not found.count:
        yield f"column {plan.name!r}: no row of train has a finite value"


def _finite(
    values: NDArray[Any], counts: NDArray[np.int64] | None
) -> tuple[NDArray[Any], NDArray[np.int64] | None, int]:
    """Return values and counts without infinities, and how many these are."""
    kept = np.isfinite(values) if values.dtype == np.float64 else np.ones(len(values), np.bool_)
    if kept.all():
        return values, counts, 0
    beyond = int(np.count_nonzero(~kept) if counts is None else counts[~kept].sum())
    return values[kept], None if counts is None else counts[kept], beyond
