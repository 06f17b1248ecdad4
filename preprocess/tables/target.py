"""The target: which rows have one, whether it can be learned, and as what."""

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from preprocess.errors import SourceError
from preprocess.tables.buffers import validity
from preprocess.tables.fit_rows import Rows, classes_of, column_numbers
from preprocess.tables.plan import ColumnPlan
from preprocess.tables.refusals import TooFewRowsError
from preprocess.tables.schema import MAX_CLASSES
from preprocess.tables.splits import SKIPPED
from preprocess.tables.values import Numbers, texts_of

if TYPE_CHECKING:
    import pyarrow as pa


def settle_target(plan: ColumnPlan, rows: Rows) -> ColumnPlan:
    """Mark rows without a target as skipped, and complete the target's plan.

    Args:
        plan: Of the target.
        rows: All rows; `splits` are changed.

    Returns:
        The plan with its task, and a note that says which it is.

    Raises:
        SourceError: A value is infinite or not a number, or all of them are the same.
    """
    for array, splits in rows.arrays(plan.source):
        splits[~validity(array)] = SKIPPED
    bad = rows.first(plan.source, lambda array: _not_finite(array, plan, rows))
    if bad is not None:
        raise SourceError(
            f"{bad[0]}: target {plan.name!r}: {bad[1]} cannot be learned; mend the row or leave it "
            "out"
        )
    if plan.task == "auto":
        few = len(_distinct(plan, rows, MAX_CLASSES)) <= MAX_CLASSES
        plan = replace(plan, task="classification" if few else "regression")
        if few:
            plan = replace(plan, kind="categorical", low=None, high=None)
    found = _distinct(plan, rows, 1)
    if len(found) < 2:
        where, value = rows.first(plan.source, _present) or ("", None)
        raise TooFewRowsError(
            f"{where}: target {plan.name!r}: constant: every row has {value!r}; there is nothing "
            "to learn"
        )
    chosen = "" if rows.options.task != "auto" else "; --task says otherwise"
    note = f"target {plan.name!r}: {plan.task}{chosen}"
    return replace(plan, notes=(*plan.notes, note))


def _present(array: "pa.Array") -> NDArray[np.bool_]:
    return validity(array)


def _not_finite(array: "pa.Array", plan: ColumnPlan, rows: Rows) -> NDArray[np.bool_]:
    """Mark values that are there and are infinite or not a number."""
    import pyarrow as pa

    if not pa.types.is_floating(array.type) and plan.kind != "float":
        return np.zeros(len(array), np.bool_)
    numbers = column_numbers(array, replace(plan, kind="float"), rows.options)
    return np.asarray(_present(array) & ~np.isfinite(numbers.rows()[0]))


def _distinct(plan: ColumnPlan, rows: Rows, enough: int) -> set[Hashable]:
    """Return the different values of the target, or more than `enough` of them."""
    found: set[Hashable] = set()
    for array, splits in rows.arrays(plan.source):
        found |= _values(array, plan, rows, splits != SKIPPED)
        if len(found) > enough:
            break
    return found


def _values(array: "pa.Array", plan: ColumnPlan, rows: Rows, kept: NDArray[np.bool_]) -> set[Any]:
    if plan.kind == "categorical":
        texts = texts_of(array).of_rows(kept)
        used = texts.counts()[:-1] > 0
        return set(classes_of(texts.values.filter(used), plan).to_pylist())
    numbers: Numbers = column_numbers(array, plan, rows.options).of_rows(kept)
    return set(np.unique(numbers.counted()[0]).tolist())
