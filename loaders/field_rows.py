"""The rows of a field, out of the maps of its shards into an array: one call a batch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.spec import Manifest
from loaders.stored_column import stored_column
from loaders.stretches import Stretches, split_by_shard

_BUCKETS: Final = 4096
"""Ranges of indices whose first shard is known; 32 KiB of them stay in the cache."""

_FEW: Final = 12
"""Shards whose ends are compared with all indices: a microsecond each for 4,096."""


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
        spec = manifest.splits[split]
        self.row_nbytes = next(field.nbytes for field in spec.fields if field.name == name)
        counts = np.array(spec.counts, np.int64)
        self._ends = np.cumsum(counts, dtype=np.int64)  # [shards]
        count = int(self._ends[-1]) if len(counts) else 0
        # The shard of an index is looked up by its upper bits, then moved on past the ends that
        # lie between: searchsorted took 40 to 110 microseconds for 4,096 indices, this 15.
        self._shift = max(0, count.bit_length() - _BUCKETS.bit_length() + 1)
        firsts = np.arange((count >> self._shift) + 1) << self._shift
        self._first = np.searchsorted(self._ends, firsts, side="right")
        self._column = stored_column(path, manifest, split, name, verify=verify, in_pieces=True)
        self._pieces = self._column.pieces
        self._moved = self._column.firsts - (self._ends - counts) * self._pieces
        piece_nbytes = self.row_nbytes // self._pieces
        self._take = self._column.whole.reshape(-1).view(np.uint8).reshape(-1, piece_nbytes).take

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
            self._column.touch(shards)
            rows = rows + self._moved.take(shards)
        else:
            self._column.map(0)
        if self._pieces > 1:
            rows = (rows[:, None] + np.arange(self._pieces)).reshape(-1)
            out = out.reshape(len(rows), -1)
        # The default mode="raise" copies through a hidden buffer at half the speed.
        self._take(rows, axis=0, out=out, mode="clip")

    def maps(self) -> Iterator[NDArray[np.uint8]]:
        """Open all shards that hold rows: [count, row_nbytes] each, read-only."""
        return map(self._as_bytes, self._column.maps())

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
        found = [np.ascontiguousarray(m[:, place]).view(little)[:, 0] for m in self.maps()]
        return np.concatenate([np.empty(0, little), *found])

    def stretches(self, indices: NDArray[np.int64] | None) -> Iterator[Stretches]:
        """Yield where rows lie: some, ascending; None for all."""
        if indices is None:
            yield from self._column.all_stretches()
            return
        for shard, rows in split_by_shard(indices, self._ends):
            yield self._column.stretches(shard, rows, rows + 1)

    def _as_bytes(self, rows: NDArray[Any]) -> NDArray[np.uint8]:
        """Return rows as [count, row_nbytes]."""
        return rows.reshape(-1).view(np.uint8).reshape(len(rows), self.row_nbytes)
