"""Values that are written as text -> numbers, truth values, dates: which are, and what they are.

# NOTE [ How values are written ]
- integer: digits, a minus before them, no leading zero: what `str` of a whole number gives.
- float: the same with decimal places or an exponent, `.5` and `5.`; inf, infinity and nan in any
  case. Numbers with leading zeros or a plus sign are no numbers: 007 and 7 are two ids.
- boolean: true or false; in lower case, upper case, or with a capital.
- date: 2024-02-29. datetime: a date, and `T` or a blank, hours and minutes, and if given seconds
  of up to six places and a zone (Z, +02, +02:00, +0200); without a zone it is UTC.
With other options `decimal` and `thousands`, numbers are written with those instead.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np

from loaders.format.value_texts import decimal_text, number_text
from preprocess.tables.columns import string_buffers
from preprocess.tables.options import TableOptions

_DATE: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ZONE: Final = "(?:Z|[-+][0-9]{2}(?::?[0-9]{2})?)"
_TIME: Final = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_INTEGER: Final = "(?:0|-?[1-9][0-9]*)"
_FLOAT: Final = (
    r"(?:-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
    "|(?i:-?(?:inf|infinity)|nan))"
)
_PADDED: Final = r"[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"

_WRITTEN: Final = {
    "integer": _INTEGER,
    "float": _FLOAT,
    "boolean": "(?:true|false|True|False|TRUE|FALSE)",
    "date": _DATE,
    "datetime": f"{_DATE}(?:[T ]{_TIME}{_ZONE}?)?",
}

TIME_PATTERN: Final = f"^(?:{_WRITTEN['datetime']})$"
"""What dates and times are written like; there is no 30th of February all the same."""

MAX_PLACES: Final = 15
"""Decimal places that are looked for: no float tells more of them."""

_HEAD: Final = 16
"""Values that are looked at one by one first: most columns of words are known by then."""


def first_not(values: Any, kind: str, options: TableOptions) -> int | None:
    """Return the index of the first value that is not of a kind; None if all are.

    Args:
        values: Strings, no nulls.
        kind: One of `TEXT_KINDS` but "string".
        options: How numbers are written.
    """
    import pyarrow.compute as pc

    pattern = _WRITTEN[kind]
    plain = options.decimal == "." and options.thousands is None
    if len(values) and (plain or kind not in {"integer", "float"}):
        first = values[0].as_py()  # what is no word is known by the first one mostly
        if _compiled(pattern).fullmatch(first) is None:
            return 0
    if kind in {"integer", "float"}:
        head = plain_numbers(values[:_HEAD], options).to_pylist()
    else:
        head = values[:_HEAD].to_pylist()
    compiled = _compiled(pattern)
    for index, value in enumerate(head):
        if compiled.fullmatch(value) is None:
            return index
    if kind in {"integer", "float"}:
        values = plain_numbers(values, options)
        if kind == "float" and _are_plain_floats(values):
            return None
    written = pc.match_substring_regex(values, f"^(?:{pattern})$")
    index = pc.index(written, value=False).as_py()
    good = values if index < 0 else values[:index]
    if kind in {"date", "datetime"}:
        wrong = _first_failing(good, to_dates if kind == "date" else to_datetimes)
        index = index if wrong is None else wrong
    return None if index < 0 else int(index)


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _are_plain_floats(values: Any) -> bool:
    """Whether all values are written as floats with digits: five times as fast as a pattern.

    Arrow takes the same and also a plus sign and zeros before them; it takes no blanks.
    """
    import pyarrow as pa

    try:
        values.cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    data, starts, ends = string_buffers(values)
    first = data[starts]
    minus = first == _MINUS
    second = data[np.minimum(starts + minus, ends - 1)]  # the first behind the sign
    third = data[np.minimum(starts + minus + 1, ends - 1)]
    digits = (second >= _ZERO) & (second <= _NINE)
    padded = (second == _ZERO) & (third >= _ZERO) & (third <= _NINE) & (ends - starts - minus > 1)
    return bool(((digits | (second == _POINT)) & ~padded).all())


_MINUS, _POINT, _ZERO, _NINE = b"-.09"


def _first_failing(values: Any, convert: Callable[[Any], Any]) -> int | None:
    """Return the first value that Arrow cannot convert, such as the 30th of February."""
    import pyarrow as pa

    def fails(count: int) -> bool:
        try:
            convert(values[:count])
        except pa.ArrowInvalid:
            return True
        return False

    if not fails(len(values)):
        return None
    good, bad = 0, len(values)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if fails(middle) else (middle, bad)
    return good


def is_padded(value: str) -> bool:
    """Whether a value that is not a number would be one without leading zeros or a plus sign."""
    return _compiled(_PADDED).fullmatch(value) is not None


def plain_numbers(values: Any, options: TableOptions) -> Any:
    """Return strings with the decimal point and without marks between thousands.

    Of values that use the marks in another way nothing is made that is a number.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if options.decimal == "." and options.thousands is None:
        return values
    point = re.escape(options.decimal)
    if options.thousands is not None:
        mark = re.escape(options.thousands)
        groups = f"^-?[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})+(?:{point}[0-9]*)?$"
        grouped = pc.match_substring_regex(values, groups)
        without = pc.replace_substring(values, options.thousands, "")
        # What is left of the mark stands in no number, not even as the point of another option.
        spoiled = pc.replace_substring(values, options.thousands, "?")
        values = pc.if_else(grouped, without, spoiled)
    if options.decimal != ".":
        values = pc.replace_substring(values, ".", "?")
        values = pc.replace_substring(values, options.decimal, ".")
    return values.cast(pa.large_string())


