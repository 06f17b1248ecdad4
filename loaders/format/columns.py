"""A stored column of one shard, mapped and checked: what all readers of a dataset share."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError
from loaders.format.containers import CONTAINERS
from loaders.format.fields import FieldSpec
from loaders.format.files import expect_inside
from loaders.format.maps import Place
from loaders.format.promised import expect_checksum
from loaders.format.spec import Manifest
from loaders.format.zarr_store import open_chunks


def open_column(
    root: Path,
    manifest: Manifest,
    split: str,
    name: str,
    shard: int,
    place: Place | None = None,
    *,
    verify: bool = False,
) -> NDArray[Any]:
    """Map one column of one shard; of a field in chunks its bytes, or its offsets by that name.

    Args:
        root: The dataset's folder.
        manifest: Its description.
        split: Name of the split.
        name: Of the column.
        shard: With at least one sample.
        place: Maps the file; anywhere by default.
        verify: Compare its checksum first, which reads the whole file.

    Returns:
        [rows, *shape] as stored, read-only; offsets as int64, known to lie in the values.

    Raises:
        MissingShardError: The file is not there.
        ChecksumError: Its bytes are not those that the manifest promises.
        FormatError: It is not what the manifest promises, leads out of the dataset by a link, or
            its offsets fall or lead astray.
    """
    spec = manifest.splits[split]
    container = CONTAINERS[manifest.container]
    column, rows = spec.column(name)
    files = spec.files[column.name]
    path = container.shard_path(root, split, shard, column, spec.capacity)
    expect_inside(root, path)
    if verify and path.is_file():  # else opening it says what is wrong
        expect_checksum(path, files.crc32c[shard])
    if column.in_chunks:
        nbytes = files.nbytes[shard]
        chunks = open_chunks(path, column, rows[shard], spec.capacity, nbytes, place)
        return chunks[name != column.name]
    found = container.open_rows(path, column, rows[shard], spec.capacity, place)
    if column.role == "offsets":
        return _checked(found, path, spec.values[name.removesuffix("_offsets")][shard])
    return found


def column_rows(manifest: Manifest, split: str, name: str) -> tuple[FieldSpec, tuple[int, ...]]:
    """Return how a column is read, and its rows in each shard; of a field in chunks its bytes."""
    spec, container = manifest.splits[split], CONTAINERS[manifest.container]
    column, rows = spec.column(name)
    if not column.in_chunks:
        return column, rows
    beside = {n: container.shard_nbytes(column, n, spec.capacity) if n else 0 for n in {*rows}}
    nbytes = spec.files[column.name].nbytes
    chunks = tuple(whole - beside[n] for whole, n in zip(nbytes, rows, strict=True))
    return FieldSpec(name=name, dtype="uint8", shape=(), role="values"), chunks


def _checked(offsets: NDArray[Any], path: Path, values: int) -> NDArray[np.int64]:
    first, last = int(offsets[0]), int(offsets[-1])
    if first != 0 or last != values or bool((offsets[1:] < offsets[:-1]).any()):
        raise FormatError(
            f"{path}: offsets from {first} to {last}, expected 0 to {values} and never "
            'falling; run "prep check" or prepare it again'
        )
    return offsets.view("<i8")
