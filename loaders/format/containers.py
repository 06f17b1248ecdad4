"""The registry of containers: one table for writing and reading."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from loaders.format import tensor, zarr_store
from loaders.format.fields import FieldSpec
from loaders.format.maps import Place
from loaders.format.spec import Manifest


class ContainerFormat(Protocol):
    """How the rows of a shard become the bytes of a file, and back. Implemented by modules."""

    def shard_name(self, split: str, index: int, field: FieldSpec, capacity: int | None) -> str:
        """Return where a shard of a field lies, below the dataset's folder, with slashes."""
        ...

    def shard_path(
        self, root: Path, split: str, index: int, field: FieldSpec, capacity: int | None
    ) -> Path:
        """Return where a shard of a field lies."""
        ...

    def prefix(self, field: FieldSpec, count: int) -> bytes:
        """Return what precedes the rows; of one length for every count."""
        ...

    def suffix(
        self,
        field: FieldSpec,
        count: int,
        capacity: int | None,
        sizes: NDArray[np.int64] | None = None,
    ) -> bytes:
        """Return what follows the rows; `sizes` are those of encoded samples in chunks."""
        ...

    def shard_nbytes(self, field: FieldSpec, count: int, capacity: int | None) -> int:
        """Return the size of the file, less what encoded samples in chunks take of it."""
        ...

    def open_rows(
        self,
        path: Path,
        field: FieldSpec,
        count: int,
        capacity: int | None,
        place: Place | None = None,
    ) -> NDArray[Any]:
        """Map the rows, read-only."""
        ...

    def group_files(self, manifest: Manifest) -> dict[str, bytes]:
        """Return files that describe the shards to other readers: relative path -> bytes."""
        ...


CONTAINERS: Final[Mapping[str, ContainerFormat]] = {"tensor": tensor, "zarr": zarr_store}
