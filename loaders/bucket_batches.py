"""Batches of one bucket for torch's own DataLoader: lists of indices."""

from collections.abc import Iterator
from typing import Literal

import torch

from loaders.errors import SelectionError
from loaders.groups import groups_of
from loaders.order import Epoch
from loaders.samples import SampleDataset
from loaders.sampling import Share, chosen_last, chosen_ranks
from loaders.schedule import Schedule, check_full


class BucketBatches(torch.utils.data.Sampler[list[int]]):
    """The batches that a `Loader` makes of a dataset in buckets, as lists of indices.

    `DataLoader(ds, batch_sampler=BucketBatches(ds, 64))`, with any number of workers. Each pass is
    the next epoch. Exact resume, and marks of fillers, are what `Loader` is for.

    Args:
        dataset: In buckets: `prep images --fit bucket`; or a selection of one.
        batch_size: Samples in a batch of one rank.
        shuffle: In random order, or bucket by bucket as stored.
        seed: Fixes the order, with the epoch.
        drop_last: Leave out batches that a bucket cannot fill; False gives them smaller.
        rank: Number of this process among all that train; from torch.distributed by default.
        world_size: How many these are; from torch.distributed by default, 1 without it.
        last: In place of `drop_last`: "drop", or "wrap", which fills them with samples of their
            bucket.

    Raises:
        SelectionError: There are no buckets, none fills a batch where only full ones are wanted, or
            an option is out of range or contradicts another.
    """

    def __init__(  # noqa: PLR0913 - those of `Loader`
        self,
        dataset: SampleDataset,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        last: Literal["drop", "wrap"] | None = None,
    ) -> None:
        groups = groups_of(dataset)
        if groups is None:
            raise SelectionError(
                f"a {type(dataset).__name__} has no buckets: DataLoader(ds, batch_size=...) makes "
                "its batches"
            )
        if last not in {None, "drop", "wrap"}:
            raise SelectionError(
                f'last={last!r}: expected "drop" or "wrap"; Loader(ds, last="pad") marks fillers'
            )
        if type(seed) is not int or seed < 0:
            raise SelectionError(f"seed={seed!r}: expected an integer of at least 0")
        rank, world_size = chosen_ranks(rank, world_size)
        share = Share(
            count=len(dataset),
            batch_size=batch_size,
            rank=rank,
            world_size=world_size,
            last=chosen_last(drop_last=drop_last, last=last),
        )
        self._groups = groups
        self._schedule = Schedule.of(share, groups, seed=seed, shuffle=shuffle)
        check_full(dataset, self._schedule, groups)
        self._shuffle = shuffle
        self._seed = seed
        self._epoch = 0

    def __len__(self) -> int:
        """Return the batches in an epoch, on each rank alike."""
        return len(self._schedule)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass; without this each pass is the next one."""
        if type(epoch) is not int or epoch < 0:
            raise SelectionError(f"epoch={epoch!r}: expected an integer of at least 0")
        self._epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        """Begin the next epoch, with the first batch: a DataLoader with workers asks twice."""
        epoch = Epoch(shuffle=self._shuffle, seed=self._seed, number=self._epoch)
        self._epoch += 1
        for step in self._schedule.steps(epoch.number, self._schedule.nothing):
            share = self._schedule.shares[step.group]
            (places,), (known,) = share.positions([step.start])
            wanted = places[known] if share.last is None else places
            yield self._groups.visit(step.group, wanted, epoch).tolist()
