import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loaders import (
    Augment,
    ImageTypeError,
    Loader,
    Mix,
    Normalize,
    SelectionError,
    Weighted,
    open_dataset,
)
from loaders.augment_boxes import FLIPPED, HEIGHT, LEFT, TOP, WIDTH, Boxes, Draws
from loaders.finish import BOXES

STORED = [torch.uint8, torch.uint16]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"size": 5, "flip": 0.5},
    {"size": (7, 4), "padding": 2},
    {"padding": 3, "flip": 0.0},
    {"size": (6, 9), "scale": (0.08, 1.0)},
    {"size": 12, "scale": (0.3, 0.5), "ratio": (0.5, 3.0), "flip": 1.0},
]


def stored_images(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    most = 256 if dtype == torch.uint8 else 65536
    random = np.random.default_rng(seed)
    values = random.integers(0, most, shape).astype(str(dtype).removeprefix("torch."))
    return torch.from_numpy(values).permute(0, 3, 1, 2)


def expected(image: np.ndarray, box: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Show a box of an image, [H, W, C], pixel by pixel in float64."""
    top, left, height, width, flipped = box.tolist()
    out = np.zeros((*size, image.shape[2]))
    for row in range(size[0]):
        for column in range(size[1]):
            place = size[1] - 1 - column if flipped else column
            y = min(max((row + 0.5) * height / size[0] - 0.5, 0), height - 1)
            x = min(max((place + 0.5) * width / size[1] - 0.5, 0), width - 1)
            y0, x0 = int(y), int(x)
            for dy, wy in ((0, 1 - y % 1), (1, y % 1)):
                for dx, wx in ((0, 1 - x % 1), (1, x % 1)):
                    i, j = top + min(y0 + dy, height - 1), left + min(x0 + dx, width - 1)
                    if 0 <= i < image.shape[0] and 0 <= j < image.shape[1]:
                        out[row, column] += wy * wx * image[i, j]
    return out


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("stored", STORED, ids=str)
def test_a_box_is_shown_as_its_definition_says(stored: torch.dtype, options: Any) -> None:
    images = stored_images(stored, (6, 9, 8, 3))
    augment = Augment(**options)
    out = augment(images, range(40, 46), seed=3, epoch=2)
    size = augment.boxes.size or (9, 8)
    assert out.shape == (6, 3, *size)
    assert out.dtype == stored
    assert out.is_contiguous(memory_format=torch.channels_last)
    boxes = augment.draw(np.arange(40, 46), 9, 8, seed=3, epoch=2)
    levels = 255 if stored == torch.uint8 else 65535
    for image, box, shown in zip(images, boxes, out, strict=True):
        exact = expected(image.permute(1, 2, 0).numpy().astype(np.float64), box, size)
        error = np.abs(shown.permute(1, 2, 0).numpy().astype(np.float64) - exact).max()
        # Places are exact to half of 2**-11 of a pixel, on each side.
        assert error <= (0.5 + levels / 1024 if options.get("scale") else 0)


@given(
    indices=st.lists(st.integers(0, 2**62), min_size=1, max_size=9),
    seed=st.integers(0, 2**70),
    epoch=st.integers(0, 2**40),
    options=st.sampled_from(OPTIONS),
    data=st.data(),
)
def test_a_sample_has_the_same_box_in_every_batch(
    indices: list[int], seed: int, epoch: int, options: Any, data: Any
) -> None:
    boxes = Augment(**options).boxes
    whole = boxes.draw(np.array(indices), 9, 8, seed, epoch)
    order = data.draw(st.permutations(range(len(indices))))
    cut = data.draw(st.integers(0, len(indices)))
    for part in (order[:cut], order[cut:]):
        alone = boxes.draw(np.array([indices[i] for i in part], np.int64), 9, 8, seed, epoch)
        assert np.array_equal(alone, whole[part])


@given(
    scale=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)).map(sorted).map(tuple),
    ratio=st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)).map(sorted).map(tuple),
    height=st.integers(1, 300),
    width=st.integers(1, 300),
    seed=st.integers(0, 99),
)
def test_scaled_boxes_lie_in_the_image(
    scale: Any, ratio: Any, height: int, width: int, seed: int
) -> None:
    boxes = Boxes(size=(4, 4), scale=scale, ratio=ratio, padding=0, flip=0.5)
    found = boxes.draw(np.arange(50), height, width, seed, 0)
    assert (found[:, [TOP, LEFT]] >= 0).all()
    assert (found[:, [HEIGHT, WIDTH]] >= 1).all()
    assert (found[:, TOP] + found[:, HEIGHT] <= height).all()
    assert (found[:, LEFT] + found[:, WIDTH] <= width).all()


def test_boxes_have_the_asked_shares_proportions_and_flips() -> None:
    boxes = Boxes(size=(4, 4), scale=(0.2, 0.6), ratio=(0.5, 2.0), padding=0, flip=0.25)
    found = boxes.draw(np.arange(20_000), 1000, 1000, 1, 2).astype(np.float64)
    share = found[:, HEIGHT] * found[:, WIDTH] / 1e6
    ratio = found[:, WIDTH] / found[:, HEIGHT]
    assert 0.199 < share.min() < 0.202
    assert 0.598 < share.max() < 0.602
    assert abs(share.mean() - 0.4) < 0.005
    assert 0.495 < ratio.min() < 0.51
    assert 1.97 < ratio.max() < 2.02
    assert abs(np.log(ratio).mean()) < 0.01
    assert abs(found[:, FLIPPED].mean() - 0.25) < 0.01
    room = 1000 - found[:, HEIGHT]
    assert abs((found[:, TOP] / np.maximum(room, 1)).mean() - 0.5) < 0.01


def test_draws_of_different_numbers_samples_seeds_and_epochs_do_not_depend_on_each_other() -> None:
    count = 4096
    found = [
        Draws(np.arange(first, first + count), seed, epoch).number(which)
        for first, seed, epoch, which in [
            (0, 0, 0, 0),
            (0, 0, 0, 1),
            (0, 0, 0, 2),
            (0, 0, 1, 0),
            (0, 1, 0, 0),
            (1 << 32, 0, 0, 0),
            (1 << 20, 0, 0, 0),
        ]
    ]
    bits = np.stack([np.unpackbits(d.astype("<u4").view(np.uint8)) for d in found]).astype(float)
    assert np.abs(bits.mean(axis=1) - 0.5).max() < 0.006
    correlation = np.corrcoef(bits)
    assert np.abs(correlation - np.eye(len(found))).max() < 0.015
    steps = np.corrcoef(found[0][:-1].astype(float), found[0][1:].astype(float))
    assert abs(steps[0, 1]) < 0.06


def test_pinned_draws() -> None:
    draws = Draws(np.array([0, 1, 2**40]), 5, 7)
    assert draws.number(0).tolist() == GOLDEN_DRAWS
    boxes = Boxes(size=(4, 4), scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3), padding=0, flip=0.5)
    assert boxes.draw(np.array([0, 1, 2]), 256, 320, 5, 7).tolist() == GOLDEN_BOXES


GOLDEN_DRAWS = [2181752583, 1278820590, 1382182485]
GOLDEN_BOXES = [[13, 59, 226, 171, 0], [5, 0, 243, 285, 1], [28, 50, 178, 197, 1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size="),
        ({"size": "224"}, r"size='224': expected positive integers, \(height, width\)"),
        ({"size": (1.5, 2)}, "size="),
        ({"size": (1, 2, 3)}, "size="),
        ({"size": True}, "size="),
        ({"flip": "0.5"}, "flip='0.5': expected a probability"),
        ({"flip": math.nan}, "flip=nan"),
        ({"size": 4, "scale": 0.5}, "scale=0.5: expected"),
        ({"size": 4, "scale": (math.nan, 1.0)}, "scale="),
        ({"size": 4, "ratio": (1.0,)}, "ratio="),
        ({"size": 4, "ratio": (1.0, math.inf)}, "ratio="),
        ({"size": 4, "padding": -1}, "padding=-1: expected >= 0"),
        ({"flip": 1.5}, "flip=1.5"),
        ({"size": 4, "scale": (0.5, 0.1)}, "scale="),
        ({"size": 4, "scale": (0.0, 0.1)}, "scale="),
        ({"scale": (0.5, 1.0)}, "expected a size as well"),
        ({"size": 4, "scale": (0.5, 1.0), "padding": 1}, "expected no padding"),
        ({"size": 4, "ratio": (2.0, 1.0)}, "ratio="),
    ],
)
def test_options_out_of_range_are_refused(options: Any, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        Augment(**options)


def test_lists_stand_for_pairs() -> None:
    images = stored_images(torch.uint8, (5, 8, 8, 3)).permute(0, 3, 1, 2)
    given = Augment([4, 6], scale=[0.2, 1.0], ratio=[0.5, 2.0])(images, range(5))
    assert torch.equal(given, Augment((4, 6), scale=(0.2, 1.0), ratio=(0.5, 2.0))(images, range(5)))


def test_images_that_do_not_fit_are_refused() -> None:
    images = stored_images(torch.uint8, (2, 8, 8, 3))
    with pytest.raises(SelectionError, match="size is 13 high, images are 8 and 2 of padding"):
        Augment(13, padding=2)(images, [0, 1])
    with pytest.raises(ImageTypeError, match="augment first, then normalize"):
        Augment(4)(images.float(), [0, 1])
    with pytest.raises(SelectionError, match=r"indices \[3\]"):
        Augment(4)(images, [0, 1, 2])


@pytest.fixture
def ds(make_dataset: Callable[..., Path]) -> Any:
    return open_dataset(make_dataset(), size=32)


def by_key(loader: Loader, epochs: int = 2) -> dict[tuple[int, str], torch.Tensor]:
    return {
        (epoch, key): image
        for epoch in range(epochs)
        for batch in loader
        for key, image in zip(batch["key"], batch["image"], strict=True)
    }


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_loader_shows_a_sample_alike_for_any_batches_ranks_and_residency(
    ds: Any, options: Any
) -> None:
    augment = Augment(**options)
    whole = by_key(Loader(ds, 5, seed=3, drop_last=False, augment=augment))
    assert len(whole) == 36
    ranks = [
        Loader(ds, 2, seed=3, last="wrap", rank=r, world_size=2, augment=augment) for r in (0, 1)
    ]
    others = [
        *map(by_key, ranks),
        by_key(Loader(ds, 4, seed=3, drop_last=False, augment=augment, residency="device")),
    ]
    assert others[0].keys() | others[1].keys() == whole.keys() == others[2].keys()
    for other in others:
        assert all(torch.equal(image, whole[place]) for place, image in other.items())
    assert BOXES not in next(iter(Loader(ds, 2, augment=augment)))


def test_epochs_and_seeds_differ_and_follow_the_definition(ds: Any) -> None:
    augment = Augment(20, padding=2)
    index = {ds[i]["key"]: i for i in range(len(ds))}
    shown = by_key(Loader(ds, 4, seed=6, drop_last=False, augment=augment))
    for place, ((epoch, key), image) in enumerate(shown.items()):
        sample = ds[index[key]]["image"][None]
        expected = augment(sample, [place % len(ds)], seed=6, epoch=epoch)[0]
        assert torch.equal(expected, image)
    other = by_key(Loader(ds, 4, seed=7, drop_last=False, augment=augment))
    for one, two in (((0, k), (1, k)) for k in index):
        assert not torch.equal(shown[one], shown[two]) or not torch.equal(other[one], other[two])
    assert any(not torch.equal(shown[place], other[place]) for place in shown)


@pytest.mark.parametrize("place", ["disk", "device"])
def test_a_sample_that_is_drawn_again_in_an_epoch_is_cut_anew(ds: Any, place: Any) -> None:
    again = [
        ds.select([5] * 16),
        Weighted(ds, np.eye(len(ds))[5], num_samples=16),
        Mix({ds.select([5]): 1}, epoch_size=16),
    ]
    for dataset in again:
        loader = Loader(dataset, 16, augment=Augment(20, padding=2), residency=place)
        (batch,) = loader
        assert len({image.numpy().tobytes() for image in batch["image"]}) > 10


@pytest.mark.parametrize("place", ["disk", "device"])
def test_images_are_augmented_and_then_normalized(ds: Any, place: Any) -> None:
    augment, normalize = Augment(20), Normalize.for_dataset(ds, dtype=torch.bfloat16)
    options = {"augment": augment, "seed": 2}
    plain = Loader(ds, 4, **options)
    both = Loader(ds, 4, residency=place, normalize=normalize, **options)
    for one, two in zip(plain, both, strict=True):
        assert torch.equal(normalize(one["image"]), two["image"])
        assert two["image"].is_contiguous(memory_format=torch.channels_last)