def to_integers(values: Any, options: TableOptions) -> Any:
    """Return strings of whole numbers as int64, or as decimal256 where that is too narrow.

    Raises:
        pyarrow.ArrowInvalid: Some are no whole numbers, or have more than 76 digits.
    """
    import pyarrow as pa

    plain = plain_numbers(values, options)
    try:
        return plain.cast(pa.int64())
    except pa.ArrowInvalid:
        return plain.cast(pa.decimal256(76, 0))


def to_floats(values: Any, options: TableOptions) -> Any:
    """Return strings of numbers as float64, each the nearest to what is written.

    Raises:
        pyarrow.ArrowInvalid: Some are no numbers.
    """
    import pyarrow as pa

    return plain_numbers(values, options).cast(pa.float64())


def to_booleans(values: Any) -> Any:
    """Return strings of truth values as bool."""
    import pyarrow.compute as pc

    return pc.equal(pc.utf8_lower(values), "true")


def to_dates(values: Any) -> Any:
    """Return strings of dates as date32.

    Raises:
        pyarrow.ArrowInvalid: There is no such day.
    """
    import pyarrow as pa

    return values.cast(pa.date32())


def to_datetimes(values: Any) -> Any:
    """Return strings of times, or of dates, as timestamp[us, UTC].

    Raises:
        pyarrow.ArrowInvalid: There is no such time.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    zoned = pc.match_substring_regex(values, f":[0-9]{{2}}[.0-9]*{_ZONE}$")
    nothing = pa.scalar(None, values.type)
    local = pc.if_else(zoned, nothing, values).cast(pa.timestamp("us")).cast(pa.int64())
    utc = pc.if_else(zoned, values, nothing).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return pc.coalesce(local, utc).cast(pa.timestamp("us", "UTC"))


def decimal_places(values: Any, options: TableOptions) -> int | None:
    """Return how many decimal places strings of numbers need.

    Returns:
        None if some are no decimals: exponents, inf, nan and -0.0, or if they need more than
        `MAX_PLACES`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = plain_numbers(values, options)
    data, starts, ends = string_buffers(plain)
    if not len(plain):
        return 0
    points = starts[0] + np.flatnonzero(data[starts[0] : ends[-1]] == _POINT)
    if (data[starts[0] : ends[-1]] > _NINE).any():  # exponents, inf and nan
        return None
    behind = ends[np.searchsorted(ends, points, side="right")]
    places = behind - points - 1
    longest = int(places.max(initial=0))
    if longest and not (data[behind[places == longest] - 1] != _ZERO).any():
        needed = pc.utf8_rtrim(plain.filter(pc.match_substring(plain, ".")), "0")
        lengths = pc.utf8_length(needed).cast(pa.int64())
        points = pc.find_substring(needed, ".").cast(pa.int64())
        longest = int(pc.max(pc.subtract(lengths, points)).as_py()) - 1
    if longest > MAX_PLACES:
        return None
    negative = plain.filter(pa.array(data[starts] == _MINUS))
    zeros = pc.equal(negative.cast(pa.float64()), 0.0).true_count
    return None if zeros else longest


def written(values: Any) -> Any:
    """Return numbers, truth values and times as their texts, large_string."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind):
        return pc.cast(values, pa.large_string())
    if pa.types.is_temporal(kind):
        return pa.array([v.isoformat() for v in values.to_pylist()], pa.large_string())
    write = number_text if pa.types.is_floating(kind) else decimal_text
    return pa.array([write(value) for value in values.to_pylist()], pa.large_string())
