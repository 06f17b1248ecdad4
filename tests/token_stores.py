"""Small datasets out of arrays, mostly of tokens, written through the format alone."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google_crc32c import value as crc32c
from numpy.typing import NDArray

from loaders.format.codecs import encode_sample
from loaders.format.containers import CONTAINERS
from loaders.format.fields import FieldSpec
from loaders.format.spec import Container, Manifest
from loaders.format.split_spec import ShardFiles, SplitSpec

Rows = Sequence[NDArray[Any]]
"""One array a sample."""

TOKENIZER = {"eos_id": 2, "pad_id": 1, "largest_id": 999}


def write_store(
    root: Path,
    fields: Sequence[FieldSpec],
    shards: Sequence[Mapping[str, Rows]],
    *,
    container: Container = "tensor",
    tokenizer: Mapping[str, Any] | None = None,
    splits: Sequence[str] = ("train",),
) -> Path:
    """Write a dataset of kind "tokens" whose splits all hold the same samples.

    Args:
        root: The dataset's folder; made if absent.
        fields: Of every sample.
        shards: Field name -> its samples, for each shard.
        container: How shards are stored.
        tokenizer: Ids in the manifest; `TOKENIZER` by default.
        splits: Their names.

    Returns:
        The folder.
    """
    kept = TOKENIZER if tokenizer is None else tokenizer
    manifest = Manifest(
        container=container,
        kind="tokens",
        recipe={"tokenizer": dict(kept)},
        recipe_hash="0" * 64,
        source_hash="0" * 64,
        classes=(),
        skipped=0,
        splits={name: write_split(root, name, fields, shards, container) for name in splits},
    )
    write_manifest(root, manifest)
    return root


def write_manifest(root: Path, manifest: Manifest) -> None:
    """Write what describes shards that were written."""
    root.mkdir(parents=True, exist_ok=True)
    for name, data in CONTAINERS[manifest.container].group_files(manifest).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "manifest.json").write_bytes(manifest.to_bytes())


def write_split(
    root: Path,
    split: str,
    fields: Sequence[FieldSpec],
    shards: Sequence[Mapping[str, Rows]],
    container: Container,
) -> SplitSpec:
    """Write the shards of a split, and return what describes them; samples may be encoded."""
    counts = tuple(len(shard[fields[0].name]) for shard in shards)
    values: dict[str, list[int]] = {}
    files: dict[str, list[tuple[int, str]]] = {}
    for index, shard in enumerate(shards):
        for field in fields:
            for column, array, sizes in _columns(field, shard[field.name]):
                facts = (0, f"{0:08x}")
                if counts[index]:
                    path = CONTAINERS[container].shard_path(root, split, index, column, None)
                    facts = _write_column(path, column, array, sizes, container)
                files.setdefault(column.name, []).append(facts)
                if column.role == "values":
                    values.setdefault(column.name, []).append(len(array))
    return SplitSpec(
        fields=tuple(fields),
        capacity=None,
        items=max(1, len(shards)),
        counts=counts,
        files={
            name: ShardFiles(
                nbytes=tuple(nbytes for nbytes, _ in facts), crc32c=tuple(crc for _, crc in facts)
            )
            for name, facts in files.items()
        },
        statistics={},
        class_counts=None,
        values={name: tuple(counts) for name, counts in values.items()},
    )


Sizes = NDArray[np.int64]


def _columns(
    field: FieldSpec, rows: Rows
) -> Iterable[tuple[FieldSpec, NDArray[Any], Sizes | None]]:
    """Yield the columns of a field; of samples in chunks also how many bytes each has."""
    if not field.varies:
        whole = np.array(rows, field.numpy_dtype).reshape(len(rows), *field.shape)
        return [(field, whole, None)]
    if field.encoding is not None:
        packed = [encode_sample(field.encoding, row) for row in rows]
        rows = [np.frombuffer(data, np.uint8) for data in packed]
    sizes = np.array([len(row) for row in rows], np.int64)
    values, offsets = (field, None) if field.in_chunks else field.columns()
    empty = np.empty(0, np.uint8)
    if field.encoding is None:
        empty = np.empty((0, *field.shape), field.numpy_dtype)
    flat = np.concatenate([empty, *rows]).astype(empty.dtype)
    if offsets is None:
        return [(values, flat, sizes)]
    ends = np.concatenate(([0], np.cumsum(sizes))).astype(offsets.numpy_dtype)
    return [(values, flat, None), (offsets, ends, None)]


def _write_column(
    path: Path, column: FieldSpec, array: NDArray[Any], sizes: Sizes | None, container: Container
) -> tuple[int, str]:
    form, count = CONTAINERS[container], len(array) if sizes is None else len(sizes)
    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = form.suffix(column, count, None, sizes)
    data = form.prefix(column, count) + array.tobytes() + suffix
    path.write_bytes(data)
    return len(data), f"{crc32c(data):08x}"


def text(value: str) -> NDArray[np.uint8]:
    """Return UTF-8 bytes as an array."""
    return np.frombuffer(value.encode(), np.uint8)


def stream_fields(dtype: str = "uint16", *, metadata: bool = False) -> tuple[FieldSpec, ...]:
    """Return the fields of layout stream."""
    fields = [
        FieldSpec(name="tokens", dtype=dtype, shape=(), role="tokens", ragged=True),
        FieldSpec(name="key", dtype="uint8", shape=(), role="key", ragged=True),
    ]
    if metadata:
        fields.append(
            FieldSpec(name="metadata", dtype="uint8", shape=(), role="metadata", ragged=True)
        )
    return tuple(fields)


def write_stream(
    root: Path, shards: Sequence[Sequence[Sequence[int]]], dtype: str = "uint16", **options: Any
) -> Path:
    """Write documents, given shard by shard, in layout stream, with keys and metadata."""
    made: list[Mapping[str, Rows]] = []
    number = 0
    for documents in shards:
        numbers = range(number, number + len(documents))
        number += len(documents)
        made.append(
            {
                "tokens": [np.array(document, dtype) for document in documents],
                "key": [text(f"é.txt:{n}") for n in numbers],
                "metadata": [text(f'{{"n":{n}}}') for n in numbers],
            }
        )
    return write_store(root, stream_fields(dtype, metadata=True), made, **options)


def write_fixed(
    root: Path, shards: Sequence[Sequence[Sequence[int]]], length: int, **options: Any
) -> Path:
    """Write documents in layout fixed, filled up with id 1."""
    fields = (
        FieldSpec(name="tokens", dtype="uint16", shape=(length,), role="tokens"),
        FieldSpec(name="length", dtype="uint16", shape=(), role="length"),
    )
    made: list[Mapping[str, Rows]] = [
        {
            "tokens": [np.array([*d, *[1] * (length - len(d))], np.uint16) for d in documents],
            "length": [np.array(len(d), np.uint16) for d in documents],
        }
        for documents in shards
    ]
    return write_store(root, fields, made, **options)


def write_packed(
    root: Path, shards: Sequence[Sequence[Sequence[Sequence[int]]]], length: int, **options: Any
) -> Path:
    """Write rows of documents, given shard by shard, in layout packed, filled up with id 1."""
    fields = (
        FieldSpec(name="tokens", dtype="uint16", shape=(length,), role="tokens"),
        FieldSpec(name="document_lengths", dtype="uint32", shape=(), role="length", ragged=True),
    )
    made: list[Mapping[str, Rows]] = []
    for rows in shards:
        flat = [[token for document in row for token in document] for row in rows]
        made.append(
            {
                "tokens": [np.array([*f, *[1] * (length - len(f))], np.uint16) for f in flat],
                "document_lengths": [np.array([len(d) for d in row], np.uint32) for row in rows],
            }
        )
    return write_store(root, fields, made, **options)


def write_chat(
    root: Path, shards: Sequence[Sequence[tuple[Sequence[int], Sequence[int]]]], **options: Any
) -> Path:
    """Write conversations, each tokens and 0 or 1 for each of them, in layout chat."""
    fields = (
        *stream_fields(),
        FieldSpec(name="loss_mask", dtype="uint8", shape=(), role="mask", ragged=True),
    )
    made: list[Mapping[str, Rows]] = [
        {
            "tokens": [np.array(tokens, np.uint16) for tokens, _ in chats],
            "key": [text(f"chat:{n}") for n in range(len(chats))],
            "loss_mask": [np.packbits(np.array(m, np.uint8), bitorder="little") for _, m in chats],
        }
        for chats in shards
    ]
    return write_store(root, fields, made, **options)
