"""The records of a split, out of the maps of its shards into one array of bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.columns import open_column
from loaders.format.containers import CONTAINERS
from loaders.format.spec import Manifest
from loaders.joined_map import JoinedMap

RECORD: Final = "record"
"""Name of the field, and of the array of a batch."""

_BUCKETS: Final = 4096
"""Ranges of indices whose first shard is known; 32 KiB of them stay in the cache."""

_FEW: Final = 12
"""Shards whose ends are compared with all indices: a microsecond each for 4,096."""


@dataclass(frozen=True, slots=True)
class RecordPart:
    """The records of a batch as bytes: the only array that travels."""

    nbytes: int
    name: str = RECORD
    on_device: bool = True
    fixed: bool = True

    def layout(self, indices: NDArray[np.int64]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and dtype of the array for the samples [B] of a batch."""
        return (len(indices), self.nbytes), np.dtype(np.uint8)


class RecordRows:
    """Copies records of any shards into an array; maps are opened when first touched.

    Args:
        path: The dataset's folder.
        manifest: Its description.
        split: The split's name.
        name: Of the field.
        nbytes: Of a record.
        verify: Compare checksums when shards are first touched.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        split: str,
        name: str,
        nbytes: int,
        *,
        verify: bool = False,
    ) -> None:
        self._path = path
        self._manifest = manifest
        self._split = split
        self._name = name
        self._nbytes = nbytes
        self._verify = verify
        counts = np.array(manifest.splits[split].counts, np.int64)
        self._ends = np.cumsum(counts, dtype=np.int64)  # [shards]
        self._starts = self._ends - counts
        count = int(self._ends[-1]) if len(counts) else 0
        # The shard of an index is looked up by its upper bits, then moved on past the ends that
        # lie between: searchsorted took 40 to 110 microseconds for 4,096 indices, this 15.
        self._shift = max(0, count.bit_length() - _BUCKETS.bit_length() + 1)
        firsts = np.arange((count >> self._shift) + 1) << self._shift
        found = np.searchsorted(self._ends, firsts, side="right")
        # Integers of 16 bits are sorted by counting, 7 times as fast.
        self._first = found.astype(np.uint16 if len(counts) <= 1 << 16 else np.int64)
        self._maps: dict[int, NDArray[np.uint8]] = {}
        self._filled = int(np.count_nonzero(counts))
        self._joined: JoinedMap | None = None
        if count:
            spec, container = manifest.splits[split], CONTAINERS[manifest.container]
            column = next(column for column, _ in spec.columns() if column.name == name)
            sizes = [container.shard_nbytes(column, n, spec.capacity) for n in spec.counts]
            self._joined = JoinedMap(nbytes, sizes, f"{path}: {split}")
            self._moved = np.arange(len(counts)) * self._joined.step - self._starts
            whole = int(self._moved[-1]) + count
            self._all = self._joined.rows(len(container.prefix(column, 0)), whole)

    def gather_into(self, indices: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
        """Copy records.

        Args:
            indices: [B] integers in 0..samples-1.
            out: [B, nbytes], C-contiguous.

        Raises:
            MissingShardError: A shard is not there.
            FormatError: It is not what the manifest promises.
        """
        if not len(indices):
            return
        rows = indices
        if len(self._ends) > 1:
            shards = self._shards(indices)
            if len(self._maps) < self._filled:
                for shard in np.flatnonzero(np.bincount(shards)).tolist():
                    self._map(shard)
            rows = indices + self._moved.take(shards)
        elif not self._maps:
            self._map(0)
        # The default mode="raise" copies through a hidden buffer at half the speed.
        self._all.take(rows, axis=0, out=out, mode="clip")

    def maps(self) -> Iterator[NDArray[np.uint8]]:
        """Open all shards that hold records: [count, nbytes] each, read-only."""
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

    def _map(self, shard: int) -> NDArray[np.uint8]:
        """Return the map of a shard: [count, nbytes], read-only."""
        found = self._maps.get(shard)
        if found is None:
            place = self._joined.place(shard) if self._joined else None
            where = (self._path, self._manifest, self._split, self._name, shard, place)
            records = open_column(*where, verify=self._verify)
            found = records.view(np.uint8).reshape(len(records), self._nbytes)
            self._maps[shard] = found
        return found
