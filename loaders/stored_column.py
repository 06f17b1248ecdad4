"""One stored column of a split, its shards as one array: files are mapped when first touched."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.format.columns import open_column
from loaders.format.containers import CONTAINERS
from loaders.format.spec import Manifest
from loaders.joined_map import JoinedMap


class StoredColumn:
    """Rows of one length in the files of any shards. Maps are read-only and safe across fork.

    Args:
        counts: [shards] rows of each; where there are none, there is nothing to open.
        whole: [rows, *shape] of all shards, and what lies between them.
        firsts: [shards] the row of `whole` at which each begins.
        opener: Shard -> its map, which is its part of `whole` from then on.

    Attributes:
        whole: As given; rows of shards that were not touched must not be read.
        firsts: As given, int64.
    """

    def __init__(
        self,
        counts: NDArray[np.int64],
        whole: NDArray[Any],
        firsts: NDArray[np.int64],
        opener: Callable[[int], NDArray[Any]],
    ) -> None:
        self.whole = whole
        self.firsts = firsts
        self._filled = np.flatnonzero(counts).tolist()
        self._is_filled = counts > 0
        self._opener = opener
        self._maps: dict[int, NDArray[Any]] = {}

    def touch(self, shards: NDArray[Any]) -> None:
        """Open the shards [B] in which some rows lie.

        Raises:
            MissingShardError: A shard is not there.
            FormatError: It is not what the manifest promises.
        """
        if len(self._maps) < len(self._filled):
            for shard in np.flatnonzero(np.bincount(shards)).tolist():
                self.map(shard)

    def map(self, shard: int) -> NDArray[Any]:
        """Return the rows of a shard: [rows, *shape], read-only.

        Raises:
            MissingShardError: The shard is not there.
            FormatError: It is not what the manifest promises.
        """
        found = self._maps.get(shard)
        if found is None:
            if not self._is_filled[shard]:
                return self.whole[:0]
            found = self._maps[shard] = self._opener(shard)
        return found

    def maps(self) -> Iterator[NDArray[Any]]:
        """Open all shards that hold rows."""
        return map(self.map, self._filled)


def stored_column(
    path: Path, manifest: Manifest, split: str, name: str, *, verify: bool = False
) -> StoredColumn:
    """Return a column of a dataset: of offsets as int64, of all else as stored.

    Args:
        path: The dataset's folder.
        manifest: Its description.
        split: The split's name.
        name: Of the column.
        verify: Compare checksums when shards are first touched.

    Raises:
        ShardsError: The system has not so many addresses to give.
    """
    spec, container = manifest.splits[split], CONTAINERS[manifest.container]
    column, rows = next(found for found in spec.columns() if found[0].name == name)
    dtype = np.dtype("<i8") if column.role == "offsets" else column.numpy_dtype
    counts = np.array(rows, np.int64)
    opener = partial(open_column, path, manifest, split, name, verify=verify)
    if not counts.any():
        return StoredColumn(counts, np.empty((0, *column.shape), dtype), 0 * counts, opener)
    largest = max(container.shard_nbytes(column, n, spec.capacity) for n in {*rows})
    joined = JoinedMap(column.nbytes, largest, len(rows), f"{path}: {split}")
    firsts = np.arange(len(rows)) * joined.step
    reach = int(firsts[-1]) + rows[-1]
    whole = joined.rows(len(container.prefix(column, 0)), reach).reshape(-1).view(dtype)
    return StoredColumn(
        counts,
        whole.reshape(reach, *column.shape),
        firsts,
        lambda shard: opener(shard, joined.place(shard)),
    )
