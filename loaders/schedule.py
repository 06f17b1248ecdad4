"""Which global batches an epoch has, in which order: a pure function of what was handed out."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple, Self

from loaders.errors import SelectionError
from loaders.groups import Groups
from loaders.sampling import Share, derived_seed
from loaders.views import Gatherable


class Step(NamedTuple):
    """One global batch.

    Attributes:
        group: Of which its samples are.
        start: Its first position in an epoch of the group.
        taken: Positions of each group that are gone after it.
    """

    group: int
    start: int
    taken: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The global batches of all ranks, alike on each.

    A batch is of one group, and of a group batches follow each other as `Share` has them: those of
    a dataset without groups are those of its only one. Which group is next is drawn, in proportion
    to the batches that each has left, by seed, epoch and the number of samples that are gone: all
    orders of batches are equally likely, and what is left depends on what is gone alone.

    Attributes:
        shares: Of each group: which of its positions a rank takes.
        seed: Fixes the order, with the epoch.
        shuffle: Whether groups are drawn, or come one after the other.
    """

    shares: tuple[Share, ...]
    seed: int
    shuffle: bool

    @classmethod
    def of(cls, share: Share, groups: Groups | None, *, seed: int, shuffle: bool) -> Self:
        """Lay out the batches of a dataset.

        Args:
            share: Of all positions as if there were no groups.
            groups: What batches are made of; None where any samples will do.
            seed: Fixes the order, with the epoch.
            shuffle: Whether it is random.
        """
        counts = (share.count,) if groups is None else groups.counts
        shares = tuple(replace(share, count=count) for count in counts)
        return cls(shares=shares, seed=seed, shuffle=shuffle)

    def __len__(self) -> int:
        return sum(len(share.starts()) for share in self.shares)

    @property
    def nothing(self) -> tuple[int, ...]:
        """What is gone when an epoch begins."""
        return (0,) * len(self.shares)

    def steps(self, epoch: int, taken: Sequence[int]) -> Iterator[Step]:
        """Yield the global batches that are left.

        Args:
            epoch: Its number.
            taken: Positions of each group that are gone.
        """
        gone = [*taken]
        left = [len(share.starts(own)) for share, own in zip(self.shares, gone, strict=True)]
        while total := sum(left):
            group = self._drawn(left, total, epoch, sum(gone)) if len(left) > 1 else 0
            start, share = gone[group], self.shares[group]
            gone[group] = min(start + share.step, share.count)
            left[group] -= 1
            yield Step(group, start, tuple(gone))

    def _drawn(self, left: Sequence[int], total: int, epoch: int, gone: int) -> int:
        """Return the group of the next batch, where there are several."""
        drawn = derived_seed(self.seed, epoch, gone) % total if self.shuffle else 0
        return next(number for number, end in enumerate(accumulate(left)) if drawn < end)


def check_full(dataset: Gatherable, schedule: Schedule, groups: Groups | None) -> None:
    """Refuse an epoch without a full batch, where only full ones are wanted; name what never is.

    Raises:
        SelectionError: There is no full batch.
    """
    share = schedule.shares[0]
    if share.last != "drop" or not len(dataset):
        return
    if not len(schedule):
        ranks = f" on each of {share.world_size} ranks" if share.world_size > 1 else ""
        remedy = "drop_last=False" if share.world_size == 1 else 'last="wrap"'
        most = "" if groups is None else f", at most {max(groups.counts)} in a bucket"
        raise SelectionError(
            f"batch_size={share.batch_size}{ranks}: {dataset.path} has {len(dataset)} "
            f"{dataset.split} samples{most}, so no batch is full; use a smaller batch_size or "
            f"{remedy}"
        )
    if groups is None or share.rank:
        return
    pairs = zip(groups.names, groups.counts, strict=True)
    small = [f"{name} ({count})" for name, count in pairs if 0 < count < share.step]
    if small:
        sys.stderr.write(
            f"{dataset.path}: {dataset.split}: never full in batches of {share.step} samples, and "
            f'so left out in every epoch: buckets {", ".join(small)}; last="wrap" shows them\n'
        )
