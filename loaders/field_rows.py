"""The rows of a field, out of the maps of its shards into an array: one call a batch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.columns import open_column
from loaders.format.containers import CONTAINERS
from loaders.format.spec import Manifest
from loaders.joined_map import JoinedMap, distance
from loaders.stretches import split_by_shard, stretches

_BUCKETS: Final = 4096
"""Ranges of indices whose first shard is known; 32 KiB of them stay in the cache."""

_FEW: Final = 12
"""Shards whose ends are compared with all indices: a microsecond each for 4,096."""

_ADDRESSES: Final = 1 << 40
"""Bytes of addresses that one field may take, or twice its size. Rows of an odd size lie 4,096 rows
apart from file to file: of 4,095 x 4,095 pixels 206 GB."""

_MOST_PIECES: Final = 1 << 16


class FieldRows:
    """Copies rows of any shards of one field into an array; maps are opened when first touched.

    Args:
        path: The dataset's folder.
        manifest: Its description.
        split: The split's name.
        name: Of the field; it has rows of one length.
        verify: Compare checksums when shards are first touched.

    Attributes:
        row_nbytes: Bytes of a row.
    """

    def __init__(
        self, path: Path, manifest: Manifest, split: str, name: str, *, verify: bool = False
    ) -> None:
        self._path = path
        self._manifest = manifest
        self._split = split
        self._name = name
        self._verify = verify
        spec, container = manifest.splits[split], CONTAINERS[manifest.container]
        column = next(column for column, _ in spec.columns() if column.name == name)
        self.row_nbytes = column.nbytes
        counts = np.array(spec.counts, np.int64)
        self._ends = np.cumsum(counts, dtype=np.int64)  # [shards]
        self._starts = self._ends - counts
        count = int(self._ends[-1]) if len(counts) else 0
        # The shard of an index is looked up by its upper bits, then moved on past the ends that
        # lie between: searchsorted took 40 to 110 microseconds for 4,096 indices, this 15.
        self._shift = max(0, count.bit_length() - _BUCKETS.bit_length() + 1)
        firsts = np.arange((count >> self._shift) + 1) << self._shift
        self._first = np.searchsorted(self._ends, firsts, side="right")
        self._maps: dict[int, NDArray[np.uint8]] = {}
        self._filled = int(np.count_nonzero(counts))
        self._joined: JoinedMap | None = None
        self._pieces = 1
        # Shards without rows have no file and take no place.
        self._places = np.cumsum(counts > 0) - 1
        if count:
            largest = max(container.shard_nbytes(column, n, spec.capacity) for n in {*spec.counts})
            self._pieces = _pieces(self.row_nbytes, largest, self._filled)
            piece_nbytes = self.row_nbytes // self._pieces
            self._joined = JoinedMap(piece_nbytes, largest, self._filled, f"{path}: {split}")
            self._moved = self._places * self._joined.step - self._starts * self._pieces
            last = int(np.flatnonzero(counts)[-1])
            whole = int(self._moved[last]) + count * self._pieces
            # Not the array itself, which a debugger that shows it would read between the files.
            self._take = self._joined.rows(len(container.prefix(column, 0)), whole).take

    def gather_into(self, indices: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
        """Copy rows.

        Args:
            indices: [B] integers in 0..samples-1.
            out: [B, row_nbytes], C-contiguous.

        Raises:
            MissingShardError: A shard is not there.
            FormatError: It is not what the manifest promises.
        """
        if not len(indices):
            return
        rows = indices if self._pieces == 1 else indices * self._pieces
        if len(self._ends) > 1:
            shards = self._shards(indices)
            if len(self._maps) < self._filled:
                for shard in np.flatnonzero(np.bincount(shards)).tolist():
                    self._map(shard)
            rows = rows + self._moved.take(shards)
        elif not self._maps:
            self._map(0)
        if self._pieces > 1:
            rows = (rows[:, None] + np.arange(self._pieces)).reshape(-1)
            out = out.reshape(len(rows), -1)
        # The default mode="raise" copies through a hidden buffer at half the speed.
        self._take(rows, axis=0, out=out, mode="clip")

    def maps(self) -> Iterator[NDArray[np.uint8]]:
        """Open all shards that hold rows: [count, row_nbytes] each, read-only."""
        for shard in np.flatnonzero(self._ends > self._starts).tolist():
            yield self._map(shard)

    def _shards(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        if len(self._ends) <= _FEW:
            few = np.zeros(len(indices), np.uint8)
            for end in self._ends[:-1]:
                few += (indices >= end).view(np.uint8)
            return few
        found: NDArray[Any] = self._first.take(indices >> self._shift)
        while bool((late := indices >= self._ends.take(found)).any()):
            found += late
        return found

    def column(self, place: slice, dtype: str) -> NDArray[Any]:
        """Return one value of every row: [samples] of the dtype.

        Args:
            place: Its bytes in a row.
            dtype: Of the value.
        """
        little = np.dtype(dtype).newbyteorder("<")
        shards = np.flatnonzero(self._ends > self._starts).tolist()
        found = [np.ascontiguousarray(self._map(s)[:, place]).view(little)[:, 0] for s in shards]
        return np.concatenate([np.empty(0, little), *found])

    def stretches(self, indices: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
        """Yield the parts of maps in which some rows, ascending, lie."""
        for shard, rows in split_by_shard(indices, self._ends):
            yield from stretches(self._map(shard), rows, rows + 1)

    def _map(self, shard: int) -> NDArray[np.uint8]:
        """Return the map of a shard: [count, row_nbytes], read-only."""
        found = self._maps.get(shard)
        if found is None:
            place = self._joined.place(int(self._places[shard])) if self._joined else None
            where = (self._path, self._manifest, self._split, self._name, shard, place)
            rows = open_column(*where, verify=self._verify)
            found = rows.reshape(-1).view(np.uint8).reshape(len(rows), self.row_nbytes)
            self._maps[shard] = found
        return found


def _pieces(row_nbytes: int, file_nbytes: int, count: int) -> int:
    """Return how many pieces a row is gathered in: as few as keep the files near to each other."""
    most = max(_ADDRESSES, 2 * file_nbytes * count)
    for pieces in range(1, min(_MOST_PIECES, row_nbytes) + 1):
        if row_nbytes % pieces == 0 and distance(row_nbytes // pieces, file_nbytes) * count <= most:
            return pieces
    return 1
