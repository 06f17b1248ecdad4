"""The records of a split, out of the maps of its shards into one array of bytes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.columns import open_column
from loaders.format.spec import Manifest

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
        if len(self._ends) == 1:
            _take_rows(self._map(0), indices, out)
            return
        shards = self._shards(indices)
        if bool((shards[1:] >= shards[:-1]).all()):
            self._take(indices, shards, out)
            return
        # Shard by shard into memory that stays in the cache, then to their places: half as long
        # again as from one shard; picking and placing a shard's rows took twice as long.
        order = np.argsort(shards, kind="stable")
        sorted_rows = np.empty_like(out)
        self._take(indices.take(order), shards, sorted_rows)
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        _take_rows(sorted_rows, places, out)

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

    def _take(
        self, indices: NDArray[np.int64], shards: NDArray[Any], out: NDArray[np.uint8]
    ) -> None:
        """Copy records that are sorted by shard; `shards` holds theirs in any order."""
        first = 0
        counts = np.bincount(shards)
        for shard in np.flatnonzero(counts).tolist():
            last = first + int(counts[shard])
            rows = indices[first:last] - self._starts[shard]
            _take_rows(self._map(shard), rows, out[first:last])
            first = last

    def _map(self, shard: int) -> NDArray[np.uint8]:
        """Return the map of a shard: [count, nbytes], read-only."""
        found = self._maps.get(shard)
        if found is None:
            place = (self._path, self._manifest, self._split, self._name, shard)
            records = open_column(*place, verify=self._verify)
            found = records.view(np.uint8).reshape(len(records), self._nbytes)
            self._maps[shard] = found
        return found


def _take_rows(rows: NDArray[np.uint8], indices: NDArray[np.int64], out: NDArray[np.uint8]) -> None:
    # The default mode="raise" copies through a hidden buffer at half the speed.
    rows.take(indices, axis=0, out=out, mode="clip")
