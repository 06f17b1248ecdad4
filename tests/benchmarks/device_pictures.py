"""Pictures in buckets and encoded ones, written through the format alone, and checked on a device.

What encodes and decodes is numcodecs (zstd, Blosc), zstandard (zstd) and simplejpeg (JPEG); zarr
describes what is stored in zarr. Where one is missing, the check says so and the others go on.
"""

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from loaders import Augment, Loader, Normalize, SelectionError, open_dataset
from loaders.format.encoding import Encoding
from loaders.format.fields import TRANSFORM, FieldSpec
from loaders.format.spec import Container, Manifest
from loaders.format.statistics import ChannelStatistics
from loaders.residency import Residency
from tests.token_stores import text, write_manifest, write_split

SIDE: Final = 32
SHAPES: Final = ((24, 40), (32, 32), (40, 24))
"""Width and height of each bucket."""

_COUNT: Final = 70
_SHARD: Final = 32
_KEY: Final = 16


class Way(NamedTuple):
    """How pictures are stored.

    Attributes:
        container: Of the dataset.
        encoding: Of the pictures; None as they are.
        buckets: Whether they are in buckets, or of one size.
        needs: Packages that encode and decode them.
    """

    container: Container
    encoding: Encoding | None
    buckets: bool
    needs: tuple[str, ...]


_JPEG: Final = Encoding(codec="jpeg", level=90, chroma="420")
WAYS: Final = {
    "buckets": Way("tensor", None, buckets=True, needs=()),
    "buckets in zarr": Way("zarr", None, buckets=True, needs=("zarr",)),
    "buckets of jpeg": Way("tensor", _JPEG, buckets=True, needs=("simplejpeg",)),
    "jpeg": Way("tensor", _JPEG, buckets=False, needs=("simplejpeg",)),
    "zstd": Way(
        "zarr",
        Encoding(codec="zstd", level=3),
        buckets=False,
        needs=("zarr", "numcodecs", "zstandard"),
    ),
    "blosc-lz4": Way(
        "zarr", Encoding(codec="blosc-lz4", level=5), buckets=False, needs=("zarr", "numcodecs")
    ),
}


def write_pictures(root: Path, way: Way, count: int = _COUNT) -> Path:
    """Write a dataset of pictures in one of the ways, labels and keys, in shards of 32."""
    name = f"image_{SIDE}"
    shape = (3,) if way.buckets else (SIDE, SIDE, 3)
    fields = [
        FieldSpec(
            name=name,
            dtype="uint8",
            shape=shape,
            role="image",
            ragged=way.buckets,
            encoding=way.encoding,
        ),
        FieldSpec(name=f"transform_{SIDE}", dtype="uint32", shape=(TRANSFORM,), role="transform"),
        FieldSpec(name="label", dtype="uint16", shape=(), role="label"),
        FieldSpec(name="key", dtype="uint8", shape=(_KEY,), role="key"),
    ]
    pictures = [_picture(number, way) for number in range(count)]
    flat = [picture.reshape(-1, 3) for picture in pictures]
    raw_buckets = way.buckets and way.encoding is None
    rows = {
        name: flat if raw_buckets else pictures,
        f"transform_{SIDE}": [_transform(picture) for picture in pictures],
        "label": [np.array(number % 5) for number in range(count)],
        "key": [text(f"{number:08d}.png".ljust(_KEY, "\0")) for number in range(count)],
    }
    shards = [
        {field: own[first : first + _SHARD] for field, own in rows.items()}
        for first in range(0, count, _SHARD)
    ]
    split = write_split(root, "train", fields, shards, way.container)
    values = np.concatenate(flat).astype(np.int64)
    statistics = ChannelStatistics(
        pixels=len(values),
        sums=tuple(values.sum(axis=0).tolist()),
        squares=tuple((values**2).sum(axis=0).tolist()),
        levels=255,
    )
    found = np.bincount(np.arange(count) % 5, minlength=5).tolist()
    split = replace(split, statistics={name: statistics}, class_counts=tuple(found))
    bucketed = {"fit": "bucket", "buckets": {str(SIDE): [[*pair] for pair in SHAPES]}}
    manifest = Manifest(
        container=way.container,
        kind="images",
        recipe=bucketed if way.buckets else {},
        recipe_hash="0" * 64,
        source_hash="0" * 64,
        classes=tuple("abcde"),
        skipped=0,
        splits={"train": split},
    )
    write_manifest(root, manifest)
    return root


def _picture(number: int, way: Way) -> NDArray[np.uint8]:
    """Return [H, W, 3] that JPEG and the others can make smaller, each another one."""
    wide, high = SHAPES[number * number % 7 % 3] if way.buckets else (SIDE, SIDE)
    y, x = np.mgrid[:high, :wide]
    planes = [x * (3 + number % 5) + y * c + 11 * number for c in (2, 5, 7)]
    return np.stack(planes, axis=-1).astype(np.uint8)


