"""Order as a pure function of seed and epoch, and each rank's share of it."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from loaders.errors import SelectionError

MOST: Final = 1 << 40
"""Positions that can be permuted: both halves of one have to fit into 32 bits with room to add."""

Last = Literal["drop", "pad", "wrap"]

_ROUNDS: Final = 6  # even, so that the halves end where they began
_CHUNK: Final = 16_384
"""Positions permuted at a time: the arrays of a round stay in the second cache, and what 60 calls
cost beside their work is shared by many."""

_CANDIDATES: Final = 1000

# Arrays of no dimension: a call takes 0.2 microseconds less with one than with a NumPy scalar.
_FIRST, _SECOND = np.array(0x7FEB352D, np.uint32), np.array(0x846CA68B, np.uint32)
_FOLD, _DROP = np.array(15, np.uint32), np.array(4, np.uint32)


def permute(positions: NDArray[np.int64], count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return which sample each position of a shuffled epoch holds.

    Over all positions it is a permutation of 0..count-1. Nothing is stored: any position of any
    epoch is worked out alone.

    Args:
        positions: [B] integers in 0..count-1.
        count: Samples, up to `MOST`.
        seed: Any integer >= 0; with the epoch it fixes the order.
        epoch: Number of the epoch, from 0.

    Returns:
        [B] int64 in 0..count-1.

    Raises:
        ValueError: An argument is out of range.

    Source:
        Black, Rogaway, "Ciphers with Arbitrary Finite Domains", 2002: a Feistel network over
        Z_a x Z_b, and walking on along the cycle while the result is >= count. Round function: the
        integer hash "lowbias32" of Wellons, "Prospecting for Hash Functions", 2018, without its
        first step, keyed by BLAKE2b of seed and epoch.
    """
    if seed < 0 or epoch < 0:
        raise ValueError(f"seed={seed}, epoch={epoch}: expected integers >= 0")
    if not 0 <= count <= MOST:
        raise ValueError(f"count={count}: expected 0 to {MOST}")
    # Seen as unsigned, a negative position is too large as well.
    if positions.size and int(positions.view(np.uint64).max()) >= count:
        raise ValueError(f"expected positions from 0 to {count - 1}")
    found = np.empty(len(positions), np.int64)
    radices, keys = _radices(count), _round_keys(seed, epoch)
    for start in range(0, len(positions), _CHUNK):
        chunk = found[start : start + _CHUNK]
        _encrypt(positions[start : start + _CHUNK], radices, keys, chunk)
        outside = np.flatnonzero(chunk >= count)
        while outside.size:
            walked = chunk[outside]
            _encrypt(walked, radices, keys, walked)
            chunk[outside] = walked
            outside = outside[walked >= count]
    return found


def _encrypt(
    positions: NDArray[np.int64],
    radices: tuple[int, int],
    keys: Sequence[NDArray[np.uint32]],
    out: NDArray[np.int64],
) -> None:
    """Permute 0..a*b-1, the pairs of a left half in 0..a-1 and a right one in 0..b-1."""
    a, b = radices
    # Half the memory, and divisions of 32 bits, wherever positions fit.
    whole = np.dtype(np.uint32 if a * b <= 1 << 32 else np.int64)
    base = whole.type(b)
    places = positions.astype(whole)
    quotient = places // base
    places -= quotient * base
    left = quotient.astype(np.uint32, copy=False)
    right = places.astype(np.uint32, copy=False)
    mixed, folded = np.empty_like(left), np.empty_like(left)
    modulus, other = np.array(a, np.uint32), np.array(b, np.uint32)
    for key in keys:
        np.bitwise_xor(right, key, out=mixed)
        np.multiply(mixed, _FIRST, out=mixed)
        np.right_shift(mixed, _FOLD, out=folded)
        np.bitwise_xor(mixed, folded, out=mixed)
        np.multiply(mixed, _SECOND, out=mixed)
        # The low bits of a product depend on few others; and the sum has to fit.
        np.right_shift(mixed, _DROP, out=mixed)
        np.add(mixed, left, out=mixed)
        # The remainder: NumPy divides many numbers by one at a time, but has no such loop for `%`,
        # which took three times as long as these three.
        np.floor_divide(mixed, modulus, out=folded)
        np.multiply(folded, modulus, out=folded)
        np.subtract(mixed, folded, out=mixed)
        left, right, mixed = right, mixed, left
        modulus, other = other, modulus
    found = left.astype(whole, copy=False)
    found *= base
    found += right
    out[...] = found


