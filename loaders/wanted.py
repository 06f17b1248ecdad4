"""Which samples each batch of an epoch takes, announced to the kernel before they are asked for."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from loaders.announce import announce_ahead, chunk_blocks
from loaders.groups import Groups
from loaders.order import AS_STORED, Epoch, visit
from loaders.schedule import Schedule, Step
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
        taken: Positions of each group that are gone after it, on all ranks together.
    """

    indices: NDArray[np.int64]
    positions: NDArray[np.int64]
    valid: NDArray[np.bool_] | None
    taken: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The batches of a rank.

    Attributes:
        dataset: What they are taken from.
        schedule: Which positions of an epoch each takes.
        groups: What its positions are of; None for the dataset as a whole.
        shuffle: Whether positions are visited in random order, or "block".
        window: Samples that are then shuffled together; None without blocks.
        seed: Fixes the order, with the epoch.
        announced: Whether the kernel is told of samples: where they lie on a disk.
    """

    dataset: Gatherable
    schedule: Schedule
    groups: Groups | None
    shuffle: bool | Literal["block"]
    window: int | None
    seed: int
    announced: bool

    def __post_init__(self) -> None:
        visit(self.dataset, np.empty(0, np.int64), self._epoch(0))  # it may refuse the order

    def batches(self, epoch: int, taken: Sequence[int]) -> Generator[Wanted, None, None]:
        """Yield the samples of each batch that is left, in order.

        Args:
            epoch: Its number.
            taken: Positions of each group that are gone.
        """
        found = self._batches(epoch, taken)
        if not self.announced:
            yield from found
            return
        yield from announce_ahead(self.dataset, found, lambda batch: batch.indices, self._chunk)

    def _batches(self, epoch: int, taken: Sequence[int]) -> Iterator[Wanted]:
        steps = self.schedule.steps(epoch, taken)
        size = max(1, _PERMUTED // self.schedule.shares[0].batch_size)
        while chunk := list(islice(steps, size)):
            batches: dict[int, Wanted] = {}
            for group in {step.group for step in chunk}:
                own = {n: step for n, step in enumerate(chunk) if step.group == group}
                batches.update(zip(own, self._of_group(group, [*own.values()], epoch), strict=True))
            yield from (batches[number] for number in range(len(chunk)))

    def _of_group(self, group: int, steps: Sequence[Step], epoch: int) -> Iterator[Wanted]:
        """Yield the samples of batches of one group."""
        share = self.schedule.shares[group]
        positions, valid = share.positions([step.start for step in steps])
        indices = self._visit(group, positions.reshape(-1), epoch).reshape(positions.shape)
        if self.groups is not None:
            positions += self.groups.starts[group]  # no two samples of an epoch have the same
        for row, places, known, step in zip(indices, positions, valid, steps, strict=True):
            if share.last is None:
                yield Wanted(row[known], places[known], None, step.taken)
            else:
                yield Wanted(row, places, known if share.last == "pad" else None, step.taken)

    def _visit(self, group: int, places: NDArray[np.int64], number: int) -> NDArray[np.int64]:
        epoch = self._epoch(number)
        if self.groups is None:
            return visit(self.dataset, places, epoch)
        return visit(self.dataset, self.groups.visit(group, places, epoch), AS_STORED)

    def _epoch(self, number: int) -> Epoch:
        shuffle = bool(self.shuffle)
        return Epoch(shuffle=shuffle, seed=self.seed, number=number, window=self.window)

    def _chunk(self, first: Wanted) -> int:
        """Return how many batches are announced at a time.

        Of a whole window, where there is one: its blocks are then read one after the other.
        """
        if self.window is not None:
            return -(-self.window // self.schedule.shares[0].step)
        return chunk_blocks(len(first.indices), batch_nbytes(self.dataset.views, first.indices))
