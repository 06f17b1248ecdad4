from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image  # noqa: TID253

from loaders import (
    Augment,
    ImageTypeError,
    Loader,
    Normalize,
    NormalizedModel,
    NormalizeError,
    SelectionError,
    open_dataset,
    open_tokens,
)
from loaders.format.fields import FieldSpec
from loaders.images import show_images
from loaders.views import View
from preprocess import ImageOptions, images_to_shards
from tests.benchmarks.device_set import write_images
from tests.synthetic import write_image_tree
from tests.token_stores import write_stream


@pytest.fixture
def ds(make_dataset: Callable[..., Path]) -> Any:
    return open_dataset(make_dataset(), size=32)


@pytest.mark.parametrize("place", ["disk", "ram", "device"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("stored", ["uint8", "uint16"])
def test_batches_come_normalized(tmp_path: Path, stored: str, dtype: Any, place: Any) -> None:
    ds = open_dataset(write_images(tmp_path / "images", 20, 9, dtype=stored))
    normalize = Normalize.for_dataset(ds, dtype=dtype)
    loader = Loader(ds, 4, residency=place, normalize=normalize)
    for batch, plain in zip(loader, Loader(ds, 4), strict=True):
        assert torch.equal(batch["image"], normalize(plain["image"]))
        assert batch["image"].dtype == dtype
        assert batch["image"].is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(batch["label"], plain["label"])
        assert batch["key"] == plain["key"]


def test_images_that_the_loader_normalized_are_not_normalized_again(ds: Any) -> None:
    normalize = Normalize.for_dataset(ds)
    (batch, *_) = Loader(ds, 4, normalize=normalize)
    with pytest.raises(ImageTypeError, match="probably normalized already"):
        NormalizedModel(normalize, torch.nn.Flatten())(batch["image"])


def test_the_module_that_was_given_may_be_cast_and_moved_afterwards(ds: Any) -> None:
    normalize = Normalize.for_dataset(ds)
    loader = Loader(ds, 4, normalize=normalize)
    normalize.half()
    assert next(iter(loader))["image"].dtype == torch.float32


def test_datasets_without_fitting_images_are_refused(ds: Any, tmp_path: Path) -> None:
    blocks = open_tokens(write_stream(tmp_path, [[[1, 2, 3, 4, 5, 6]]])).blocks(2)
    with pytest.raises(SelectionError, match="normalize: samples have no 'image', only 'block'"):
        Loader(blocks, 1, normalize=Normalize([0.5], [0.5]))
    with pytest.raises(
        NormalizeError, match="images have 3 channels, normalize has statistics of 1"
    ):
        Loader(ds, 4, normalize=Normalize([0.5], [0.5]))
    field = FieldSpec(name="image_32", dtype="uint32", shape=(32, 32, 3), role="image")
    ds.views = (View(name="image", field=field, show=show_images),)
    with pytest.raises(
        ImageTypeError, match=r"'image' is uint32.*expected images, uint8 or uint16"
    ):
        Loader(ds, 4, normalize=Normalize([0.5] * 3, [0.5] * 3))


def test_padded_photos_are_augmented_and_say_nothing_of_where_the_cut_lies(tmp_path: Path) -> None:
    write_image_tree(tmp_path / "photos", ["a"], 4)
    options = ImageOptions(sizes=((16, 16),), fit="pad")
    images_to_shards(tmp_path / "photos", tmp_path / "out", options)
    ds = open_dataset(tmp_path / "out")
    assert "transform" in ds[0]
    for place in ("disk", "device"):
        for batch in Loader(ds, 2, residency=place, augment=Augment(8, padding=2)):
            assert batch["image"].shape == (2, 3, 8, 8)
            assert batch.keys() == {"image", "label", "key"}
    assert "transform" in next(iter(Loader(ds, 2)))


def test_photos_with_masks_are_not_augmented(tmp_path: Path) -> None:
    write_image_tree(tmp_path / "photos", ["a"], 2)
    for photo in (tmp_path / "photos").rglob("*.*"):
        mask = (tmp_path / "masks" / photo.relative_to(tmp_path / "photos")).with_suffix(".png")
        mask.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(photo) as opened:
            Image.new("L", opened.size).save(mask)
    options = ImageOptions(sizes=((16, 16),), masks=tmp_path / "masks")
    images_to_shards(tmp_path / "photos", tmp_path / "out", options)
    with pytest.raises(SelectionError, match="augment cuts 'image' alone, and samples have mask"):
        Loader(open_dataset(tmp_path / "out"), 2, augment=Augment())
