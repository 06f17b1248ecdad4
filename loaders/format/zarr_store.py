"""The zarr container: one zarr v3 group per split that `zarr.open` reads with nothing of ours.

A field whose samples are large is stored in zarr shards of one sample per inner chunk,
uncompressed, so that a shard file is the rows back to back and can be mapped; a field of small
samples is stored in plain chunks. Shard `s` covers rows `s * capacity` on: first its samples, in
the order of its items, then a row of fill for each item that could not be read. The group's array
`valid` says which rows are samples, and `key` which item a row is.

Source:
    zarr v3 core specification; sharding-indexed codec 1.0 (index at the end: per inner chunk its
    offset and size as uint64, 2^64 - 1 twice if absent, then CRC-32C of the index).

Columns whose rows in a shard are not known beforehand (ragged ones, and all where an item becomes
any number of samples) are an array of one chunk a shard: `train/tokens/00003`.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
from google_crc32c import value as crc32c
from numpy.typing import NDArray

from loaders.errors import FormatError
from loaders.format.fields import FieldSpec
from loaders.format.maps import Place, map_file
from loaders.format.zarr_metadata import group_files, is_apart, is_sharded

__all__ = [
    "group_files",
    "open_chunks",
    "open_rows",
    "prefix",
    "shard_name",
    "shard_nbytes",
    "shard_path",
    "suffix",
]

_ABSENT: Final = np.uint64(2**64 - 1)
_PAIR_NBYTES: Final = 16
_CRC_NBYTES: Final = 4


def shard_name(split: str, index: int, field: FieldSpec, capacity: int | None) -> str:
    """Return where shard `index` of a field lies: zarr's default chunk key."""
    zeros = "/0" * len(field.shape)
    if is_apart(field, capacity):
        return f"{split}/{field.name}/{index:05d}/c/0{zeros}"
    return f"{split}/{field.name}/c/{index}{zeros}"


def shard_path(root: Path, split: str, index: int, field: FieldSpec, capacity: int | None) -> Path:
    """Return where shard `index` of a field lies."""
    return root / shard_name(split, index, field, capacity)


def prefix(field: FieldSpec, count: int) -> bytes:  # noqa: ARG001
    """Return what precedes the rows: nothing."""
    return b""


def suffix(
    field: FieldSpec, count: int, capacity: int | None, sizes: NDArray[np.int64] | None = None
) -> bytes:
    """Return what follows `count` rows: the index of a zarr shard, or fill to a whole chunk.

    Args:
        field: The field.
        count: Its samples.
        capacity: Rows planned for the shard; None for as many as there are.
        sizes: [count] bytes of each encoded sample, where they are chunks.
    """
    planned = _planned(field, count, capacity)
    if sizes is None and (planned is None or not is_sharded(field)):
        return b"" if planned is None else bytes((planned - count) * field.nbytes)
    nbytes = np.full(count, field.nbytes) if sizes is None else sizes
    index = np.full((planned or 0, 2), _ABSENT, dtype="<u8")
    index[:count, 0] = np.cumsum(nbytes) - nbytes
    index[:count, 1] = nbytes
    data = index.tobytes()
    return data + int(crc32c(data)).to_bytes(_CRC_NBYTES, "little")


def _planned(field: FieldSpec, count: int, capacity: int | None) -> int | None:
    """Return the rows of a shard's array or chunk; None where it is the rows and nothing else."""
    if field.in_chunks:
        return count if capacity is None else capacity
    return None if is_apart(field, capacity) else capacity


def shard_nbytes(field: FieldSpec, count: int, capacity: int | None) -> int:
    """Return the size of a shard file of `count` rows, less encoded samples."""
    planned = _planned(field, count, capacity)
    if planned is None:
        return count * field.nbytes
    if is_sharded(field):
        rows = 0 if field.in_chunks else count * field.nbytes
        return rows + planned * _PAIR_NBYTES + _CRC_NBYTES
    return planned * field.nbytes


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
        FormatError: Its size or its shard index is not what the manifest promises.
    """
    data = map_file(path, shard_nbytes(field, count, capacity), place)
    end = count * field.nbytes
    # Also zero where another writer left out all-zero samples and moved the later ones.
    whole = is_apart(field, capacity) or not is_sharded(field)
    if not whole and data[end:].tobytes() != suffix(field, count, capacity):
        raise _bad_index(path, count)
    return data[:end].view(field.numpy_dtype).reshape(count, *field.shape)


def open_chunks(
    path: Path,
    field: FieldSpec,
    count: int,
    capacity: int | None,
    nbytes: int,
    place: Place | None = None,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Map the encoded samples of one shard file.

    Args:
        path: The file.
        field: The field, in chunks.
        count: Samples that the manifest promises.
        capacity: Rows planned for the shard.
        nbytes: Size that the manifest promises.
        place: Maps the file; anywhere by default.

    Returns:
        [bytes] uint8, all samples back to back, read-only, and int64 [count + 1], where each begins
        and ends among them.

    Raises:
        MissingShardError: The file is not there.
        FormatError: Its size or its shard index is not what the manifest promises.
    """
    data = map_file(path, nbytes, place)
    end = nbytes - shard_nbytes(field, count, capacity)
    if end < count:
        raise _bad_index(path, count)
    ends = data[end:-_CRC_NBYTES].view("<u8").reshape(-1, 2)[:count].sum(axis=1, dtype=np.uint64)
    offsets = np.concatenate([np.zeros(1, np.uint64), ends])
    falls = bool((offsets[1:] <= offsets[:-1]).any())
    # Also refused: samples that overlap, leave gaps, or lie outside of the file.
    if falls or int(offsets[-1]) != end:
        raise _bad_index(path, count)
    found = offsets.astype(np.int64)
    if data[end:].tobytes() != suffix(field, count, capacity, np.diff(found)):
        raise _bad_index(path, count)
    return data[:end], found


def _bad_index(path: Path, count: int) -> FormatError:
    return FormatError(
        f"{path}: the shard index is not that of {count} rows back to back; "
        'run "prep check" or prepare it again'
    )
