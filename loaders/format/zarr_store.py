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

import base64
import json
import warnings
from pathlib import Path
from typing import Any, Final

import numpy as np
from google_crc32c import value as crc32c
from numpy.typing import NDArray

from loaders.errors import FormatError
from loaders.format.fields import FieldSpec
from loaders.format.files import Place, map_file
from loaders.format.spec import (
    FORMAT_NAME,
    Manifest,
    SplitSpec,
)

_SHARDED_FROM: Final = 4096
"""Bytes of a sample from which each is an inner chunk of its own (16 bytes of index each)."""

_ABSENT: Final = np.uint64(2**64 - 1)
_CRC_NBYTES: Final = 4
VALID: Final = "valid"
_METADATA: Final = "zarr.json"
_MAX_VALID: Final = 1 << 28
"""Rows that `valid` covers, a byte each, in one file: more belong into several datasets."""


def _is_sharded(field: FieldSpec) -> bool:
    # zarr-python 3.1 cannot read shards of structured values (it hashes their fill value).
    return field.nbytes >= _SHARDED_FROM and field.record is None


def _is_apart(field: FieldSpec, capacity: int | None) -> bool:
    """Return whether each shard is an array of its own."""
    return capacity is None or field.role in {"values", "offsets"}


def shard_name(split: str, index: int, field: FieldSpec, capacity: int | None) -> str:
    """Return where shard `index` of a field lies: zarr's default chunk key."""
    zeros = "/0" * len(field.shape)
    if _is_apart(field, capacity):
        return f"{split}/{field.name}/{index:05d}/c/0{zeros}"
    return f"{split}/{field.name}/c/{index}{zeros}"


def shard_path(root: Path, split: str, index: int, field: FieldSpec, capacity: int | None) -> Path:
    """Return where shard `index` of a field lies."""
    return root / shard_name(split, index, field, capacity)


def prefix(field: FieldSpec, count: int) -> bytes:  # noqa: ARG001
    """Return what precedes the rows: nothing."""
    return b""


def suffix(field: FieldSpec, count: int, capacity: int | None) -> bytes:
    """Return what follows `count` rows: the index of a zarr shard, or fill to a whole chunk."""
    if capacity is None or _is_apart(field, capacity):
        return b""
    if not _is_sharded(field):
        return bytes((capacity - count) * field.nbytes)
    index = np.full((capacity, 2), _ABSENT, dtype="<u8")
    index[:count, 0] = np.arange(count, dtype=np.uint64) * np.uint64(field.nbytes)
    index[:count, 1] = field.nbytes
    data = index.tobytes()
    return data + int(crc32c(data)).to_bytes(_CRC_NBYTES, "little")


def shard_nbytes(field: FieldSpec, count: int, capacity: int | None) -> int:
    """Return the size of a shard file of `count` rows."""
    if capacity is None or _is_apart(field, capacity):
        return count * field.nbytes
    if _is_sharded(field):
        return count * field.nbytes + capacity * 16 + _CRC_NBYTES
    return capacity * field.nbytes


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
    whole = _is_apart(field, capacity) or not _is_sharded(field)
    if not whole and data[end:].tobytes() != suffix(field, count, capacity):
        raise FormatError(
            f"{path}: the shard index is not that of {count} rows back to back; "
            'run "prep check" or prepare it again'
        )
    return data[:end].view(field.numpy_dtype).reshape(count, *field.shape)


def group_files(manifest: Manifest) -> dict[str, bytes]:
    """Return the metadata that makes the folder a zarr group, and each split's `valid` array.

    Args:
        manifest: The dataset, complete.

    Returns:
        Relative path -> bytes.
    """
    import zarr
    from zarr.storage import MemoryStore

    # A store in memory, not zarr's own file writer: files are written our way, atomically.
    found: dict[str, Any] = {}
    store = MemoryStore(found)
    root = zarr.create_group(store=store)
    for name, split in manifest.splits.items():
        _describe_split(root.create_group(name), split)
    with warnings.catch_warnings():
        # zarr says that other readers may not know consolidated metadata; they may ignore it.
        warnings.filterwarnings("ignore", "Consolidated metadata", UserWarning)
        # With it, listing the group looks at no file beside: manifest.json is none of zarr's.
        zarr.consolidate_metadata(store)
    files = {path: bytes(data.to_bytes()) for path, data in found.items()}
    return _describe_records(manifest, files)


