"""Columns that have a type -> one of the types that blocks hold."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from preprocess.errors import SampleError
from preprocess.tables.block import NULL
from preprocess.tables.columns import is_readable, is_text
from preprocess.tables.plan import with_name

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 60
"""Letters of a type that a message may show."""


def as_held(column: Any, name: str, key: str) -> Any:
    """Return a column that is no text in a type that `Block` allows.

    What no table holds, and times that are finer than microseconds, become nulls of their type.

    Raises:
        SampleError: The column's memory is damaged.
    """
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
        column = column.storage
    if not is_readable(kind):
        return column  # nulls, as `with_unread` makes them
    try:
        column.validate(full=True)
    except pa.ArrowException as error:
        said = f"damaged Arrow data in column {name!r}: {error}; {with_name('--ignore', name)}"
        raise SampleError(key, said) from error
    if pa.types.is_dictionary(kind):
        return as_held(column.dictionary_decode(), name, key)
    if pa.types.is_run_end_encoded(kind):
        import pyarrow.compute as pc

        return as_held(pc.run_end_decode(column), name, key)
    try:
        return column.cast(_held(kind))
    except pa.ArrowInvalid:
        return pa.nulls(len(column), kind)


def _held(kind: "pa.DataType") -> "pa.DataType":
    import pyarrow as pa

    types = pa.types
    if _is_list(kind):
        held = kind.value_field.with_type(_held(kind.value_type))
        if types.is_fixed_size_list(kind):
            return pa.list_(held, kind.list_size)
        return pa.large_list(held) if types.is_large_list(kind) else pa.list_(held)
    if types.is_date(kind):
        return pa.date32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_time(kind):
        return pa.time64("us")
    if types.is_decimal(kind) and kind.bit_width < pa.decimal128(1).bit_width:
        return pa.decimal128(kind.precision, kind.scale)
    return kind


def _is_list(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


@lru_cache(maxsize=1024)
def kinds_of(kind: "pa.DataType") -> frozenset[str]:
    """Return what values of a type are."""
    import pyarrow as pa

    types = pa.types
    if types.is_null(kind):
        return NULL
    tests = {
        "integer": types.is_integer,
        "float": types.is_floating,
        "boolean": types.is_boolean,
        "date": types.is_date32,
        "decimal": types.is_decimal,
        "list": types.is_nested,
    }
    finer = _is_list(kind) and types.is_timestamp(kind.value_type) and kind.value_type.unit != "us"
    if is_readable(kind) and not finer:
        if types.is_timestamp(kind) and kind.unit == "us":
            return frozenset({"datetime"})
        if types.is_time64(kind) and kind.unit == "us":
            return frozenset({"time"})
        if is_text(kind) or types.is_dictionary(kind):
            return frozenset({"string"})
        for name, is_kind in tests.items():
            if is_kind(kind):
                return frozenset({name})
    if types.is_dictionary(kind):
        kind = kind.value_type
    return frozenset({f"other:{str(kind)[:_SHOWN]}"})
