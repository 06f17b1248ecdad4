"""Values as texts: one value is one category, whatever the type that a file or a program has."""

from datetime import date, time
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Final

import numpy as np

_EXACT: Final = 1 << 53


def number_text(value: float) -> str:
    """Return a float as text: a whole number as one, so that 2 and 2.0 are the same category.

    Beyond 2**53, where floats may stand for other whole numbers, it stays a float.
    """
    return str(int(value)) if value.is_integer() and abs(value) < _EXACT else str(value)


def decimal_text(value: Decimal) -> str:
    """Return a decimal as text: the same for 1, 1.0 and 1.00, with all digits and no exponent."""
    text = f"{value:f}"  # exact, unlike `normalize`, which rounds to the digits of a context
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def text_of(value: Any) -> str:
    """Return a value that is not missing as `prep table` writes it for a vocabulary.

    Raises:
        TypeError: It has no such form.
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, np.datetime64):
        return text_of(value.astype("M8[us]").item())
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return number_text(float(value))
    raise TypeError("is no text, number, truth value or time")
