"""The parts of memory maps in which samples lie, neighbours joined."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_GAP_NBYTES: Final = 1 << 15
"""Bytes between two samples that are read along: a seek costs more than 32 KiB do."""


def split_by_shard(
    indices: NDArray[np.int64], ends: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each shard that some indices, ascending, lie in, and their places in it.

    Args:
        indices: [B] integers in 0..ends[-1]-1, ascending.
        ends: [shards] where the samples of each shard end.
    """
    shards = np.searchsorted(ends, indices, side="right")
    bounds = [0, *(np.flatnonzero(np.diff(shards)) + 1).tolist(), len(indices)]
    for first, last in pairwise(bounds):
        if first < last:
            shard = int(shards[first])
            yield shard, indices[first:last] - (int(ends[shard - 1]) if shard else 0)


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """Parts of one map, known before it is opened; iterating over them opens it.

    Attributes:
        opener: Gives the map, [rows, ...] C-contiguous.
        row_nbytes: Bytes of a row.
        firsts: [n] the first row of each part, ascending.
        ends: [n] the row after its last.
    """

    opener: Callable[[], NDArray[Any]]
    row_nbytes: int
    firsts: NDArray[Any]
    ends: NDArray[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return int((self.ends - self.firsts).sum()) * self.row_nbytes

    def __iter__(self) -> Iterator[NDArray[Any]]:
        """Yield the parts.

        Raises:
            MissingShardError: The file is not there.
            FormatError: It is not what the manifest promises.
        """
        rows = self.opener()
        for first, end in zip(self.firsts.tolist(), self.ends.tolist(), strict=True):
            yield rows[first:end]


def joined(
    starts: NDArray[Any], ends: NDArray[Any], row_nbytes: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return where stretches of rows begin and end that hold some samples, neighbours joined.

    Args:
        starts: [B] the first row of each sample, ascending.
        ends: [B] the row after its last, ascending.
        row_nbytes: Bytes of a row.
    """
    if not len(starts):
        return starts, ends
    gap = _GAP_NBYTES // max(1, row_nbytes)
    cuts = np.flatnonzero(starts[1:] - ends[:-1] > gap)
    firsts = starts[np.concatenate(([0], cuts + 1))]
    return firsts, ends[np.concatenate((cuts, [len(ends) - 1]))]
