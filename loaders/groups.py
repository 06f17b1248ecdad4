"""Samples in groups, of which every batch takes one: pictures of one shape, say."""

from collections.abc import Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.order import Epoch
from loaders.sampling import derived_seed


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Which samples of a dataset belong together; 4 bytes a sample, 8 from 2^31 on.

    Attributes:
        names: What each group is called.
        counts: Samples of each group.
        samples: [N] indices into the dataset, group after group, ascending in each.
        starts: Where each group begins among them.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    samples: NDArray[Any]
    starts: tuple[int, ...]

    @classmethod
    def of(cls, codes: NDArray[np.uint16], names: tuple[str, ...]) -> "Groups":
        """Group samples.

        Args:
            codes: [N] the group of each, a place in `names`.
            names: Of all groups, those without samples too.
        """
        counts = np.bincount(codes, minlength=len(names))
        order = np.argsort(codes, kind="stable")
        narrow = np.int32 if len(codes) <= 1 << 31 else np.int64
        return cls(
            names=names,
            counts=tuple(counts.tolist()),
            samples=order.astype(narrow, copy=False),
            starts=tuple((np.cumsum(counts) - counts).tolist()),
        )

    def visit(self, group: int, places: NDArray[np.int64], epoch: Epoch) -> NDArray[np.int64]:
        """Return which samples of the dataset are at some places of an epoch of a group.

        Args:
            group: Number of the group.
            places: [B] integers in 0..count-1 of the group.
            epoch: How it is ordered; each group has an order of its own.
        """
        own = replace(epoch, seed=derived_seed(epoch.seed, group))
        found = self.starts[group] + own.permuted(places, self.counts[group])
        return self.samples.take(found).astype(np.int64, copy=False)


def groups_of(dataset: Sized) -> Groups | None:
    """Return the groups that a dataset's batches are made of; None where any will do."""
    found = getattr(dataset, "groups", None)
    return found if isinstance(found, Groups) else None
