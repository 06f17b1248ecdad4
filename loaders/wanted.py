"""Which samples each batch of an epoch takes, announced to the kernel before they are asked for."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from loaders.announce import announce_ahead, chunk_blocks
from loaders.order import Epoch, visit
from loaders.sampling import Share
from loaders.views import Gatherable, batch_nbytes

_PERMUTED: Final = 16_384
"""Positions permuted at a time: 64 cost 0.5 microseconds each, 4,096 0.015, as many 0.007."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The samples of a batch.

    Attributes:
        indices: [B] which samples.
        positions: [B] their places in the epoch: of draws with replacement each has its own.
        valid: [B] which of them are no fillers, if asked for.
    """

    indices: NDArray[np.int64]
    positions: NDArray[np.int64]
    valid: NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The batches of a rank.

    Attributes:
        dataset: What they are taken from.
        share: Which positions of an epoch each takes.
        shuffle: Whether positions are visited in random order, or "block".
        window: Samples that are then shuffled together; None without blocks.
        seed: Fixes the order, with the epoch.
        announced: Whether the kernel is told of samples: where they lie on a disk.
    """

    dataset: Gatherable
    share: Share
    shuffle: bool | Literal["block"]
    window: int | None
    seed: int
    announced: bool

    def __post_init__(self) -> None:
        self._visit(np.empty(0, np.int64), 0)  # a dataset may refuse the order

    def batches(self, epoch: int, starts: range) -> Generator[Wanted, None, None]:
        """Yield the samples of each batch, in order."""
        found = self._batches(epoch, starts)
        if not self.announced:
            yield from found
            return
        yield from announce_ahead(self.dataset, found, lambda batch: batch.indices, self._chunk)

    def _batches(self, epoch: int, starts: range) -> Iterator[Wanted]:
        last = self.share.last
        batches = max(1, _PERMUTED // self.share.batch_size)
        for first in range(0, len(starts), batches):
            positions, valid = self.share.positions(starts[first : first + batches])
            indices = self._visit(positions.reshape(-1), epoch).reshape(positions.shape)
            for row, places, known in zip(indices, positions, valid, strict=True):
                if last is None:
                    yield Wanted(row[known], places[known], None)
                else:
                    yield Wanted(row, places, known if last == "pad" else None)

    def _visit(self, positions: NDArray[np.int64], number: int) -> NDArray[np.int64]:
        shuffle = bool(self.shuffle)
        epoch = Epoch(shuffle=shuffle, seed=self.seed, number=number, window=self.window)
        return visit(self.dataset, positions, epoch)

    def _chunk(self, first: Wanted) -> int:
        """Return how many batches are announced at a time.

        Of a whole window, where there is one: its blocks are then read one after the other.
        """
        if self.window is not None:
            return -(-self.window // self.share.step)
        return chunk_blocks(len(first.indices), batch_nbytes(self.dataset.views, first.indices))
