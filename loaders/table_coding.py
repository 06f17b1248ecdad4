"""One column of values -> what is stored of it: codes with an offset, codes of texts, or floats."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
from google_crc32c import value as crc32c
from numpy.typing import NDArray

from loaders.errors import SelectionError
from loaders.format.out_of_range import OutOfRange, clip_or_drop, is_outside, narrow_floats
from loaders.format.ragged import filled_up
from loaders.format.table_schema import ColumnSpec
from loaders.format.value_texts import text_of
from loaders.table_values import MisfitError, Values, floats, is_missing, whole_numbers

UNKNOWN: Final = 1
"""Code of a value that a vocabulary does not have."""

DATETIME_PARTS: Final = ("year", "month", "day", "weekday", "hour")
"""What may stand beside times, as columns called like `when.year`."""

_SHOWN: Final = 80
"""Characters of a wrong value that a message repeats."""

_NO_CODE: Final = "is missing, and the values of the column leave no code for that"

Codes = Mapping[str, int]
"""Value -> code."""


_TAKEN: Final = '; TableEncoder(..., out_of_range="clip" or "missing") takes it'

_ROOM: Final = ", or prepare with --room"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A column as it is stored.

    Attributes:
        codes: [n], or [n, length], of the stored dtype.
        outside: Numbers of it that had no code.
    """

    codes: NDArray[Any]
    outside: int = 0


def encode_column(
    spec: ColumnSpec, values: Values, codes: Codes | None, out_of_range: OutOfRange = "refuse"
) -> Encoded:
    """Encode a column.

    Args:
        spec: The column.
        values: [n], of a vector [n] lists or [n, length].
        codes: Of a column with a vocabulary.
        out_of_range: What becomes of numbers that have no code.

    Raises:
        SelectionError: A value is not of the column's kind, or outside what is stored.
    """
    how: OutOfRange = "refuse" if spec.role == "target" else out_of_range
    if spec.kind == "vector":
        lists = encode_lists(spec, values, codes, how)
        return Encoded(filled_up(lists.values, lists.counts, spec.length), lists.outside)
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise SelectionError(f"column {spec.name!r} has shape {values.shape}, expected [n]")
    try:
        return _encode(spec, values, codes, how)
    except MisfitError as bad:
        raise _error(spec, bad.position, values[bad.position], bad.reason) from bad


def encode_part(spec: ColumnSpec, values: Values, part: str) -> Values:
    """Return a part of dates or times in UTC; Monday is 0.

    Args:
        spec: Column of the times.
        values: [n] times.
        part: One of `DATETIME_PARTS`.

    Raises:
        SelectionError: A value is no time.
    """
    try:
        numbers, valid = whole_numbers(values, spec.kind, 0)
    except MisfitError as bad:
        raise _error(spec, bad.position, values[bad.position], bad.reason) from bad
    times = numbers.view("M8[D]" if spec.kind == "date" else "M8[us]")
    days, months = times.astype("M8[D]"), times.astype("M8[M]")
    if part == "year":
        found = times.astype("M8[Y]").astype(np.int64) + 1970
    elif part == "month":
        found = months.astype(np.int64) % 12 + 1
    elif part == "day":
        found = (days - months).astype(np.int64) + 1
    elif part == "weekday":
        found = (days.astype(np.int64) + 3) % 7  # 1970 began on a Thursday
    else:
        found = (times - days).astype("m8[h]").astype(np.int64)
    return [value if known else None for value, known in zip(found.tolist(), valid, strict=True)]


def _encode(spec: ColumnSpec, values: Values, codes: Codes | None, how: OutOfRange) -> Encoded:
    if codes is not None or spec.buckets is not None:
        return Encoded(_encode_texts(spec, values, codes))
    if spec.dtype == "float64":
        return Encoded(floats(values))
    remedy = "" if spec.role == "target" else _TAKEN + (_ROOM if spec.all_bits is None else "")
    if spec.dtype == "float32":
        found, beyond = narrow_floats(floats(values), how)
        if how == "refuse" and beyond.any():
            raise MisfitError(int(np.argmax(beyond)), f"is beyond float32{remedy}")
        return Encoded(found, int(np.count_nonzero(beyond)))
    numbers, valid = _whole(spec, values, how)
    bad = is_outside(numbers, valid, spec)
    if bad.any() and how == "refuse":
        unit = f" * 10**{spec.exponent}" if spec.exponent else ""
        reason = f"is outside {spec.shown_range}{unit}, which {spec.dtype} holds{remedy}"
        raise MisfitError(int(np.argmax(bad)), reason)
    if how != "refuse":
        numbers, valid = clip_or_drop(numbers, valid, spec, how)
    if not spec.nullable and not valid.all():
        raise MisfitError(int(np.argmin(valid)), _NO_CODE)
    shift = np.uint64(-spec.base % (1 << 64))
    stored = numbers.view(np.uint64) + shift  # modulo 2**64: exact within the range
    stored = np.where(valid, stored, np.uint64(0)).astype(spec.dtype)
    return Encoded(stored, int(np.count_nonzero(bad)))


