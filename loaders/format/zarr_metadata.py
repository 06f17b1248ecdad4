"""What describes a dataset to zarr: which samples are chunks of their own, and its JSON files."""

import base64
import json
import warnings
from typing import Any, Final

import numpy as np

from loaders.errors import FormatError
from loaders.format.fields import FieldSpec
from loaders.format.spec import FORMAT_NAME, Manifest
from loaders.format.split_spec import SplitSpec

_SHARDED_FROM: Final = 4096
"""Bytes of a sample from which each is an inner chunk of its own (16 bytes of index each)."""

VALID: Final = "valid"
_METADATA: Final = "zarr.json"
_MAX_VALID: Final = 1 << 28
"""Rows that `valid` covers, a byte each, in one file: more belong into several datasets."""


def is_sharded(field: FieldSpec) -> bool:
    """Return whether each sample is an inner chunk of its own."""
    if field.in_chunks:
        return True
    # zarr-python 3.1 cannot read shards of structured values (it hashes their fill value).
    return field.nbytes >= _SHARDED_FROM and field.record is None


def is_apart(field: FieldSpec, capacity: int | None) -> bool:
    """Return whether each shard is an array of its own."""
    return capacity is None or field.role in {"values", "offsets"}


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
        if is_apart(field, split.capacity):
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
    sharded = field.in_chunks or (name == field.name and is_sharded(field))
    # Records stand there as bytes until `_describe_records`.
    dtype = np.dtype(np.uint8) if field.record is not None else field.numpy_dtype
    group.create_array(
        name,
        shape=(rows, *field.shape),
        dtype=dtype,
        chunks=(1, *field.shape) if sharded else whole,
        shards=whole if sharded else None,
        compressors=_compressors(field),
        filters=None,
        fill_value=0,
    )


def _compressors(field: FieldSpec) -> list[Any] | None:
    """Return zarr's names for what `codecs` writes."""
    from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

    encoding = field.encoding
    if encoding is None:
        return None
    if encoding.codec == "zstd":
        return [ZstdCodec(level=encoding.level, checksum=False), Crc32cCodec()]
    size = field.numpy_dtype.itemsize
    made = BloscCodec(cname="lz4", clevel=encoding.level, shuffle="bitshuffle", typesize=size)
    return [made, Crc32cCodec()]


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
