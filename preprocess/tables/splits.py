"""Which row is of which split: by stable hashes of places, or exactly by rank."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from preprocess.shares import SPLIT_STEPS
from preprocess.tables.options import TableOptions

if TYPE_CHECKING:
    import pyarrow as pa

TRAIN: Final = 0
VALIDATION: Final = 1
TEST: Final = 2
SKIPPED: Final = 255
"""Of a row without a target: it is of no split."""

SPLIT_NAMES: Final = ("train", "validation", "test")
"""By their codes."""

_TOGETHER: Final = 1 << 20
"""Bytes of texts that are hashed at a time."""

_LAST: Final = (1 << 64) - 1


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return values whose bits all depend on all bits of the given ones.

    Source:
        The last step of SplitMix64; Steele, Lea and Flood, "Fast splittable pseudorandom number
        generators", 2014.
    """
    found = values + np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


def place_hashes(key: str, rows: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """Return a hash of each row's place, [n] uint64: the file, the row in it, and the seed."""
    name = f"{seed}\0{key}".encode(errors="surrogatepass")
    start = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")
    return mixed(mixed(rows.astype(np.uint64)) ^ np.uint64(start))


def text_hashes(texts: "pa.LargeStringArray", seed: int = 0) -> NDArray[np.uint64]:
    """Return a hash of each text, [n] uint64: a sum over its bytes, each mixed with its place.

    Args:
        texts: Without nulls.
        seed: Changes all hashes.
    """
    _, ends, data = texts.buffers()
    count = len(texts)
    if not count:
        return np.empty(0, np.uint64)
    offsets = np.frombuffer(ends, "<i8")[texts.offset : texts.offset + count + 1]
    whole = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    found = np.empty(count, np.uint64)
    first = 0
    while first < count:
        last = int(np.searchsorted(offsets, offsets[first] + _TOGETHER, side="right")) - 1
        last = min(max(last, first + 1), count)
        part = offsets[first : last + 1] - offsets[first]
        bytes_ = whole[offsets[first] : offsets[last]].astype(np.uint64)
        places = np.arange(len(bytes_)) - np.repeat(part[:-1], np.diff(part))
        sums = np.zeros(len(bytes_) + 1, np.uint64)
        np.cumsum(mixed((places.astype(np.uint64) << np.uint64(8)) | bytes_), out=sums[1:])
        lengths = np.diff(part).astype(np.uint64)
        found[first:last] = sums[part[1:]] - sums[part[:-1]] + mixed(lengths)
        first = last
    return mixed(found ^ np.uint64(seed))


def split_by_hash(hashes: NDArray[np.uint64], options: TableOptions) -> NDArray[np.uint8]:
    """Return the split of each hash, [n] uint8: equal hashes go together."""
    steps = ((hashes >> np.uint64(32)) * np.uint64(SPLIT_STEPS)) >> np.uint64(32)
    validation, test = _steps(options)
    found = np.zeros(len(hashes), np.uint8)
    found[steps >= np.uint64(SPLIT_STEPS - test - validation)] = VALIDATION
    found[steps >= np.uint64(SPLIT_STEPS - test)] = TEST
    return found


def _steps(options: TableOptions) -> tuple[int, int]:
    return round(options.validation * SPLIT_STEPS), round(options.test * SPLIT_STEPS)


def cuts(count: int, options: TableOptions) -> tuple[int, int]:
    """Return the ranks of `count` rows at which validation and test begin, rounded half up."""
    validation, test = _steps(options)
    held, last = (
        (2 * count * steps + SPLIT_STEPS) // (2 * SPLIT_STEPS)
        for steps in (validation + test, test)
    )
    return count - held, count - last


def split_by_value(
    values: NDArray[Any], validation: float | None, test: float | None
) -> NDArray[np.uint8]:
    """Return the split of each value: test from one value on, validation from another before it."""
    found = np.zeros(len(values), np.uint8)
    if validation is not None:
        found[values >= validation] = VALIDATION
    if test is not None:
        found[values >= test] = TEST
    return found


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where the lower of two parts of every class ends.

    Attributes:
        values: [K] uint64: keys below are of the lower part.
        equal: [K] int64: how many of the keys equal to it are, the first in the order of rows.
    """

    values: NDArray[np.uint64]
    equal: NDArray[np.int64]


class Strata:
    """Splits the rows of every class by rank of their hashes: exactly the shares, in each class.

    Holds 8 bytes a row while it is made.

    Args:
        parts: Classes [n] int64, from 0 on, and hashes [n] uint64 of all rows, block by block.
        classes: How many classes there are.
        options: The shares.
    """

    def __init__(
        self,
        parts: Iterable[tuple[NDArray[np.int64], NDArray[np.uint64]]],
        classes: int,
        options: TableOptions,
    ) -> None:
        self._bits = 64 - max(classes - 1, 1).bit_length()
        keys = np.concatenate(
            [np.empty(0, np.uint64), *(self._keys(part, hashes) for part, hashes in parts)]
        )
        keys.sort()
        starts = np.searchsorted(keys, np.arange(classes, dtype=np.uint64) << np.uint64(self._bits))
        ends = np.append(starts[1:], len(keys))
        places: list[list[int]] = [[], []]
        for first, end in zip(starts.tolist(), ends.tolist(), strict=True):
            for found, rank in zip(places, cuts(end - first, options), strict=True):
                found.append(first + rank)
        self._cuts = [_cut(keys, np.array(found), ends) for found in places]
        self._seen = [np.zeros(classes, np.int64) for _ in places]

    def _keys(self, classes: NDArray[np.int64], hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return numbers that sort by class, then by hash."""
        return (classes.astype(np.uint64) << np.uint64(self._bits)) | (
            hashes >> np.uint64(64 - self._bits)
        )

    def split(self, classes: NDArray[np.int64], hashes: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """Return the splits of the next rows, [n] uint8; in the order in which they came."""
        keys = self._keys(classes, hashes)
        above = [
            self._above(cut, seen, classes, keys)
            for cut, seen in zip(self._cuts, self._seen, strict=True)
        ]
        return np.add(above[0], above[1], dtype=np.uint8)

    @staticmethod
    def _above(
        cut: _Cut,
        seen: NDArray[np.int64],
        classes: NDArray[np.int64],
        keys: NDArray[np.uint64],
    ) -> NDArray[np.bool_]:
        above = keys >= cut.values[classes]
        for row in np.flatnonzero((keys == cut.values[classes]) & (cut.equal[classes] > 0)):
            mine = classes[row]
            above[row] = seen[mine] >= cut.equal[mine]
            seen[mine] += 1
        return above


def _cut(keys: NDArray[np.uint64], places: NDArray[np.int64], ends: NDArray[np.int64]) -> _Cut:
    """Return the cut of every class before the key at its place; none where it is the end."""
    inside = places < ends
    values = np.full(len(places), _LAST, np.uint64)
    values[inside] = keys[places[inside]]
    equal = places - np.searchsorted(keys, values, side="left")
    equal[~inside] = np.iinfo(np.int64).max
    return _Cut(values, equal)
