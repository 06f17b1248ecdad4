"""Values of one column, as a program has them, become whole numbers, floats or texts.

They are the numbers that `prep table` makes of what is written of the values in a file.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Values = Sequence[Any] | NDArray[Any]

_INTEGER: Final = re.compile("0|-?[1-9][0-9]*")
_FLOAT: Final = re.compile(
    r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
    "|(?i:-?(?:inf|infinity)|nan)"
)
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[-+][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_BOOLEANS: Final = {"true": 1, "True": 1, "TRUE": 1, "false": 0, "False": 0, "FALSE": 0}
_INT64: Final = 1 << 63
_EXACT_FLOAT: Final = 1 << 53
_EXACT_POWER: Final = 22  # the largest power of ten that is exact in float64
_MOST_PLACES: Final = 1000
_UNITS: Final = {"date": "D", "datetime": "us"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MisfitError(Exception):
    """A value is not of the column's kind."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


def is_missing(value: Any) -> bool:
    """Return whether it is None, NaN, NaT, pandas.NA, or an empty text."""
    if value is None or isinstance(value, str):
        return value is None or not value
    # pandas.NA has no truth value, and pandas is not asked for here.
    return type(value).__name__ == "NAType" or bool(value != value)


def whole_numbers(
    values: Values, kind: str, exponent: int, *, unsigned: bool = False
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Convert values of a kind that is stored as whole numbers.

    Args:
        values: [n].
        kind: "integer", "boolean", "date", "datetime" or "decimal".
        exponent: Decimals are in units of 10**exponent.
        unsigned: They are within uint64, not int64.

    Returns:
        [n] int64 or uint64, 0 for missing ones, and [n] bool, False for them.

    Raises:
        MisfitError: One is not of the kind, or not a multiple of the unit, or beyond the type.
    """
    array = _plain_array(values)
    if array is not None and array.dtype.kind == "M":
        return _times(array, kind)
    if array is not None and kind not in _UNITS:
        found = _from_numbers(array, kind, exponent, unsigned=unsigned)
        if found is not None:
            return found
    convert: dict[str, Callable[[Any], int]] = {
        "integer": _integer,
        "boolean": _boolean,
        "date": _date,
        "datetime": _datetime,
        "decimal": lambda value: _decimal(value, exponent),
    }
    return _each(values, convert[kind], unsigned=unsigned)


def floats(values: Values) -> NDArray[np.float64]:
    """Convert numbers: [n] float64, NaN for missing ones.

    Raises:
        MisfitError: One is no number.
    """
    array = _plain_array(values)
    if array is not None and array.dtype.kind != "M":
        return array.astype(np.float64)
    found = np.full(len(values), np.nan)
    for position, value in enumerate(values):
        if not is_missing(value):
            found[position] = _at(position, value, _float)
    return found


def _plain_array(values: Values) -> NDArray[Any] | None:
    """Return values as an array of numbers or times, if that changes none of them."""
    if isinstance(values, np.ndarray):
        return values if values.dtype.kind in "biufM" else None
    types = set(map(type, values))
    if not types or types <= {float, type(None)}:
        return np.array(values, np.float64)
    if types == {bool}:
        return np.array(values, np.bool_)
    if types == {int} and all(-_INT64 <= value < _INT64 for value in values):
        return np.array(values, np.int64)
    return None


def _times(array: NDArray[Any], kind: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    valid = ~np.isnat(array)
    if kind not in _UNITS:
        _refuse(valid, f"is a time, not of kind {kind}")
    found = array.astype(f"M8[{_UNITS[kind]}]") if kind in _UNITS else array
    _refuse((found != array) & valid, f"is finer than {_UNITS.get(kind)}, which are stored")
    return np.where(valid, found.view(np.int64), 0), valid


def _from_numbers(
    array: NDArray[Any], kind: str, exponent: int, *, unsigned: bool
) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
    """Convert numbers; None where each has to be looked at in decimals."""
    valid = ~np.isnan(array) if array.dtype.kind == "f" else np.ones(len(array), np.bool_)
    if kind == "boolean":
        _refuse((array != 0) & (array != 1) & valid, "is neither true nor false")
    elif kind == "decimal" and exponent:
        return _from_decimals(array, valid, exponent)
    low, end, dtype = (0, 2 * _INT64, np.uint64) if unsigned else (-_INT64, _INT64, np.int64)
    if array.dtype.kind == "f":
        known = np.where(valid, array, 0).astype(np.float64)
        _refuse(known != np.rint(known), "is no whole number")
        _refuse((known < float(low)) | (known >= float(end)), _beyond(low))
        return known.astype(dtype), valid
    if array.dtype.kind != "b":
        _refuse((array < low) | (array >= end), _beyond(low))
    return array.astype(dtype), valid


def _from_decimals(
    array: NDArray[Any], valid: NDArray[np.bool_], exponent: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]] | None:
    if array.dtype != np.float64 or not -_EXACT_POWER <= exponent < 0:
        return None
    unit = 10.0**-exponent
    known = np.where(valid, array, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        units = np.rint(known * unit)
        # Both are exact, so this is the float next to the decimal: the one that text would give.
        exact = (np.abs(units) <= _EXACT_FLOAT) & (units / unit == known)
    return (units.astype(np.int64), valid) if exact.all() else None


def _beyond(low: int) -> str:
    return "is beyond 64 bits" if low else "is beyond 64 bits without a sign"


def _refuse(bad: NDArray[np.bool_], reason: str) -> None:
    if bad.any():
        raise MisfitError(int(np.argmax(bad)), reason)


def _each(
    values: Values, convert: Callable[[Any], int], *, unsigned: bool
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    low, end, dtype = (0, 2 * _INT64, np.uint64) if unsigned else (-_INT64, _INT64, np.int64)
    found = np.zeros(len(values), dtype)
    valid = np.zeros(len(values), np.bool_)
    for position, value in enumerate(values):
        if is_missing(value):
            continue
        number = _at(position, value, convert)
        if not low <= number < end:
            raise MisfitError(position, _beyond(low))
        found[position], valid[position] = number, True
    return found, valid


def _at(position: int, value: Any, convert: Callable[[Any], Any]) -> Any:
    try:
        return convert(value)
    except MisfitError as misfit:
        raise MisfitError(position, misfit.reason) from misfit
    except (TypeError, ValueError, ArithmeticError) as error:
        raise MisfitError(position, str(error)) from error


def _integer(value: Any) -> int:
    if isinstance(value, str):
        if _INTEGER.fullmatch(value.strip()) is not None:
            return int(value)
        if _FLOAT.fullmatch(value.strip()) is None:
            raise ValueError("is no whole number")
    if isinstance(value, time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * 10**6 + value.microsecond
    return _decimal(value, 0)


def _boolean(value: Any) -> int:
    found = _BOOLEANS.get(value.strip()) if isinstance(value, str) else None
    if found is None and (isinstance(value, str) or value not in {0, 1}):
        raise ValueError("is neither true nor false")
    return int(value) if found is None else found


def _date(value: Any) -> int:
    microseconds = _datetime(value)
    days, rest = divmod(microseconds, 86_400_000_000)
    if rest:
        raise ValueError("is a time within a day, and days are stored")
    return days


def _datetime(value: Any) -> int:
    if isinstance(value, np.datetime64):
        found, _ = _times(np.array([value]), "datetime")
        return int(found[0])
    if isinstance(value, str):
        if _TIME.fullmatch(value.strip()) is None:
            raise ValueError("is no time like 2024-02-29 or 2024-02-29T12:30:00Z")
        value = datetime.fromisoformat(value.strip())
    if not isinstance(value, date):
        raise TypeError("is no time")
    if getattr(value, "nanosecond", 0):
        raise ValueError("is finer than microseconds, which are stored")
    if not isinstance(value, datetime):
        value = datetime.combine(value, time(), UTC)
    passed: timedelta = (value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH
    # In integers: total_seconds() is a float.
    return (passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds


def _decimal(value: Any, exponent: int) -> int:
    number = _number(value)
    if not number.is_finite():
        raise ValueError("is no finite number")
    sign, digits, scale = number.as_tuple()
    whole = int("".join(map(str, digits)) or "0") * (-1 if sign else 1)
    places = int(scale) - exponent
    if not whole:
        return 0
    if places > _MOST_PLACES:  # more than worth multiplying out
        raise ValueError("is beyond 64 bits")
    if places >= 0:
        return whole * int(10**places)
    units, rest = divmod(whole, int(10 ** min(-places, len(digits) + 1)))
    if rest:
        raise ValueError(f"is no multiple of 10**{exponent}" if exponent else "is no whole number")
    return units


def _number(value: Any) -> Decimal:
    if isinstance(value, str):
        if _FLOAT.fullmatch(value.strip()) is None:
            raise ValueError("is no number")
        return Decimal(value.strip())
    if isinstance(value, Decimal):
        return value
    if isinstance(value, Integral | np.bool_):
        return Decimal(int(value))
    if isinstance(value, np.float32 | np.float16):
        return Decimal(str(value))  # the shortest text that gives it, not what float64 adds
    if isinstance(value, Real):
        return Decimal(repr(float(value)))
    raise TypeError("is no number")


def _float(value: Any) -> float:
    if isinstance(value, str):
        if _FLOAT.fullmatch(value.strip()) is None:
            raise ValueError("is no number")
        return float(value)
    if isinstance(value, Real | Decimal | np.bool_):
        return float(value)
    raise TypeError("is no number")
