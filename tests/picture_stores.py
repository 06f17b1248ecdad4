"""The same few photos, stored in each way that reading tells apart."""

from pathlib import Path
from typing import Any

from preprocess import ImageOptions, RunOptions, images_to_shards
from tests.synthetic import encode_image, smooth_image

WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "raw": ("tensor", {}),
    "raw in zarr": ("zarr", {}),
    "jpeg": ("tensor", {"store": "jpeg"}),
    "zstd": ("zarr", {"compress": "zstd"}),
    "blosc": ("zarr", {"compress": "blosc-lz4"}),
    "of any size": ("tensor", {"fit": "shortest"}),
    "jpeg of any size": ("tensor", {"fit": "longest", "store": "jpeg"}),
    "buckets": ("tensor", {"fit": "bucket", "bucket_step": 8}),
    "buckets of jpeg": ("zarr", {"fit": "bucket", "bucket_step": 8, "store": "jpeg"}),
}
"""Name -> container and options."""


def prepare_in_all_ways(folder: Path, count: int) -> dict[str, Path]:
    """Make a dataset of `count` photos, several shards, in each of the ways; return where."""
    (folder / "photos").mkdir()
    for number in range(count):
        pixels = smooth_image(30 + 5 * number % 37, 66 - 7 * number % 41, seed=number)
        (folder / "photos" / f"{number:02d}.png").write_bytes(encode_image(pixels, ".png"))
    made = {}
    for name, (container, options) in WAYS.items():
        made[name] = folder / name
        chosen = ImageOptions(sizes=((32, 32),), labels="none", **options)
        run = RunOptions(container=container, shard_nbytes=9_000)
        images_to_shards(folder / "photos", made[name], chosen, run)
    return made
