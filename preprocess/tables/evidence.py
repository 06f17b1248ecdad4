"""Columns of a block -> evidence: what their values are, from their distinct values."""

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from preprocess.tables.block import NAIVE, NULL, TEXT_KINDS, ZONED, Evidence
from preprocess.tables.buffers import whole_range
from preprocess.tables.columns import value_at
from preprocess.tables.decimals import places_of_floats
from preprocess.tables.json_texts import in_quotes
from preprocess.tables.options import TableOptions
from preprocess.tables.text import (
    decimal_places,
    first_not,
    is_padded,
    plain_numbers,
    to_dates,
    to_datetimes,
    to_floats,
    to_integers,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

Place = Callable[[int], str]
"""Gives the name of a row of the block."""

_SHOWN: Final = 100
"""Letters of a value that a message may show."""

_FLOAT32_INTEGERS: Final = 1 << 24
"""Whole numbers up to this are the same in float32."""


def text_evidence(
    column: Any, place: Place, options: TableOptions, allowed: frozenset[str] = TEXT_KINDS
) -> Evidence:
    """Look at a column of text.

    Args:
        column: Dictionary array whose values are distinct, all used, and in the order in which
            they appear first.
        place: Names rows.
        options: How numbers are written.
        allowed: What the values may be, whatever they look like.
    """
    values = column.dictionary
    if column.null_count == len(column):
        return Evidence(count=len(column), missing=len(column), kinds=TEXT_KINDS)
    kinds = set(TEXT_KINDS)
    not_kind: dict[str, tuple[str, str]] = {}
    places: dict[int, str] = {}  # most columns of words have one value that is of no other kind
    padded = False
    for kind in sorted(TEXT_KINDS - {"string"}):
        index = first_not(values, kind, options) if kind in allowed else 0
        if index is None:
            continue
        value = values[index].as_py()
        kinds.discard(kind)
        if index not in places:
            places[index] = place(_first_row(column, index))
        shown = value[:_SHOWN] if kind in allowed else in_quotes(value)
        not_kind[kind] = (shown, places[index])
        if kind == "float" and shown == value[:_SHOWN]:
            padded = is_padded(plain_numbers(values[index : index + 1], options)[0].as_py())
    minimum, maximum, exact = _range_of_text(values, kinds, options)
    return Evidence(
        count=len(column),
        missing=column.null_count,
        kinds=frozenset(kinds),
        minimum=minimum,
        maximum=maximum,
        exponent=decimal_places(values, options) if "float" in kinds else None,
        not_kind=not_kind,
        leading_zeros=padded,
        float32_exact=exact,
        types={"text": place(_first_row(column, 0))},
    )


def _first_row(column: Any, index: int) -> int:
    import pyarrow.compute as pc

    if index == 0 and not column.null_count:
        return 0  # values are in the order in which they appear first
    return int(pc.index(column.indices, index).as_py())


def _range_of_text(
    values: Any, kinds: set[str], options: TableOptions
) -> tuple[int | float | None, int | float | None, bool]:
    """Return the smallest and largest value, and whether float32 holds them all."""
    import pyarrow as pa

    if "integer" in kinds:
        try:
            low, high = map(int, _range(to_integers(values, options)))
        except pa.ArrowInvalid:  # more digits than any type of Arrow has
            # `int` takes no more than 4,300 digits.
            plain = plain_numbers(values, options).to_pylist()
            found = [int(Decimal(value)) for value in plain]
            low, high = min(found), max(found)
        exact = max(-low, high) <= _FLOAT32_INTEGERS
        # What float64 rounds is found when a column is fitted as one of floats, as of all blocks.
        exact = exact or in_float32(to_floats(values, options).to_numpy(zero_copy_only=False))
        return low, high, exact
    if "float" in kinds:
        floats = to_floats(values, options)
        low, high = _range(floats)
        return low, high, in_float32(floats.to_numpy(zero_copy_only=False))
    if "date" in kinds:
        return *_range(to_dates(values).cast(pa.int32())), True
    if "datetime" in kinds:
        return *_range(to_datetimes(values).cast(pa.int64())), True
    return None, None, True


def typed_evidence(column: Any, kinds: frozenset[str], place: Place) -> Evidence:
    """Look at a column that has a type.

    Args:
        column: Array of a type that `Block` allows and that is no text.
        kinds: What it counts as.
        place: Names rows.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = column.null_count
    low: Any = None
    high: Any = None
    lengths = None
    exact = True
    exponent = None
    if kinds.isdisjoint({"list", "boolean"}) and missing < len(column):
        if pa.types.is_floating(column.type):
            floats = column.cast(pa.float64())
            missing += pc.sum(pc.is_nan(floats)).as_py() or 0
            exact = in_float32(floats.drop_null().to_numpy(zero_copy_only=False))
            low, high = _range(floats)
            if "string" in kinds:
                exponent = places_of_floats(floats.drop_null().to_numpy(zero_copy_only=False))
        elif pa.types.is_integer(column.type):
            low, high = _range(column)
            exact = max(-low, high) <= _FLOAT32_INTEGERS
            exact = exact or in_float32(column.drop_null().to_numpy().astype(np.float64))
            exponent = 0
        elif pa.types.is_decimal(column.type):
            low, high = _range(column)
            exact, exponent = _decimals_in_float32(column), _scale(column)
        elif pa.types.is_date32(column.type):
            low, high = _range(column.cast(pa.int32()))
        elif pa.types.is_timestamp(column.type) or pa.types.is_time64(column.type):
            low, high = _range(column.cast(pa.int64()))
    elif "list" in kinds and missing < len(column):
        bounds = pc.min_max(pc.list_value_length(column))
        lengths = (int(bounds["min"].as_py()), int(bounds["max"].as_py()))
        exact = _list_in_float32(pc.list_flatten(column))
    return Evidence(
        count=len(column),
        missing=missing,
        kinds=kinds,
        minimum=low,
        maximum=high,
        exponent=exponent,
        not_kind=_others(column, kinds, place),
        float32_exact=exact,
        list_lengths=lengths,
        is_typed=kinds == {"string"},
        types=_types(column, kinds, place) if missing < len(column) else {},
    )


_TYPES: Final = {
    "integer": "whole numbers",
    "float": "floats",
    "decimal": "decimals",
    "boolean": "truth values",
    "date": "dates",
    "time": "times of day",
    "list": "lists",
}


def _types(column: Any, kinds: frozenset[str], place: Place) -> dict[str, str]:
    """Name the type of a column and its first value; what CSV and JSON have written is text."""
    import pyarrow.compute as pc

    row = 0 if column[0].is_valid else pc.index(column.is_valid(), value=True).as_py()
    if "string" in kinds:
        return {"text": place(row)}
    if kinds == {"datetime"}:
        return {NAIVE if column.type.tz is None else ZONED: place(row)}
    return {_TYPES[kind]: place(row) for kind in kinds if kind in _TYPES}


def unread_evidence(count: int) -> Evidence:
    """Return the evidence of a column that is not read."""
    return Evidence(count=count, missing=count, kinds=NULL)


def _others(column: Any, kinds: frozenset[str], place: Place) -> dict[str, tuple[str, str]]:
    """Name the first value as one that is of no other kind than the column's."""
    import pyarrow.compute as pc

    if not len(column) or kinds == NULL:
        return {}
    row = 0 if column[0].is_valid else pc.index(column.is_valid(), value=True).as_py()
    if row < 0:
        strange = any(kind.startswith("other:") for kind in kinds)
        return {"string": (str(column.type)[:_SHOWN], place(0))} if strange else {}
    value = str(value_at(column, row))[:_SHOWN]
    return dict.fromkeys(sorted(TEXT_KINDS - kinds), (value, place(row)))


def _range(column: Any) -> tuple[Any, Any]:
    """Return the smallest and the largest value; NaN is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(column.type):
        return whole_range(column) or (None, None)
    bounds = pc.min_max(column)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if isinstance(low, float) and low != low:
        return None, None
    return low, high


def in_float32(values: "NDArray[np.float64]") -> bool:
    """Whether all numbers are the same in float32."""
    with np.errstate(over="ignore"):
        return bool(np.array_equal(values, values.astype(np.float32), equal_nan=True))


def _integers_in_float32(column: Any, low: int, high: int) -> bool:
    if max(-low, high) <= _FLOAT32_INTEGERS:
        return True
    # Through float64, numbers beyond 2**53 might be rounded twice and be equal to themselves.
    values = column.drop_null().to_numpy(zero_copy_only=False)
    rounded = values.astype(np.float32)
    limit = np.float32(np.iinfo(values.dtype).max)  # one above the largest: a cast back would wrap
    return bool((rounded < limit).all() and (rounded.astype(values.dtype) == values).all())


def _decimals_in_float32(column: Any) -> bool:
    import pyarrow.compute as pc

    return all(
        Decimal(float(np.float32(v))) == v for v in pc.unique(column.drop_null()).to_pylist()
    )


def _scale(column: Any) -> int:
    """Return how many decimal places the decimals need."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = pc.unique(column.drop_null())
    needed: int = column.type.scale
    make = pa.decimal256 if pa.types.is_decimal256(column.type) else pa.decimal128
    while needed > 0:
        try:
            values = values.cast(make(column.type.precision, needed - 1))
        except pa.ArrowInvalid:
            break
        needed -= 1
    return max(0, needed)


def _list_in_float32(values: Any) -> bool:
    import pyarrow as pa

    values = values.drop_null()
    if pa.types.is_floating(values.type):
        return in_float32(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
    if pa.types.is_integer(values.type) and len(values):
        return _integers_in_float32(values, *_range(values))
    return True
