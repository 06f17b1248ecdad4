"""CRC-32C of data whose first bytes change after the rest was summed."""

from typing import Final

from google_crc32c import value

_POLYNOMIAL: Final = 0x82F63B78
"""Castagnoli's, with the lowest bit for the highest power, as the checksum itself has it."""

_ONE: Final = 1 << 31
_BYTE: Final = 1 << 23
"""The powers 0 and 8 of x."""


def with_other_start(whole: int, before: bytes, after: bytes, rest: int) -> int:
    """Give the checksum that data have with other first bytes.

    Args:
        whole: Checksum of `before` and what follows it.
        before: The first bytes.
        after: What stands in their place, of the same length.
        rest: Bytes that follow.

    Returns:
        Checksum of `after` and the same that follows.

    Source:
        The sum is linear: those of two data of one length differ by that of their difference, and
        so many zero bytes behind it multiply it by x to the power of eight times as many, modulo
        the polynomial (zlib's crc32_combine).
    """
    return whole ^ _product(value(before) ^ value(after), _power_of_bytes(rest))


def _power_of_bytes(count: int) -> int:
    power, square = _ONE, _BYTE
    while count:
        if count & 1:
            power = _product(power, square)
        square = _product(square, square)
        count >>= 1
    return power


def _product(one: int, other: int) -> int:
    """Multiply two polynomials, modulo Castagnoli's."""
    product = 0
    while one:
        if one & _ONE:
            product ^= other
        one = (one << 1) & 0xFFFFFFFF
        other = (other >> 1) ^ (_POLYNOMIAL if other & 1 else 0)
    return product
