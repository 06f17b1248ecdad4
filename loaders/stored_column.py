"""One stored column of a split, its shards as one array: files are mapped when first touched."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.columns import column_rows, open_column
from loaders.format.containers import CONTAINERS
from loaders.format.spec import Manifest
from loaders.joined_map import JoinedMap, distance
from loaders.stretches import Stretches, joined

_ADDRESSES: Final = 1 << 40
"""Bytes of addresses that one column may take, or twice its size. Rows of an odd size lie 4,096
rows apart from file to file: of 4,095 x 4,095 pixels 206 GB."""

_MOST_PIECES: Final = 1 << 16


class StoredColumn:
    """Rows of one length in the files of any shards. Maps are read-only and safe across fork.

    Args:
        counts: [shards] rows of each; where there are none, there is nothing to open.
        whole: [rows, *shape] of all shards, and what lies between them; of rows in several pieces
            [pieces, bytes of one] uint8.
        firsts: [shards] the row, or the piece, of `whole` at which each begins.
        opener: Shard -> its map, which is its part of `whole` from then on.
        pieces: In which a row is gathered.

    Attributes:
        whole: As given; rows of shards that were not touched must not be read.
        firsts: As given, int64.
        pieces: As given.
        row_nbytes: Bytes of a row.
    """

    def __init__(
        self,
        counts: NDArray[np.int64],
        whole: NDArray[Any],
        firsts: NDArray[np.int64],
        opener: Callable[[int], NDArray[Any]],
        pieces: int = 1,
    ) -> None:
        self.whole = whole
        self.firsts = firsts
        self.pieces = pieces
        self.row_nbytes = math.prod(whole.shape[1:]) * whole.itemsize * pieces
        self._counts = counts
        self._filled = np.flatnonzero(counts).tolist()
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
            if not self._counts[shard]:
                return self.whole[:0]
            found = self._maps[shard] = self._opener(shard)
        return found

    def maps(self) -> Iterator[NDArray[Any]]:
        """Open all shards that hold rows."""
        return map(self.map, self._filled)

    def stretches(self, shard: int, starts: NDArray[Any], ends: NDArray[Any]) -> Stretches:
        """Return where some rows lie, without opening the shard.

        Args:
            shard: In which they are.
            starts: [B] the first row of each sample, ascending.
            ends: [B] the row after its last, ascending.
        """
        where = partial(self.map, shard)
        return Stretches(where, self.row_nbytes, *joined(starts, ends, self.row_nbytes))

    def all_stretches(self) -> Iterator[Stretches]:
        """Yield where all rows lie, without opening a shard."""
        for shard in self._filled:
            whole = np.zeros(1, np.int64), self._counts[shard : shard + 1]
            yield Stretches(partial(self.map, shard), self.row_nbytes, *whole)


def stored_column(
    path: Path,
    manifest: Manifest,
    split: str,
    name: str,
    *,
    verify: bool = False,
    in_pieces: bool = False,
) -> StoredColumn:
    """Return a column of a dataset: of offsets as int64, encoded samples as bytes, else as stored.

    Args:
        path: The dataset's folder.
        manifest: Its description.
        split: The split's name.
        name: Of the column.
        verify: Compare checksums when shards are first touched.
        in_pieces: Rows may be gathered in pieces, where they would lie too far apart as wholes.

    Raises:
        ShardsError: The system has not so many addresses to give.
    """
    spec, container = manifest.splits[split], CONTAINERS[manifest.container]
    opener = partial(open_column, path, manifest, split, name, verify=verify)
    if spec.column(name)[0].in_chunks and name not in spec.files:
        return _in_memory(np.array(spec.counts, np.int64), opener)
    column, rows = column_rows(manifest, split, name)
    dtype = np.dtype("<i8") if column.role == "offsets" else column.numpy_dtype
    counts = np.array(rows, np.int64)
    if not counts.any():
        return StoredColumn(counts, np.empty((0, *column.shape), dtype), 0 * counts, opener)
    largest = max(spec.files[name].nbytes)
    filled = np.flatnonzero(counts)
    pieces = _pieces(column.nbytes, largest, len(filled)) if in_pieces else 1
    joined = JoinedMap(column.nbytes // pieces, largest, len(filled), f"{path}: {split}")
    # Shards without rows have no file and take no place.
    places = np.maximum(np.cumsum(counts > 0) - 1, 0)
    firsts = places * joined.step
    reach = int(firsts[filled[-1]]) + rows[filled[-1]] * pieces
    whole = joined.rows(len(container.prefix(column, 0)), reach)
    if pieces == 1:
        whole = whole.reshape(-1).view(dtype).reshape(reach, *column.shape)
    return StoredColumn(
        counts,
        whole,
        firsts,
        lambda shard: opener(shard, joined.place(int(places[shard]))),
        pieces,
    )


def _in_memory(samples: NDArray[np.int64], opener: Callable[[int], NDArray[Any]]) -> StoredColumn:
    """Return the offsets of samples in chunks, which lie in their files as zarr wants them.

    Args:
        samples: [shards] of each.
        opener: Shard -> its offsets [samples + 1].
    """
    counts = np.where(samples > 0, samples + 1, 0)
    firsts = np.cumsum(counts) - counts
    whole = np.empty(int(counts.sum()), np.int64)

    def read(shard: int) -> NDArray[Any]:
        own = whole[firsts[shard] : firsts[shard] + counts[shard]]
        own[:] = opener(shard)
        return own

    return StoredColumn(counts, whole, firsts, read)


def _pieces(row_nbytes: int, file_nbytes: int, count: int) -> int:
    """Return in how many pieces a row is gathered: as few as keep the files near to each other."""
    most = max(_ADDRESSES, 2 * file_nbytes * count)
    for pieces in range(1, min(_MOST_PIECES, row_nbytes) + 1):
        if row_nbytes % pieces == 0 and distance(row_nbytes // pieces, file_nbytes) * count <= most:
            return pieces
    return 1
