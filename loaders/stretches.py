"""The parts of memory maps in which samples lie, neighbours joined."""

from collections.abc import Iterator
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


def stretches(
    values: NDArray[Any], starts: NDArray[Any], ends: NDArray[Any]
) -> Iterator[NDArray[Any]]:
    """Yield slices of a map in which samples lie.

    Args:
        values: [rows, ...] a C-contiguous map.
        starts: [B] the first row of each sample, ascending.
        ends: [B] the row after its last.
    """
    if not len(starts):
        return
    gap = max(1, _GAP_NBYTES * len(values) // max(1, values.nbytes))
    cuts = np.flatnonzero(starts[1:] - ends[:-1] > gap)
    firsts = starts[np.concatenate(([0], cuts + 1))].tolist()
    lasts = ends[np.concatenate((cuts, [len(ends) - 1]))].tolist()
    for first, last in zip(firsts, lasts, strict=True):
        yield values[first:last]
