"""A stored column of one shard, mapped and checked: what all readers of a dataset share."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError
from loaders.format.containers import CONTAINERS
from loaders.format.files import Place
from loaders.format.spec import Manifest


def open_column(
    root: Path,
    manifest: Manifest,
    split: str,
    name: str,
    shard: int,
    place: Place | None = None,
) -> NDArray[Any]:
    """Map one column of one shard.

    Args:
        root: The dataset's folder.
        manifest: Its description.
        split: Name of the split.
        name: Of the column.
        shard: With at least one sample.
        place: Maps the file; anywhere by default.

    Returns:
        [rows, *shape] as stored, read-only; offsets as int64, known to lie in the values.

    Raises:
        MissingShardError: The file is not there.
        FormatError: It is not what the manifest promises, or its offsets fall or lead astray.
    """
    spec = manifest.splits[split]
    container = CONTAINERS[manifest.container]
    column, rows = next(found for found in spec.columns() if found[0].name == name)
    path = container.shard_path(root, split, shard, column, spec.capacity)
    found = container.open_rows(path, column, rows[shard], spec.capacity, place)
    if column.role == "offsets":
        return _checked(found, path, spec.values[name.removesuffix("_offsets")][shard])
    return found


def _checked(offsets: NDArray[Any], path: Path, values: int) -> NDArray[np.int64]:
    first, last = int(offsets[0]), int(offsets[-1])
    if first != 0 or last != values or bool((offsets[1:] < offsets[:-1]).any()):
        raise FormatError(
            f"{path}: offsets from {first} to {last}, expected 0 to {values} and never "
            'falling; run "prep check" or prepare it again'
        )
    return offsets.view("<i8")
