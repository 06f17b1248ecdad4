"""Documents that a first pass has stored: any of them, in any order, out of the maps."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loaders.format.columns import open_column
from loaders.format.spec import read_manifest
from preprocess.recipe import Ragged
from preprocess.tokens.runs import copy_runs, starts_of

if TYPE_CHECKING:
    from loaders.format.split_spec import SplitSpec


class StoredDocuments:
    """One split of a dataset whose samples are documents; read-only, used by many threads.

    Args:
        root: The dataset's folder.
        split: The split's name.

    Raises:
        FormatError: A file is not what the manifest says.
    """

    def __init__(self, root: Path, split: str) -> None:
        manifest = read_manifest(root)
        self.spec: SplitSpec = manifest.splits[split]
        self._shards = [index for index, count in enumerate(self.spec.counts) if count]
        self._ends = np.cumsum([self.spec.counts[i] for i in self._shards], dtype=np.int64)
        self._maps: dict[str, list[NDArray[Any]]] = {}
        for column, _ in self.spec.columns():
            self._maps[column.name] = [
                open_column(root, manifest, split, column.name, index) for index in self._shards
            ]

    def __len__(self) -> int:
        return self.spec.count

    def has(self, name: str) -> bool:
        """Return whether there is such a field."""
        return name in self._maps

    def counts(self, name: str) -> NDArray[np.int64]:
        """Return how many values of a ragged field each document has: [N] int64."""
        offsets = self._maps[f"{name}_offsets"]
        found = [np.diff(ends).astype(np.int64) for ends in offsets]
        return np.concatenate([np.empty(0, np.int64), *found])

    def parts(self, name: str) -> Sequence[NDArray[Any]]:
        """Return the maps of a field of fixed shape: [n, *shape] each, all documents in order."""
        return self._maps[name]

    def whole(self, name: str) -> NDArray[Any]:
        """Return the rows of a field of fixed shape, of all documents: [N, *shape]."""
        field = next(field for field in self.spec.fields if field.name == name)
        empty = np.empty((0, *field.shape), field.numpy_dtype)
        return np.concatenate([empty, *self._maps[name]])

    def rows(self, name: str, documents: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows of a field of fixed shape: [M, *shape], in the order of `documents`."""
        field = next(field for field in self.spec.fields if field.name == name)
        out = np.empty((len(documents), *field.shape), field.numpy_dtype)
        for shard, places, within in self._by_shard(documents):
            out[places] = self._maps[name][shard][within]
        return out

    def ragged(self, name: str, documents: NDArray[np.int64]) -> Ragged:
        """Return the values of a ragged field, in the order of `documents`."""
        starts, counts = (np.empty(len(documents), np.int64) for _ in range(2))
        parts = list(self._by_shard(documents))
        for shard, places, within in parts:
            offsets = self._maps[f"{name}_offsets"][shard]
            starts[places] = offsets[within]
            counts[places] = offsets[within + 1].astype(np.int64) - starts[places]
        targets = starts_of(counts)
        field = next(field for field in self.spec.fields if field.name == name)
        out = np.empty(int(targets[-1]), field.numpy_dtype)
        for shard, places, _ in parts:
            values = self._maps[name][shard]
            copy_runs(out, targets[places], values, starts[places], counts[places])
        return Ragged(out, counts)

    def _by_shard(
        self, documents: NDArray[np.int64]
    ) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Return (shard, places in `documents`, rows of the shard), rows ascending.

        Ascending, so that pages of a map are read one after the other.
        """
        by_row = np.argsort(documents, kind="stable")
        ascending = documents[by_row]
        bounds = np.searchsorted(ascending, self._ends)
        found = []
        first = 0
        for shard, last in enumerate(bounds.tolist()):
            if last > first:
                begin = self._ends[shard] - self.spec.counts[self._shards[shard]]
                found.append((shard, by_row[first:last], ascending[first:last] - begin))
            first = last
        return found