def _describe_split(group: Any, split: SplitSpec) -> None:
    for field, rows in split.columns():
        if _is_apart(field, split.capacity):
            shards = group.create_group(field.name)
            for index, count in enumerate(rows):
                if split.counts[index]:
                    _describe_array(shards, f"{index:05d}", field, rows=count, chunk=count)
        elif split.capacity is not None:
            _describe_array(group, field.name, field, rows=split.items, chunk=split.capacity)
    if split.capacity is not None:
        _describe_valid(group, split, split.capacity)


def _describe_array(group: Any, name: str, field: FieldSpec, *, rows: int, chunk: int) -> None:
    whole = (max(1, chunk), *field.shape)
    sharded = name == field.name and _is_sharded(field)
    # Records stand there as bytes until `_describe_records`.
    dtype = np.dtype(np.uint8) if field.record is not None else field.numpy_dtype
    group.create_array(
        name,
        shape=(rows, *field.shape),
        dtype=dtype,
        chunks=(1, *field.shape) if sharded else whole,
        shards=whole if sharded else None,
        compressors=None,
        filters=None,
        fill_value=0,
    )


def _describe_records(manifest: Manifest, files: dict[str, bytes]) -> dict[str, bytes]:
    """Put the data type of records where bytes stand for them.

    # NOTE [ Structured data types in zarr ]
    # zarr-python 3.1 writes the data type "structured", later ones "struct", which 3.1 cannot read;
    # they read "structured" too. So it is written here, the same whatever zarr is installed. The
    # order of bytes is said, as later versions want it. Neither has arrays as parts: those are raw
    # bytes. (3.1 takes them and then stores the first value alone.)
    """
    records = {
        f"{name}/{field.name}": field
        for name, split in manifest.splits.items()
        for field in split.fields
        if field.record is not None
    }
    if not records:
        return files
    described = dict(files)
    for path, data in files.items():
        if not path.endswith(_METADATA):
            continue
        entry = json.loads(data)
        arrays = {path.removesuffix(_METADATA).rstrip("/"): entry}
        if "consolidated_metadata" in entry:
            arrays |= entry["consolidated_metadata"]["metadata"]
        changed = False
        for name, array in arrays.items():
            split_and_field = "/".join(name.split("/")[:2])
            if array["node_type"] == "array" and split_and_field in records:
                array.update(_record_metadata(records[split_and_field]))
                changed = True
        if changed:
            described[path] = json.dumps(entry, indent=2).encode()
    return described


def _record_metadata(field: FieldSpec) -> dict[str, Any]:
    parts: list[list[Any]] = []
    for name, dtype, length in field.record or ():
        size = np.dtype(dtype).itemsize * length
        raw = {"name": "raw_bytes", "configuration": {"length_bytes": size}}
        parts.append([name, dtype if length == 1 else raw])
    return {
        "data_type": {"name": "structured", "configuration": {"fields": parts}},
        "fill_value": base64.b64encode(bytes(field.nbytes)).decode(),
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }


def _describe_valid(group: Any, split: SplitSpec, capacity: int) -> None:
    import zarr

    if split.items > _MAX_VALID:
        raise FormatError(f"{split.items:,} items: a zarr group describes up to {_MAX_VALID:,}")
    group.attrs[FORMAT_NAME] = {"valid": f"{VALID}[i] says whether row i is a sample or fill"}
    valid = np.zeros((len(split.counts), capacity), dtype=np.bool_)
    for shard, count in enumerate(split.counts):
        valid[shard, :count] = True
    flat = valid.reshape(-1)[: split.items]
    # Uncompressed, and written even where all rows are fill, so that its bytes follow from ours.
    with zarr.config.set({"array.write_empty_chunks": True}):
        array = group.create_array(
            VALID, shape=flat.shape, dtype=np.bool_, chunks=(max(1, len(flat)),), compressors=None
        )
        array[:] = flat
