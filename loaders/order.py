"""Which sample each position of an epoch holds: as stored, shuffled whole, or window by window."""

from collections.abc import Sized
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from loaders.errors import SelectionError
from loaders.sampling import derived_seed, permute
from loaders.views import Gatherable, batch_nbytes

Shuffle = bool | Literal["global", "block"]

WINDOW_NBYTES: Final = 1 << 30
"""Bytes of a window by default: it is in the page cache twice, in use and read ahead."""

_MOST_SAMPLES: Final = 1 << 20
"""Samples of a window by default: what a rank takes of one is sorted to be read ahead."""

_BLOCKS: Final = 64
"""Blocks that make up a window: of 16 MiB by default, which a disk reads at nearly its sequential
rate, and many enough to mix samples of 64 places."""

_PROBED: Final = 64
"""Samples whose mean size is taken for that of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """How a pass over a dataset is ordered.

    Attributes:
        shuffle: Whether at random, or as stored.
        seed: Any integer >= 0; with the number it fixes the order.
        number: From 0.
        window: Samples that are shuffled together; None for all.
    """

    shuffle: bool
    seed: int = 0
    number: int = 0
    window: int | None = None

    def permuted(self, positions: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Return which of `count` samples each position [B] in 0..count-1 holds."""
        if not self.shuffle:
            return positions
        if self.window is None:
            return permute(positions, count, self.seed, self.number)
        return permute_blocks(positions, count, self.seed, self.number, self.window)


AS_STORED: Final = Epoch(shuffle=False)


@runtime_checkable
class Ordered(Protocol):
    """A dataset that says itself in which order it is visited."""

    @property
    def span(self) -> int:
        """Indices lie below."""
        ...

    def order(self, positions: NDArray[np.int64], epoch: Epoch) -> NDArray[np.int64]:
        """Return the index of the sample at each position [B] of an epoch."""
        ...


def visit(dataset: Sized, positions: NDArray[np.int64], epoch: Epoch) -> NDArray[np.int64]:
    """Return the index of the sample at each position [B] of an epoch of a dataset."""
    if isinstance(dataset, Ordered):
        return dataset.order(positions, epoch)
    return epoch.permuted(positions, len(dataset))


def permute_blocks(
    positions: NDArray[np.int64], count: int, seed: int, epoch: int, window: int
) -> NDArray[np.int64]:
    """Return which sample each position of an epoch holds that is shuffled window by window.

    Samples are cut into blocks of window / 64 neighbours, from another place on in every epoch, and
    the blocks brought into random order; each `window` samples of that are shuffled. Shards play no
    part: the order does not depend on how many there are, and a single large file is mixed as well.

    Over all positions it is a permutation of 0..count-1, of which any position is worked out alone.

    Args:
        positions: [B] integers in 0..count-1.
        count: Samples.
        seed: Any integer >= 0; with the epoch it fixes the order.
        epoch: Number of the epoch, from 0.
        window: Samples that are shuffled together, at least 1.

    Returns:
        [B] int64 in 0..count-1.
    """
    if not len(positions):
        return np.empty(0, np.int64)
    places = np.empty(len(positions), np.int64)
    windows = positions // window
    for number in np.unique(windows).tolist():
        rows = np.flatnonzero(windows == number)
        start = number * window
        within, size = positions[rows] - start, min(window, count - start)
        places[rows] = permute(within, size, derived_seed(seed, 1 + number), epoch) + start
    block = max(1, window // _BLOCKS)
    numbers, within = np.divmod(places, block)
    whole = count // block
    # The last block may be smaller: it stays where it is, and the start of the first one moves.
    moved = numbers < whole
    numbers[moved] = permute(numbers[moved], whole, derived_seed(seed, 0), epoch)
    first = derived_seed(seed, epoch, 0) % count
    found: NDArray[np.int64] = (numbers * block + within + first) % count
    return found


def chosen_shuffle(shuffle: Shuffle) -> bool | Literal["block"]:
    """Return what a user's `shuffle` says: True is "global".

    Raises:
        SelectionError: It is none of the choices.
    """
    if isinstance(shuffle, bool):
        return shuffle
    if shuffle == "global":
        return True
    if shuffle != "block":
        raise SelectionError(f'shuffle={shuffle!r}: expected True, False, "global" or "block"')
    return shuffle


def chosen_window(dataset: Gatherable, *, blocks: bool, window: int | None) -> int | None:
    """Return the samples of a window, by default 1 GiB of them; None without blocks.

    Raises:
        SelectionError: It is no integer of at least 1, or there are no blocks.
    """
    if window is not None and (type(window) is not int or window < 1):
        raise SelectionError(f"window={window!r}: expected an integer of at least 1")
    if not blocks:
        if window is not None:
            raise SelectionError(f'window={window} is for shuffle="block": give both or neither')
        return None
    if window is not None:
        return window
    # A dataset may refuse blocks, and says so, not that it cannot be visited as stored.
    visit(dataset, np.empty(0, np.int64), Epoch(shuffle=True, window=1))
    first = np.arange(min(_PROBED, len(dataset)), dtype=np.int64)
    probe = visit(dataset, first, AS_STORED)
    nbytes = batch_nbytes(dataset.views, probe)
    return max(1, min(_MOST_SAMPLES, WINDOW_NBYTES * len(probe) // max(1, nbytes)))