def _whole(
    spec: ColumnSpec, values: Values, how: OutOfRange
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    kind = spec.kind
    try:
        return whole_numbers(values, kind, spec.exponent, unsigned=spec.unsigned)
    except MisfitError:
        if how == "refuse" or kind == "boolean":
            raise
        # Numbers that are to be clipped may be beyond the range of the stored ones.
        return whole_numbers(values, kind, spec.exponent, unsigned=not spec.unsigned)


def _encode_texts(spec: ColumnSpec, values: Values, codes: Codes | None) -> NDArray[Any]:
    look = _look(spec, codes)
    if not isinstance(values, np.ndarray):
        return _look_up(values, look, spec)
    distinct, firsts, places = np.unique(values, return_index=True, return_inverse=True)
    try:
        return _look_up(distinct, look, spec)[places]
    except MisfitError as bad:
        raise MisfitError(int(firsts[bad.position]), bad.reason) from bad


def _look_up(values: Values, look: Callable[[Any], int], spec: ColumnSpec) -> NDArray[Any]:
    known: dict[str, int] = {}
    found = np.empty(len(values), spec.dtype)
    for position, value in enumerate(values):
        is_text = type(value) is str
        code = known.get(value) if is_text else None
        if code is None:
            try:
                code = look(value)
            except (TypeError, ValueError) as error:
                raise MisfitError(position, str(error)) from error
            if is_text:
                known[value] = code
        found[position] = code
    return found


def _look(spec: ColumnSpec, codes: Codes | None) -> Callable[[Any], int]:
    """Return what gives the code of one value."""

    def hashed(value: Any) -> int:
        return 0 if is_missing(value) else 1 + crc32c(text_of(value).encode()) % (spec.buckets or 1)

    def known(value: Any) -> int:
        if codes is None:
            raise ValueError("has no vocabulary")
        lost = is_missing(value)
        code = codes.get(value if isinstance(value, str) else "" if lost else text_of(value))
        if code is None and isinstance(value, float | np.floating) and value.is_integer():
            # As CSV has it.
            code = codes.get(str(float(value)))
        elif code is None and isinstance(value, Decimal):
            code = codes.get(str(value))
        if code is not None and (isinstance(value, str) or not lost):
            return code
        if spec.role == "target":
            raise ValueError("is missing" if lost else f"is none of the {len(codes)} classes")
        return 0 if lost else UNKNOWN

    return known if spec.buckets is None else hashed


@dataclass(frozen=True, slots=True)
class EncodedLists:
    """Lists of a column, encoded.

    Attributes:
        values: [m] of the stored dtype: what all lists hold, one after the other.
        counts: [n] int64: values of each; none of a missing one.
        missing: [n] bool.
        outside: Numbers that had no code.
    """

    values: NDArray[Any]
    counts: NDArray[np.int64]
    missing: NDArray[np.bool_]
    outside: int = 0


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """Samples as they are stored.

    Attributes:
        records: [n].
        lists: Ragged lists beside them, by column.
        outside: Numbers that had no code, by column.
    """

    records: NDArray[Any]
    lists: dict[str, EncodedLists]
    outside: dict[str, int]


def encode_lists(
    spec: ColumnSpec, values: Values, codes: Codes | None, out_of_range: OutOfRange = "refuse"
) -> EncodedLists:
    """Encode lists.

    Args:
        spec: The column.
        values: [n] lists, or [n, length].
        codes: Of a column with a vocabulary.
        out_of_range: What becomes of numbers that have no code.

    Raises:
        SelectionError: A value is not of the column's kind, or outside what is stored; or a list
            has more values than there is room for, or other ones than all that are stored have.
    """
    counts = np.zeros(len(values), np.int64)
    missing = np.zeros(len(values), np.bool_)
    flat: list[Any] = []
    for row, value in enumerate(values):
        is_list = hasattr(value, "__len__") and not isinstance(value, str | bytes)
        if not is_list and is_missing(value):
            if not spec.nullable and spec.layout == "fixed":
                raise _error(spec, row, value, _NO_CODE)
            missing[row] = True
            continue
        if not is_list:
            raise _error(spec, row, value, "is no list")
        _check_length(spec, row, value, exact=codes is None and spec.buckets is None)
        counts[row] = len(value)
        # Of times that are finer than microseconds, `tolist` makes numbers.
        plain = isinstance(value, np.ndarray) and value.dtype.kind != "M"
        flat.extend(value.tolist() if plain else value)
    try:
        encoded = _encode(spec.item, flat, codes, out_of_range)
    except MisfitError as bad:
        row = int(np.searchsorted(np.cumsum(counts), bad.position, side="right"))
        raise _error(spec, row, flat[bad.position], bad.reason) from bad
    return EncodedLists(encoded.codes, counts, missing, encoded.outside)


def _check_length(spec: ColumnSpec, row: int, value: Any, *, exact: bool) -> None:
    if spec.layout == "ragged":
        return
    exact = exact and spec.layout == "fixed"
    if len(value) > spec.length or (exact and len(value) < spec.length):
        count = spec.length if exact else f"up to {spec.length}"
        raise _error(spec, row, value, f"has {len(value)} values, expected {count}")


def _error(spec: ColumnSpec, row: int, value: Any, reason: str) -> SelectionError:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
    return SelectionError(f"column {spec.name!r}, row {row}: {shown} {reason}")
