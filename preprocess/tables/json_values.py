"""Values of JSON as Python has them -> a column, of the narrowest type that loses nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from preprocess.tables.json_texts import json_text

if TYPE_CHECKING:
    import pyarrow as pa

EXACT: Final = 1 << 53
"""Whole numbers below are the same in float64."""

_INT64: Final = (-(1 << 63), (1 << 63) - 1)


def column_of_values(values: Sequence[Any]) -> Any:
    """Return values of JSON as the narrowest column that loses nothing of them."""
    import pyarrow as pa

    kinds = {type(value) for value in values} - {type(None)}
    if not kinds:
        return pa.nulls(len(values))
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds <= {int, float} and (number := _number_type(values)):
        return pa.array(values, number)
    if kinds == {dict}:
        return pa.nulls(len(values), pa.struct([]))
    if kinds == {list}:
        return _lists(values)
    texts = [json_text(value) for value in values]
    return pa.array(texts, pa.large_string()).dictionary_encode()


def _number_type(values: Sequence[Any]) -> "pa.DataType | None":
    """Return the type that holds all numbers as they are."""
    import pyarrow as pa

    integers = [value for value in values if type(value) is int]
    floats = any(type(value) is float for value in values)
    low, high = min(integers, default=0), max(integers, default=0)
    if floats:
        return pa.float64() if max(-low, high) < EXACT else None
    if low >= 0 and _INT64[1] < high < 1 << 64:
        return pa.uint64()
    return pa.int64() if _INT64[0] <= low and high <= _INT64[1] else None


def _lists(values: Sequence[Any]) -> Any:
    """Return lists of numbers or of strings; others as lists of lists, which no table holds."""
    import pyarrow as pa

    inner = [element for value in values if value is not None for element in value]
    kinds = {type(element) for element in inner} - {type(None)}
    if not kinds:
        return pa.array(values, pa.list_(pa.null()))
    if kinds == {str}:
        return pa.array(values, pa.list_(pa.string()))
    if kinds <= {int, float} and (number := _number_type(inner)):
        return pa.array(values, pa.list_(number))
    return pa.nulls(len(values), pa.list_(pa.list_(pa.null())))
