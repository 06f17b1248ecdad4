"""A dataset of random images, written through the format alone: no decoder is needed for it."""

from pathlib import Path

import numpy as np
from google_crc32c import value as crc32c

from loaders.format import tensor
from loaders.format.fields import FieldSpec
from loaders.format.spec import Manifest
from loaders.format.split_spec import ShardFiles, SplitSpec
from loaders.format.statistics import ChannelStatistics

CLASSES = 10
_SHARD = 1024
_KEY = 16


def write_images(root: Path, count: int, side: int, *, dtype: str = "uint8") -> Path:
    """Write `count` images of side x side x 3, labels and keys, in shards of 1,024.

    Checksums of images are left at 0, and their statistics are those of evenly spread values.
    """
    fields = (
        FieldSpec(name=f"image_{side}", dtype=dtype, shape=(side, side, 3), role="image"),
        FieldSpec(name="label", dtype="uint16", shape=(), role="label"),
        FieldSpec(name="key", dtype="uint8", shape=(_KEY,), role="key"),
    )
    (root / "train").mkdir(parents=True)
    random = np.random.default_rng(count)
    counts = tuple(min(_SHARD, count - first) for first in range(0, count, _SHARD))
    labels = random.integers(0, CLASSES, count).astype("<u2")
    files: dict[str, list[tuple[int, str]]] = {field.name: [] for field in fields}
    for shard, size in enumerate(counts):
        rows = slice(shard * _SHARD, shard * _SHARD + size)
        keys = [f"{number:08d}.png".encode().ljust(_KEY, b"\0") for number in range(count)[rows]]
        arrays = (
            random.integers(0, 1 << 63, -(-size * fields[0].nbytes // 8), dtype=np.int64)
            .view(np.uint8)[: size * fields[0].nbytes]
            .reshape(size, -1),
            labels[rows],
            np.frombuffer(b"".join(keys), np.uint8).reshape(size, _KEY),
        )
        for field, array in zip(fields, arrays, strict=True):
            data = array.view(np.uint8).reshape(-1)
            head = tensor.prefix(field, size)
            path = tensor.shard_path(root, "train", shard, field, _SHARD)
            with path.open("wb") as file:
                file.write(head)
                file.write(data.data)
            digest = "0" * 8 if field.role == "image" else f"{crc32c(head + data.tobytes()):08x}"
            files[field.name].append((len(head) + data.nbytes, digest))
    _write_manifest(root, fields, counts, files, np.bincount(labels, minlength=CLASSES))
    return root


def _write_manifest(
    root: Path,
    fields: tuple[FieldSpec, ...],
    counts: tuple[int, ...],
    files: dict[str, list[tuple[int, str]]],
    class_counts: np.ndarray,
) -> None:
    levels = 255 if fields[0].dtype == "uint8" else 65535
    pixels = sum(counts) * fields[0].shape[0] * fields[0].shape[1]
    even = ChannelStatistics(
        pixels=pixels,
        sums=(pixels * levels // 2,) * 3,
        squares=(pixels * levels * (2 * levels + 1) // 6,) * 3,
        levels=levels,
    )
    split = SplitSpec(
        fields=fields,
        capacity=min(_SHARD, sum(counts)),
        items=sum(counts),
        counts=counts,
        files={
            name: ShardFiles(nbytes=tuple(n for n, _ in own), crc32c=tuple(d for _, d in own))
            for name, own in files.items()
        },
        statistics={fields[0].name: even},
        class_counts=tuple(class_counts.tolist()),
    )
    manifest = Manifest(
        container="tensor",
        kind="images",
        recipe={},
        recipe_hash="0" * 64,
        source_hash="0" * 64,
        classes=tuple(f"class {number}" for number in range(CLASSES)),
        skipped=0,
        splits={"train": split},
    )
    (root / "manifest.json").write_bytes(manifest.to_bytes())
