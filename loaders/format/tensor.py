"""The tensor container: one `.npy` file per shard and field, opened by `numpy.load` alone.

`train/00003.image_512.npy` holds [count, 512, 512, 3] uint8: a header of 128 bytes, then the rows.
"""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError
from loaders.format.fields import FieldSpec
from loaders.format.files import map_file
from loaders.format.spec import Manifest


def shard_path(
    root: Path,
    split: str,
    index: int,
    field: FieldSpec,
    capacity: int | None,  # noqa: ARG001
) -> Path:
    """Return where shard `index` of a field lies."""
    return root / split / f"{index:05d}.{field.name}.npy"


def prefix(field: FieldSpec, count: int) -> bytes:
    """Return the `.npy` header for `count` rows; its length is the same for every count.

    Source:
        NumPy NEP 1, format version 1.0; NumPy itself leaves room for the first side to grow.
    """
    header = BytesIO()
    np.lib.format.write_array_header_1_0(
        header,
        {
            "descr": np.lib.format.dtype_to_descr(field.numpy_dtype),
            "fortran_order": False,
            "shape": (count, *field.shape),
        },
    )
    return header.getvalue()


def suffix(field: FieldSpec, count: int, capacity: int | None) -> bytes:  # noqa: ARG001
    """Return what follows the rows: nothing."""
    return b""


def shard_nbytes(field: FieldSpec, count: int, capacity: int | None) -> int:  # noqa: ARG001
    """Return the size of a shard file of `count` rows."""
    return len(prefix(field, count)) + count * field.nbytes


def open_rows(path: Path, field: FieldSpec, count: int, capacity: int | None) -> NDArray[Any]:
    """Map the rows of one shard file.

    Args:
        path: The file.
        field: The field stored in it.
        count: Rows that the manifest promises.
        capacity: Rows planned for the shard.

    Returns:
        [count, *field.shape] of the field's dtype, read-only, C-contiguous.

    Raises:
        MissingShardError: The file is not there.
        FormatError: Its size or its header is not what the manifest promises.
    """
    data = map_file(path, shard_nbytes(field, count, capacity))
    header = prefix(field, count)
    if data[: len(header)].tobytes() != header:
        raise FormatError(
            f"{path}: the .npy header is not that of {count} rows of {field.dtype} "
            f'{field.shape} as in the manifest; run "prep check" or prepare it again'
        )
    rows = data[len(header) :].view(field.numpy_dtype)
    return rows.reshape(count, *field.shape)


def group_files(manifest: Manifest) -> dict[str, bytes]:  # noqa: ARG001
    """Return files beside the shards that describe them to other readers: none are needed."""
    return {}
