"""Numbers of text that are too large for float64, such as 1e999: infinite, and listed as a loss."""

import math
from typing import TYPE_CHECKING

from loaders.format.table_schema import Loss
from preprocess.tables.options import TableOptions
from preprocess.tables.plan import ColumnPlan
from preprocess.tables.splits import SKIPPED
from preprocess.tables.text import plain_numbers
from preprocess.tables.values import texts_of

if TYPE_CHECKING:
    import pyarrow as pa

    from preprocess.tables.fit_rows import Rows


def overflows(plan: ColumnPlan, rows: "Rows") -> list[Loss]:
    """Return how many numbers of a column became infinite; what is written as such is no loss."""
    import pyarrow as pa

    if not plan.infinite:
        return []
    count = 0
    for array, splits in rows.arrays(plan.source):
        if pa.types.is_dictionary(array.type):
            texts = texts_of(array).of_rows(splits != SKIPPED)
            marked = _are_beyond(texts.values, rows.options)
            count += int(texts.counts()[:-1][marked].sum())
    what = "numbers beyond the range of float64 became infinite"
    return [Loss(what=what, values=count, worst=0.0)] if count else []


def _are_beyond(values: "pa.LargeStringArray", options: TableOptions) -> list[bool]:
    plain = plain_numbers(values, options).to_pylist()
    return [text[-1:] in _DIGITS and math.isinf(float(text)) for text in plain]


_DIGITS = frozenset(".0123456789")
