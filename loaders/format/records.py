"""A record: the named columns of one sample, packed into one structured value of few bytes.

The parts stand back to back in the order given, each aligned to its own size, and the whole is
padded to a multiple of the largest, so that records in a row stay aligned. The padding is a part
like the others, so nothing about the bytes is implied: zarr, for one, drops implied padding.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import numpy as np

from loaders.format.strict import Place

RecordPart = tuple[str, str, int]
"""Name, dtype, and how many values of it one after the other; 1 for a single value."""

RECORD: Final = "record"
"""The dtype of a field whose samples are records."""

RECORD_DTYPES: Final = ("int64", "float64", "int32", "float32", "uint16", "uint8")
"""What a record may hold, in the order in which its parts are laid out: by falling size."""

MAX_PARTS: Final = 1 << 16
MAX_NAME: Final = 4096
"""Characters of a name."""

NAME_RULE: Final = f"a name of 1 to {MAX_NAME:,} characters of Unicode, none of them NUL"

MAX_RECORD_NBYTES: Final = 1 << 24

_PADDING: Final = "_padding"
_PART_LENGTH: Final = 3


def check_name(place: Place, name: str) -> None:
    """Refuse a name that NumPy, zarr or UTF-8 could not hold: empty, overlong, NUL, half a pair."""
    place.expect(is_name(name), name, NAME_RULE)


def is_name(name: str) -> bool:
    """Say whether NumPy, zarr and UTF-8 can hold a name."""
    whole = 0 < len(name) <= MAX_NAME and "\0" not in name
    return whole and not any("\ud800" <= sign <= "\udfff" for sign in name)


def pack_record(parts: Iterable[RecordPart]) -> tuple[RecordPart, ...]:
    """Lay parts out in one record: by falling size, like beside like, padded at the end.

    Args:
        parts: Name, dtype and length of each; parts of one dtype keep their order.

    Returns:
        The parts as they are stored. The padding, if it takes any, is the last, called `_padding`;
        underscores follow where a part has that name.
    """
    packed = sorted(parts, key=lambda part: RECORD_DTYPES.index(part[1]))
    sizes = [np.dtype(dtype).itemsize for _, dtype, _ in packed]
    used = sum(size * length for size, (_, _, length) in zip(sizes, packed, strict=True))
    missing = -used % max(sizes, default=1)
    if missing:
        name = _PADDING
        while any(name == taken for taken, _, _ in packed):
            name += "_"
        packed.append((name, "uint8", missing))
    return tuple(packed)


def check_record(place: Place, parts: tuple[RecordPart, ...]) -> None:
    """Refuse parts that are no record: bad names or types, unaligned, not padded, too large.

    Raises:
        FormatError: It names the part.
    """
    place.expect(0 < len(parts) <= MAX_PARTS, len(parts), f"1 to {MAX_PARTS} parts")
    seen = set()
    offset = 0
    largest = 1
    for name, dtype, length in parts:
        check_name(place, name)
        place.expect(name not in seen, name, "different names")
        seen.add(name)
        at = place.at(repr(name))
        at.expect(dtype in RECORD_DTYPES, dtype, f"a dtype of {RECORD_DTYPES}")
        at.integer(length, low=1, high=MAX_RECORD_NBYTES)
        size = np.dtype(dtype).itemsize
        at.expect(offset % size == 0, offset, f"an offset that is a multiple of {size}")
        offset += size * length
        largest = max(largest, size)
    place.expect(offset <= MAX_RECORD_NBYTES, offset, f"up to {MAX_RECORD_NBYTES} bytes")
    place.expect(offset % largest == 0, offset, f"a size that is a multiple of {largest}")


@lru_cache(maxsize=64)  # a thousand columns take a millisecond, and are asked for at every shard
def record_dtype(parts: tuple[RecordPart, ...]) -> np.dtype[Any]:
    """Return the structured dtype of a record: little-endian, no byte implied."""
    whole: list[Any] = []
    for name, dtype, length in parts:
        stored = np.dtype(dtype).newbyteorder("<")
        whole.append((name, stored) if length == 1 else (name, stored, (length,)))
    return np.dtype(whole)


def record_to_json(parts: tuple[RecordPart, ...]) -> list[list[str | int]]:
    """Return the JSON form."""
    return [list(part) for part in parts]


def record_from_json(place: Place, value: Any) -> tuple[RecordPart, ...]:
    """Parse the JSON form: a list of [name, dtype, length]; what it says is left to the field."""
    parts = []
    for index, entry in enumerate(place.sequence(value)):
        at = place.at(str(index))
        part = at.sequence(entry)
        at.expect(len(part) == _PART_LENGTH, part, "name, dtype and length")
        length = at.integer(part[2], low=1, high=MAX_RECORD_NBYTES)
        parts.append((at.text(part[0]), at.text(part[1]), length))
    return tuple(parts)
