"""Pictures that differ in size: lists, or one padded tensor; and where their parts came from."""

import dataclasses
import pickle  # noqa: TID251 - what worker processes do
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image  # noqa: TID253 - a test may load what it compares with
from torch.utils.data import DataLoader

from loaders import (
    Augment,
    FormatError,
    ImageTypeError,
    Loader,
    Mix,
    Normalize,
    SelectionError,
    boxes_to_original,
    boxes_to_stored,
    open_dataset,
)
from loaders.format.spec import read_manifest
from preprocess import ImageOptions, RunOptions, check_dataset, images_to_shards
from preprocess.images.resize import FITS, Fit, fit_geometry

SHAPES = [(40, 30), (30, 40), (64, 16), (20, 20), (9, 12), (33, 47)]


@pytest.fixture(params=["tensor", "zarr"])
def stored(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, (width, height) in enumerate(SHAPES):
        Image.fromarray(pixels(width, height, number)).save(photos / f"{number}.png")
    options = ImageOptions(sizes=((16, 16), (24, 24)), fit="shortest")
    run = RunOptions(container=request.param, shard_nbytes=2500)
    images_to_shards(photos, tmp_path / "out", options, run)
    return tmp_path / "out"


def pixels(width: int, height: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def expected(number: int, side: int) -> NDArray[np.uint8]:
    image = Image.fromarray(pixels(*SHAPES[number], number))
    size = fit_geometry(*image.size, (side, side), "shortest").size
    return np.asarray(image.resize(size, Image.Resampling.BICUBIC))


@pytest.mark.parametrize("side", [16, 24])
def test_pictures_of_different_sizes_come_as_a_list(stored: Path, side: int) -> None:
    ds = open_dataset(stored, size=side)
    assert len(ds.manifest.splits["train"].counts) > 1
    assert ds.manifest.version == 4
    batch = ds.__getitems__([5, 0, 2, 0])
    for place, number in enumerate([5, 0, 2, 0]):
        want = expected(number, side)
        for found in (batch["image"][place], ds[number]["image"]):
            assert found.dtype == torch.uint8
            assert np.abs(found.permute(1, 2, 0).numpy().astype(int) - want).max() <= 1
        assert batch["transform"][place].tolist()[:2] == list(SHAPES[number])
    assert not check_dataset(stored, full=True).problems


def test_padded_pictures_say_which_pixels_count(stored: Path) -> None:
    lists, padded = open_dataset(stored, size=16), open_dataset(stored, size=16, padded=True)
    order = [4, 1, 2]
    images, batch = lists.__getitems__(order)["image"], padded.__getitems__(order)
    height = max(image.shape[1] for image in images)
    width = max(image.shape[2] for image in images)
    assert batch["image"].shape == (3, 3, height, width)
    assert batch["image"].is_contiguous(memory_format=torch.channels_last)
    for image, filled, valid in zip(images, batch["image"], batch["image_valid"], strict=True):
        known = torch.zeros(height, width, dtype=torch.bool)
        known[: image.shape[1], : image.shape[2]] = True
        assert torch.equal(valid, known)
        assert torch.equal(filled[:, : image.shape[1], : image.shape[2]], image)
        assert filled.sum() == image.sum()


def test_loaders_workers_and_pickles_give_the_same(stored: Path) -> None:
    ds = open_dataset(stored, size=24)
    again = pickle.loads(pickle.dumps(ds))
    for loader in (
        Loader(again, 4, shuffle=False, drop_last=False),
        DataLoader(ds, batch_size=4, num_workers=1, multiprocessing_context="fork"),
    ):
        found = [image for batch in loader for image in batch["image"]]
        assert len(found) == len(SHAPES)
        for number, image in enumerate(found):
            assert torch.equal(image, ds[number]["image"])


def test_another_size_shares_everything_else(stored: Path) -> None:
    ds = open_dataset(stored, size=16, padded=True)
    other = ds.with_size(24)
    assert (other.split, other.path) == (ds.split, ds.path)
    assert min(other[0]["image"].shape[1:]) == 24
    assert "image_valid" in other[0]
    chosen = ds.select([3, 1])
    assert chosen.with_size(24).indices.tolist() == chosen.indices.tolist() == [3, 1]


def test_a_size_that_does_not_fit_the_pixels_is_refused(stored: Path) -> None:
    ds = open_dataset(stored, size=16)
    good = ds[0]["transform"].numpy().astype("<u4")
    changed = good.copy()
    changed[8] += 1
    files = [p for p in (stored / "train").rglob("*") if p.is_file() and "transform_16" in str(p)]
    (path,) = (p for p in files if good.tobytes() in p.read_bytes())
    path.write_bytes(path.read_bytes().replace(good.tobytes(), changed.tobytes(), 1))
    with pytest.raises(FormatError, match=r"image_16.*sample 0: .* pixels, its size is"):
        open_dataset(stored, size=16).__getitems__([5, 0])


def test_padding_and_mixing_of_what_cannot_be_are_refused(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(SelectionError, match="cannot be mixed"):
        Mix({open_dataset(stored, size=16): 1.0})
    photos = tmp_path / "photos"
    images_to_shards(photos, tmp_path / "flat", ImageOptions(sizes=((8, 8),)))
    with pytest.raises(SelectionError, match="padded=True"):
        open_dataset(tmp_path / "flat", padded=True)
    assert set(open_dataset(tmp_path / "flat")[0]) == {"image", "key"}


@given(
    width=st.integers(1, 3000),
    height=st.integers(1, 3000),
    size=st.tuples(st.integers(1, 900), st.integers(1, 900)),
    fit=st.sampled_from(FITS),
    boxes=st.lists(st.tuples(*[st.floats(-50, 4000)] * 4), min_size=1, max_size=4),
)
def test_boxes_mapped_there_and_back_are_the_same(
    width: int,
    height: int,
    size: tuple[int, int],
    fit: Fit,
    boxes: list[tuple[float, float, float, float]],
) -> None:
    if fit in {"shortest", "longest"}:
        if max(width, height) * size[0] > 16000 * min(width, height):
            return
        size = (size[0], size[0])
    placement = fit_geometry(width, height, size, fit)
    transform = torch.tensor([width, height, *placement.source, *placement.target])
    given_boxes = torch.tensor(boxes, dtype=torch.float64)
    there = boxes_to_stored(given_boxes, transform)
    torch.testing.assert_close(
        boxes_to_original(there, transform), given_boxes, atol=1e-6, rtol=1e-9
    )
    whole = torch.tensor([placement.source], dtype=torch.float64)
    filled = torch.tensor([placement.target], dtype=torch.float64)
    torch.testing.assert_close(boxes_to_stored(whole, transform), filled)


@pytest.mark.parametrize("mapped", [boxes_to_stored, boxes_to_original])
def test_boxes_may_be_lists_and_arrays(mapped: Any) -> None:
    transform = torch.tensor([40, 30, 5, 0, 35, 30, 0, 0, 20, 20])
    boxes = [[5, 0, 35, 30], [1, 2, 3, 4]]
    expected = mapped(torch.tensor(boxes, dtype=torch.float64), transform)
    doubles = np.array(boxes, np.float64)
    for these, dtype in (
        (boxes, torch.float32),
        (np.array(boxes), torch.float32),
        (doubles.tolist(), torch.float32),
        (doubles, torch.float64),
        (doubles.astype(">f8"), torch.float64),
        (np.frombuffer(doubles.tobytes()).reshape(2, 4), torch.float64),
        (doubles[::-1].copy()[::-1], torch.float64),
    ):
        for beside in (transform, transform.numpy().astype("<u4"), transform.tolist()):
            found = mapped(these, beside)
            assert found.dtype == dtype
            torch.testing.assert_close(found, expected.to(dtype))
    assert mapped([], transform).shape == (0, 4)
    assert mapped(boxes[0], transform).shape == (4,)


def test_a_transform_of_a_batch_is_refused() -> None:
    with pytest.raises(SelectionError, match="of one sample"):
        boxes_to_stored(torch.zeros(1, 4), torch.zeros(2, 10, dtype=torch.int64))


def test_no_samples_are_a_padded_batch_of_none(stored: Path) -> None:
    ds = open_dataset(stored, size=16, padded=True)
    batch = ds.__getitems__([])
    assert batch["image"].shape == (0, 3, 0, 0)
    assert batch["image_valid"].shape == (0, 0, 0)
    assert batch["key"] == []


def test_pictures_of_different_sizes_are_not_augmented_or_normalized(stored: Path) -> None:
    ds = open_dataset(stored, size=16)
    with pytest.raises(
        ImageTypeError, match="augment: the loader takes pictures of one size, or in buckets"
    ):
        Loader(ds, 2, augment=Augment())
    with pytest.raises(
        ImageTypeError, match="normalize: the loader takes pictures of one size, or in buckets"
    ):
        Loader(ds, 2, normalize=Normalize.for_dataset(ds))


def test_a_manifest_that_does_not_say_how_large_pictures_are_is_refused(stored: Path) -> None:
    manifest = read_manifest(stored)
    split = manifest.splits["train"]
    less = dataclasses.replace(
        split,
        fields=tuple(field for field in split.fields if field.role != "transform"),
        files={name: f for name, f in split.files.items() if not name.startswith("transform")},
    )
    told = dataclasses.replace(manifest, splits={"train": less})
    (stored / "manifest.json").write_bytes(told.to_bytes())
    with pytest.raises(FormatError, match="'image_16' of pictures of any size has no 'transform_"):
        open_dataset(stored, size=16)


@pytest.mark.parametrize("change", [boxes_to_original, boxes_to_stored])
def test_what_are_no_boxes_or_no_transform_is_refused_by_name(change: Any) -> None:
    boxes, transform = torch.zeros(2, 4), torch.arange(10)
    for given_boxes in ("a box", None, [[1, 2, 3, 4], [1, 2]], [["a", "b", "c", "d"]], {}):
        with pytest.raises(SelectionError, match=r"boxes is .*: expected a tensor, an array or"):
            change(given_boxes, transform)
    with pytest.raises(SelectionError, match="transform is NoneType: expected a tensor"):
        change(boxes, None)
    with pytest.raises(SelectionError, match=r"boxes are .* \[3\]: expected floats"):
        change([1, 2, 3], transform)
    with pytest.raises(SelectionError, match=r"boxes are torch.int64 \[2, 4\]: expected floats"):
        change(boxes.long(), transform)
    with pytest.raises(SelectionError, match=r"boxes are torch.float32 \[2, 3\]: expected floats"):
        change(boxes[:, :3], transform)
    with pytest.raises(SelectionError, match=r"transform of shape \(2, 10\): expected \(10,\)"):
        change(boxes, transform.expand(2, 10))