@lru_cache(maxsize=256)
def _radices(count: int) -> tuple[int, int]:
    """Return a and b near the root of `count` whose product is the least that is >= it.

    Hardly a position is then outside 0..count-1 and has to be walked on.
    """
    root = math.isqrt(max(count, 1) - 1) + 1
    lowest = max(root * 3 // 4, root - _CANDIDATES, min(2, root))
    a = min(range(root, lowest - 1, -1), key=lambda a: -count % a)
    return a, max(1, -(-count // a))


@lru_cache(maxsize=256)
def _round_keys(seed: int, epoch: int) -> tuple[NDArray[np.uint32], ...]:
    digest = hashlib.blake2b(f"{seed},{epoch}".encode(), digest_size=4 * _ROUNDS).digest()
    return tuple(np.array(key, np.uint32) for key in np.frombuffer(digest, "<u4"))


def derived_seed(*numbers: int) -> int:
    """Return a seed that depends on all of the integers >= 0 and their order."""
    text = ",".join(str(number) for number in numbers)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Which positions of an epoch each batch of a rank takes.

    A global batch is `batch_size * world_size` consecutive positions, and rank r takes the r-th
    `batch_size` of them: the global order is the same for every number of ranks. How many batches
    there are does not depend on the rank.

    Attributes:
        count: Positions in an epoch.
        batch_size: Samples of a rank in a batch.
        rank: 0..world_size-1.
        world_size: Ranks.
        last: What becomes of a global batch that the epoch cannot fill: "drop" leaves it out,
            "wrap" fills it from the start of the same epoch, "pad" does so and marks what is
            filled in. None, for one rank alone: it is smaller.
    """

    count: int
    batch_size: int
    rank: int = 0
    world_size: int = 1
    last: Last | None = "drop"

    def __post_init__(self) -> None:
        for name, least in (("batch_size", 1), ("world_size", 1), ("rank", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise SelectionError(f"{name}={value!r}: expected an integer of at least {least}")
        if self.count > MOST:
            raise SelectionError(f"{self.count} samples in an epoch, up to {MOST} can be")
        if self.rank >= self.world_size:
            raise SelectionError(
                f"rank={self.rank} of world_size={self.world_size}: ranks are counted from 0"
            )
        if self.last is None and self.world_size > 1:
            raise SelectionError(
                f"drop_last=False with world_size={self.world_size}: ranks need batches of one "
                'size: give last="pad" for evaluation or last="wrap" for training'
            )
        if self.last not in {None, "drop", "pad", "wrap"}:
            raise SelectionError(f'last={self.last!r}: expected "drop", "pad" or "wrap"')

    @property
    def step(self) -> int:
        """Positions in a global batch."""
        return self.batch_size * self.world_size

    def starts(self, taken: int = 0) -> range:
        """Return where the global batches of an epoch start, of which `taken` is gone."""
        left = max(0, self.count - taken)
        batches = left // self.step if self.last == "drop" else -(-left // self.step)
        return range(taken, taken + batches * self.step, self.step)

    def positions(self, starts: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return the positions of this rank in some global batches.

        Returns:
            [batches, batch_size] int64 in 0..count-1, and [batches, batch_size] bool: whether
            the epoch reaches so far, or the position is one from its start again.
        """
        places = np.arange(self.batch_size, dtype=np.int64) + self.rank * self.batch_size
        wanted = np.array(starts, np.int64)[:, None] + places
        valid = wanted < self.count
        if self.last != "drop":  # there all are valid
            wanted %= self.count
        return wanted, valid


def chosen_last(*, drop_last: bool | None, last: Last | None) -> Last | None:
    """Return what `drop_last` and `last` say together; None for a smaller last batch."""
    if last is None:
        return None if drop_last is False else "drop"
    if drop_last is not None and drop_last != (last == "drop"):
        raise SelectionError(f"drop_last={drop_last} contradicts last={last!r}: give one of them")
    return last


def chosen_ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return rank and number of ranks: as given, as torch.distributed says, or one alone."""
    if (rank is None) != (world_size is None):
        raise SelectionError(f"rank={rank!r}, world_size={world_size!r}: give both or neither")
    if rank is not None and world_size is not None:
        return rank, world_size
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
