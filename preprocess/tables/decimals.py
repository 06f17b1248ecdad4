"""Decimals -> whole numbers of units of their last place: from what is written, and from floats.

# NOTE [ Decimals that floats tell apart ]
Decimals of up to 15 digits are different floats of 64 bits, and the float next to one gives it back
(IEEE 754: 15 = floor(52 * log10(2))). So a column of CSV or JSON in which all numbers have few
places is whole numbers of units: the number is `units / 10**places`, which rounds once, and gives
the very float that is next to what is written. Whatever has more digits is looked at one by one.
"""

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from preprocess.tables.buffers import validity
from preprocess.tables.columns import string_buffers
from preprocess.tables.options import TableOptions
from preprocess.tables.text import MAX_PLACES, plain_numbers, to_floats

if TYPE_CHECKING:
    import pyarrow as pa

MAX_UNITS: Final = 10**15
"""Floats tell whole numbers of units below from each other: see the note."""

_MAX_UNITS_32: Final = 10**6
"""The same for float32."""

NO_MULTIPLE: Final = -(1 << 63)
"""Stands for a number that is no multiple of the unit; no column has a code for it."""

_INT64_MAX: Final = (1 << 63) - 1
_LETTERS: Final = 17
"""Of 15 digits, a sign and a point: longer numbers may be other ones than their floats."""

_HEAD: Final = 64
"""Numbers that are looked at first: those of most columns that are no decimals tell it."""


def units_of(
    array: "pa.Array", exponent: int | None, options: TableOptions
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Convert numbers to units of 10**exponent.

    Args:
        array: Decimals, whole numbers, floats or texts of numbers, as a `Block` holds them.
        exponent: At most 0; None for that of the type of decimals.
        options: How numbers are written as text.

    Returns:
        [n] int64, 0 for missing ones, `NO_MULTIPLE` for those that have more places; and [n] bool,
        False for missing ones.

    Raises:
        OverflowError: A number is beyond int64.
        pyarrow.ArrowInvalid: A text is no number, or a decimal no multiple.
    """
    import pyarrow as pa

    valid = validity(array)
    if pa.types.is_decimal(array.type):
        return _unscaled(array, array.type.scale if exponent is None else -exponent), valid
    places = -(exponent or 0)
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.int64), valid
    if pa.types.is_integer(array.type):
        whole = array.cast(pa.int64()).fill_null(0).to_numpy()
        if len(whole) and max(-int(whole.min()), int(whole.max())) > _INT64_MAX // 10**places:
            raise OverflowError(f"some, in units of 10**-{places}, are beyond 64 bits")
        return whole * 10**places, valid
    if not pa.types.is_floating(array.type):
        return _from_texts(array, places, options), valid
    floats = array.cast(pa.float64()).fill_null(np.nan).to_numpy()
    units, exact = rounded_units(floats, places)
    valid = ~np.isnan(floats)
    narrow = array.type.bit_width < floats.dtype.itemsize * 8
    if narrow:
        near = (units / 10**places).astype(np.float32) == floats
        exact = near & (np.abs(units) < _MAX_UNITS_32)
    for place in np.flatnonzero(valid & ~exact).tolist():
        # The shortest text that gives the float is what it stands for.
        shown = str(np.float32(floats[place])) if narrow else repr(float(floats[place]))
        units[place] = _exact_units(Decimal(shown), places)
    return np.where(valid, units, 0), valid


def rounded_units(
    values: NDArray[np.float64], places: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return floats in units of 10**-places, [n], and which of them are the float next to that.

    Units are 0 where the float does not tell them; see the note.
    """
    unit = 10.0**places
    with np.errstate(over="ignore", invalid="ignore"):
        near = np.rint(values * unit)
        exact = (np.abs(near) < MAX_UNITS) & (near / unit == values)
    return np.where(exact, near, 0).astype(np.int64), exact


def places_of_floats(values: NDArray[np.float64]) -> int | None:
    """Return how many decimal places numbers need; None if floats do not tell that of some.

    Args:
        values: [n]; infinite ones and -0.0 are no decimals.
    """
    if bool((np.signbit(values) & (values == 0)).any()):
        return None
    places = 0
    for part in (values[:_HEAD], values):
        left = part
        while len(left):
            _, exact = rounded_units(left, places)
            left = left[~exact]
            places += bool(len(left))
            if places > MAX_PLACES:
                return None
    largest = float(np.abs(values).max(initial=0.0))
    return places if round(largest * 10**places) < MAX_UNITS else None


def _from_texts(texts: "pa.Array", places: int, options: TableOptions) -> NDArray[np.int64]:
    """Return numbers that are written as text in units; missing ones are 0."""
    plain = plain_numbers(texts, options)
    floats = to_floats(texts, options).fill_null(0).to_numpy()
    units, exact = rounded_units(floats, places)
    _, starts, ends = string_buffers(plain)
    for place in np.flatnonzero(~exact | (ends - starts > _LETTERS)).tolist():
        units[place] = _exact_units(Decimal(plain[place].as_py()), places)
    return units


def _exact_units(number: Decimal, places: int) -> int:
    if not number.is_finite():
        return NO_MULTIPLE
    sign, digits, scale = number.as_tuple()
    power = int(scale) + places
    whole = int("".join(map(str, digits))) * (-1 if sign else 1)
    if not whole:
        return 0
    if power > len(str(_INT64_MAX)):
        raise OverflowError(f"{number} is beyond 64 bits")
    units, rest = whole * int(10 ** max(power, 0)), 0
    if power < 0:
        units, rest = divmod(whole, int(10 ** min(-power, len(digits) + 1)))
    if rest:
        return NO_MULTIPLE
    if abs(units) > _INT64_MAX:
        raise OverflowError(f"{number} is beyond 64 bits")
    return units


def _unscaled(array: "pa.Array", scale: int) -> NDArray[np.int64]:
    """Return decimals in units of 10**-scale, 0 for missing; OverflowError beyond int64."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if array.type.scale != scale or array.type.bit_width < 64:
        array = pc.cast(array, pa.decimal256(76, scale))
    words = array.type.bit_width // 64
    raw = np.frombuffer(array.buffers()[1], "<i8").reshape(-1, words)
    raw = raw[array.offset : array.offset + len(array)]
    valid = validity(array)
    # The upper words of a number within int64 repeat its sign.
    beyond = np.flatnonzero((raw[:, 1:] != (raw[:, :1] >> 63)).any(axis=1) & valid)
    if len(beyond):
        raise OverflowError(f"{array[int(beyond[0])].as_py()} is beyond 64 bits")
    return np.where(valid, raw[:, 0], 0)


def range_in_units(low: Any, high: Any, places: int) -> tuple[int, int] | None:
    """Return the range of decimals in units of 10**-places; None where floats do not tell it."""
    try:
        ends = [_exact_units(Decimal(repr(float(end))), places) for end in (low, high)]
    except OverflowError:
        return None
    return None if max(map(abs, ends)) >= MAX_UNITS else (ends[0], ends[1])
