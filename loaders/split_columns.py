"""The stored columns of a split: maps that are opened when first touched, and rows out of them."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError
from loaders.format.columns import open_column
from loaders.format.containers import CONTAINERS
from loaders.format.fields import FieldSpec
from loaders.format.spec import Manifest

Places = list[tuple[int, int]]
"""Shard and row of each sample."""


class SplitColumns:
    """Where the values of every sample of a split lie.

    Maps are read-only and safe across fork.

    Args:
        path: The dataset's folder.
        split: The split's name.
        manifest: The dataset's description.
        verify: Compare checksums when shards are first touched.

    Attributes:
        maps: (column, shard) -> its map, [rows, *shape]; what is put there is not opened.
    """

    def __init__(self, path: Path, split: str, manifest: Manifest, *, verify: bool = False) -> None:
        self.maps: dict[tuple[str, int], NDArray[Any]] = {}
        self._path = path
        self._split = split
        self._verify = verify
        self._manifest = manifest
        self._spec = manifest.splits[split]
        self._columns = {column.name: (column, rows) for column, rows in self._spec.columns()}
        self._ends = np.cumsum(self._spec.counts, dtype=np.int64)  # [shards]
        self._starts = np.concatenate(([0], self._ends))

    def column(self, name: str, shard: int) -> NDArray[Any]:
        """Return the map of a stored column: [rows, *shape], read-only.

        Raises:
            MissingShardError: The file is not there.
            FormatError: It is not what the manifest promises.
        """
        found = self.maps.get((name, shard))
        if found is None:
            column, counts = self._columns[name]
            if counts[shard] == 0:
                found = np.empty((0, *column.shape), column.numpy_dtype)
            else:
                found = open_column(
                    self._path, self._manifest, self._split, name, shard, verify=self._verify
                )
            self.maps[name, shard] = found
        return found

    def stored_nbytes(self, fields: Iterable[FieldSpec]) -> int:
        """Return the bytes of the columns of these fields, in all shards."""
        names = (column.name for field in fields for column in field.columns())
        found = (self._columns[name] for name in names)
        return sum(sum(rows) * column.nbytes for column, rows in found)

    def opened(self, fields: Iterable[FieldSpec]) -> Iterator[NDArray[Any]]:
        """Open all columns of these fields, in all shards: read-only maps."""
        for name in [column.name for field in fields for column in field.columns()]:
            for shard, count in enumerate(self._columns[name][1]):
                if count:
                    yield self.column(name, shard)

    def places(self, indices: NDArray[np.int64]) -> Places:
        """Return shard and row of each sample."""
        shards = np.searchsorted(self._ends, indices, side="right")
        rows = indices - self._starts[shards]
        return list(zip(shards.tolist(), rows.tolist(), strict=True))

    def rows(self, name: str, places: Places) -> list[NDArray[Any]]:
        """Return, of a field of fixed shape, the stored row of each sample: [elements]."""
        maps = {}
        for shard in {shard for shard, _ in places}:
            found = self.column(name, shard)
            maps[shard] = found.reshape(len(found), -1)
        return [maps[shard][row] for shard, row in places]

    def slices(self, name: str, places: Places) -> list[NDArray[Any]]:
        """Return, of a ragged field, the stored values of each sample."""
        shards = {shard for shard, _ in places}
        maps = {shard: self.column(name, shard) for shard in shards}
        offsets = {shard: self.column(f"{name}_offsets", shard) for shard in shards}
        return [maps[shard][offsets[shard][row] : offsets[shard][row + 1]] for shard, row in places]

    def lengths(self, name: str, places: Places) -> NDArray[np.int64]:
        """Return, of a ragged field, the number of values of each sample: [B] int64."""
        offsets = {shard: self.column(f"{name}_offsets", shard) for shard, _ in places}
        found = [offsets[shard][row + 1] - offsets[shard][row] for shard, row in places]
        return np.array(found, np.int64)

    def broken(self, name: str, place: tuple[int, int], what: str) -> FormatError:
        """Return the error for stored values of a sample that cannot be."""
        column, _ = self._columns[name]
        shard, row = place
        container = CONTAINERS[self._manifest.container]
        path = container.shard_path(self._path, self._split, shard, column, self._spec.capacity)
        return FormatError(f'{path}: sample {row}: {what}; run "prep check" or prepare it again')


def concatenate_into(pieces: Sequence[NDArray[Any]], buffer: NDArray[Any]) -> None:
    """Copy pieces back to back into a C-contiguous array of as many elements."""
    if pieces:  # NumPy wants at least one
        # One call copies them all; a loop of assignments took 1.1 times as long.
        np.concatenate(pieces, out=buffer.reshape(-1))
