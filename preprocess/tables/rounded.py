"""What floats lose of the numbers of a column: rounded to float32, or beyond what float64 holds."""

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.table_schema import Loss
from preprocess.errors import SourceError
from preprocess.tables.columns import list_counts
from preprocess.tables.fit_rows import Rows, column_numbers
from preprocess.tables.list_values import list_items, rows_with
from preprocess.tables.plan import ColumnPlan
from preprocess.tables.quantiles import Part
from preprocess.tables.splits import SKIPPED
from preprocess.tables.text import plain_numbers
from preprocess.tables.values import numbers_of, texts_of

if TYPE_CHECKING:
    import pyarrow as pa

_WHOLE: Final = re.compile("-?[0-9]{16,}")
"""Whole numbers that may be beyond 2**53."""


def rounding(plan: ColumnPlan, rows: Rows) -> list[Loss]:
    """Return what float32 loses, over all rows."""
    changed, worst = 0, 0.0
    for values, counts in all_values(plan, rows):
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.abs(values.astype(np.float32).astype(np.float64) - values)
        error[np.isinf(values)] = 0.0
        if np.isinf(error).any():
            _refuse_large(plan, rows)
        lossy = error > 0
        changed += int(np.count_nonzero(lossy) if counts is None else counts[lossy].sum())
        worst = max(worst, float(error.max(initial=0.0)))
    return [Loss(what="rounded to float32", values=changed, worst=worst)] if changed else []


def _refuse_large(plan: ColumnPlan, rows: Rows) -> None:
    """Refuse float32 by the first value that would become infinite."""

    def large(array: "pa.Array") -> NDArray[np.bool_]:
        values, valid = column_numbers(array, plan, rows.options).rows()
        with np.errstate(over="ignore"):
            beyond = np.isinf(values.astype(np.float32)) & np.isfinite(values) & valid
        return rows_with(beyond, array, varies=plan.varies)

    where, value = rows.first(plan.source, large) or (plan.name, "a value")
    raise SourceError(
        f"{where}: column {plan.name!r}: {value} is beyond the range of float32; leave it float64"
    )


def rounded_whole(plan: ColumnPlan, rows: Rows) -> list[Loss]:
    """Return what float64 loses of numbers that it does not hold; infinite ones are no loss.

    These are whole numbers among floats, and decimals.
    """
    if not plan.beyond_float:
        return []
    count, worst = 0, 0
    for column, of_rows in rows.arrays(plan.source):
        array, splits = column, of_rows
        if plan.kind == "vector":
            array, splits = list_items(column), np.repeat(of_rows, list_counts(column))
        if _is_decimal(array):
            return _rounded_decimals(plan, rows)
        if _is_floating(array):
            continue
        texts = texts_of(array).of_rows(splits != SKIPPED)
        values = plain_numbers(texts.values, rows.options).to_pylist()
        for text, times in zip(values, texts.counts()[:-1].tolist(), strict=True):
            if times and _WHOLE.fullmatch(text) and not math.isinf(float(text)):
                error = abs(int(float(text)) - int(text))
                count += times if error else 0
                worst = max(worst, error)
    what = "whole numbers beyond 2**53 rounded to float64"
    return [Loss(what=what, values=count, worst=float(worst))] if count else []


def _rounded_decimals(plan: ColumnPlan, rows: Rows) -> list[Loss]:
    """Return what float64 loses of decimals, over all rows."""
    import pyarrow as pa

    count, worst = 0, Decimal(0)
    for array, splits in rows.arrays(plan.source):
        found = array.filter(pa.array(splits != SKIPPED)).drop_null().dictionary_encode()
        values = found.dictionary
        stored, _ = numbers_of(values, "float", rows.options, name=plan.name).rows()
        counts = np.bincount(found.indices.to_numpy(), minlength=len(values))
        for value, near, times in zip(
            values.to_pylist(), stored.tolist(), counts.tolist(), strict=True
        ):
            if error := abs(Decimal(near) - value):
                count += times
                worst = max(worst, error)
    what = "decimals rounded to float64"
    return [Loss(what=what, values=count, worst=float(worst))] if count else []


def _is_decimal(array: "pa.Array") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_decimal(array.type))


def _is_floating(array: "pa.Array") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(array.type))


def all_values(plan: ColumnPlan, rows: Rows) -> Iterator[Part]:
    """Yield the values of all rows that are stored."""
    for numbers, splits in rows.numbers(plan):
        values, counts, _ = numbers.of_rows(splits != SKIPPED).counted()
        yield values, counts
