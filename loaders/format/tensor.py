"""The tensor container: one `.npy` file per shard and field, opened by `numpy.load` alone.

`train/00003.image_512.npy` holds [count, 512, 512, 3] uint8: a header of 128 bytes, then the rows.
The header of records names their columns, so it is as long as they need.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError
from loaders.format.fields import FieldSpec
from loaders.format.maps import Place, map_file
from loaders.format.spec import Manifest

_COUNT_DIGITS: Final = 21
_ALIGNMENT: Final = 64
_VERSIONS: Final = ((b"\x01\x00", 2), (b"\x02\x00", 4))
"""Of the format, and the bytes that say how long a header is."""


def shard_name(
    split: str,
    index: int,
    field: FieldSpec,
    capacity: int | None,  # noqa: ARG001
) -> str:
    """Return where shard `index` of a field lies, below the dataset's folder."""
    return f"{split}/{index:05d}.{field.name}.npy"


def shard_path(root: Path, split: str, index: int, field: FieldSpec, capacity: int | None) -> Path:
    """Return where shard `index` of a field lies."""
    return root / shard_name(split, index, field, capacity)


def prefix(field: FieldSpec, count: int) -> bytes:
    """Return the `.npy` header for `count` rows; its length is the same for every count.

    Its bytes are those that `numpy.save` writes. Names of columns beyond ASCII are the exception:
    NumPy writes them as UTF-8 in format 3.0, and escapes signs that its Python does not know yet,
    so its bytes differ between versions of Python. Here they are escaped as `ascii` does it, which
    `numpy.load` and any reader of format 1.0 take.

    Source:
        NumPy NEP 1, format version 1.0, or 2.0 where the header is longer than 1.0 can say.
    """
    shape = (count, *field.shape)
    text = f"{{'descr': {_descr(field)}, 'fortran_order': False, 'shape': {shape!r}, }}"
    # NumPy leaves room for the first side to grow, which makes the length the same for all.
    text += " " * (_COUNT_DIGITS - len(str(count)))
    for version, length_nbytes in _VERSIONS:
        start = len(np.lib.format.MAGIC_PREFIX) + len(version) + length_nbytes
        # From 1 to 64 spaces, and a newline.
        padded = text + " " * (_ALIGNMENT - (start + len(text) + 1) % _ALIGNMENT) + "\n"
        if len(padded) < 1 << 8 * length_nbytes:
            break
    length = len(padded).to_bytes(length_nbytes, "little")
    return np.lib.format.MAGIC_PREFIX + version + length + padded.encode("ascii")


@lru_cache(maxsize=64)
def _descr(field: FieldSpec) -> str:
    return ascii(np.lib.format.dtype_to_descr(field.numpy_dtype))


def suffix(
    field: FieldSpec,  # noqa: ARG001
    count: int,  # noqa: ARG001
    capacity: int | None,  # noqa: ARG001
    sizes: NDArray[np.int64] | None = None,  # noqa: ARG001
) -> bytes:
    """Return what follows the rows: nothing."""
    return b""


def shard_nbytes(field: FieldSpec, count: int, capacity: int | None) -> int:  # noqa: ARG001
    """Return the size of a shard file of `count` rows."""
    return len(prefix(field, count)) + count * field.nbytes


def open_rows(
    path: Path, field: FieldSpec, count: int, capacity: int | None, place: Place | None = None
) -> NDArray[Any]:
    """Map the rows of one shard file.

    Args:
        path: The file.
        field: The field stored in it.
        count: Rows that the manifest promises.
        capacity: Rows planned for the shard.
        place: Maps the file; anywhere by default.

    Returns:
        [count, *field.shape] of the field's dtype, read-only, C-contiguous.

    Raises:
        MissingShardError: The file is not there.
        FormatError: Its size or its header is not what the manifest promises.
    """
    data = map_file(path, shard_nbytes(field, count, capacity), place)
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