def _transform(picture: NDArray[np.uint8]) -> NDArray[np.uint32]:
    high, wide, _ = picture.shape
    return np.array([wide, high, 0, 0, wide, high, 0, 0, wide, high], np.uint32)


def missing(way: Way) -> list[str]:
    """Return the packages that a way needs and this machine lacks."""
    return [name for name in way.needs if find_spec(name) is None]


def check_pictures(scratch: Path, device: torch.device, places: list[Residency]) -> Iterator[str]:
    """Yield a line for each way and residency: batches of the CPU; the first wrong one raises."""
    for name, way in WAYS.items():
        if lacking := missing(way):
            yield f"{name}: NOT CHECKED, {' and '.join(lacking)} not installed here"
            continue
        path = write_pictures(scratch / name, way)
        dataset = open_dataset(path)
        for place in places:
            if way.buckets and place in {"pinned", "device"}:
                yield f"{name}, {place}: {_refused(dataset, place, device)}"
                continue
            if way.buckets:
                _check_ranks(open_dataset(path, padded=True), place, device, {"last": "pad"}, 0)
                yield f"{name}, {place}: the batches of the CPU, with what counts of each picture"
            for options in ({}, {"last": "pad"}, {"last": "wrap", "drop_last": False}):
                for epoch in range(2):
                    _check_ranks(dataset, place, device, options, epoch)
            yield f"{name}, {place}: the batches of the CPU, of two ranks too"
            _check_finished(dataset, place, device)
            yield f"{name}, {place}: normalized and augmented as on the CPU"


def _refused(dataset: Any, place: Residency, device: torch.device) -> str:
    try:
        Loader(dataset, 4, device=device, residency=place)
    except SelectionError as error:
        return f"refused: {error}"
    raise AssertionError(f"{place}: pictures of several sizes were not refused")


def _check_ranks(
    dataset: Any,
    place: Residency,
    device: torch.device,
    options: dict[str, Any],
    epoch: int,
) -> None:
    """Compare what two ranks get with what they get in host memory, and one rank likewise."""
    for world_size in (1, 2):
        shapes = []
        for rank in range(world_size):
            group = {"rank": rank, "world_size": world_size, "seed": 3, **options}
            loader = Loader(dataset, 4, device=device, residency=place, **group)
            expected = Loader(dataset, 4, **group)
            loader.set_epoch(epoch)
            expected.set_epoch(epoch)
            own = []
            for batch, known in zip(loader, expected, strict=True):
                _expect_equal(batch, known, device)
                own.append(batch["image"].shape)
            assert own, f"{place}: no batches"
            shapes.append(own)
            assert loader.state_dict() == expected.state_dict()
        assert all(own == shapes[0] for own in shapes), f"{place}: ranks differ in shape"


def _expect_equal(batch: dict[str, Any], known: dict[str, Any], device: torch.device) -> None:
    assert batch.keys() == known.keys()
    for name, value in known.items():
        if not isinstance(value, torch.Tensor):
            assert batch[name] == value, name
            continue
        on_host = name == "transform"
        assert batch[name].device == (torch.device("cpu") if on_host else device), name
        assert batch[name].dtype == value.dtype, name
        assert torch.equal(batch[name].cpu(), value), name


def _check_finished(dataset: Any, place: Residency, device: torch.device) -> None:
    """Compare normalized and cut pictures with the same of the CPU's."""
    for dtype in (torch.float32, torch.bfloat16):
        normalize = Normalize.for_dataset(dataset, dtype=dtype)
        finished = Loader(dataset, 4, device=device, residency=place, normalize=normalize)
        whole = Normalize.for_dataset(dataset, dtype=dtype).to(device)
        for batch, known in zip(finished, Loader(dataset, 4), strict=True):
            assert batch["image"].dtype == dtype
            assert torch.equal(batch["image"], whole(known["image"].to(device))), (place, dtype)
    normalize = Normalize.for_dataset(dataset, dtype=torch.float32)
    cuts: list[dict[str, Any]] = [{}, {"size": 20, "scale": (0.2, 1.0)}, {"size": (17, 24)}]
    for cut in cuts:
        augment = Augment(**cut)
        stored = Loader(dataset, 4, augment=augment)
        there = Loader(dataset, 4, augment=augment, device=device, residency=place)
        both = Loader(
            dataset, 4, augment=augment, normalize=normalize, device=device, residency=place
        )
        for batch, floats, known in zip(there, both, stored, strict=True):
            assert torch.equal(batch["image"].cpu(), known["image"]), (place, cut)
            shown = normalize(known["image"])
            torch.testing.assert_close(floats["image"].cpu(), shown, atol=1e-6, rtol=0)
