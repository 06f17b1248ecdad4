import os
import warnings
from pathlib import Path
from typing import Any

import cv2  # noqa: TID253 - to look at its settings
import numpy as np
import pytest
import torch
from PIL import Image, ImageOps  # noqa: TID253 - the reference

from loaders import open_dataset
from preprocess import ImageOptions, RunOptions, SourceError, images_to_shards
from preprocess.images.options import size_name
from preprocess.images.prepare import plan_images
from preprocess.images.recipe import ImageRecipe
from tests.synthetic import write_image_tree


def texture(width: int, height: int) -> Image.Image:
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 120 * np.sin(x / (3 + k)) * np.cos(y / (5 - k)) for k in range(3)]
    return Image.fromarray(np.stack(waves, axis=2).astype(np.uint8))


@pytest.mark.parametrize("grayscale", [False, True])
@pytest.mark.parametrize("size", [(64, 64), (96, 40), (24, 80)])
def test_stored_pixels_are_within_one_level_of_pillow(
    tmp_path: Path, size: tuple[int, int], grayscale: bool
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    turned = Image.Exif()
    turned[0x0112] = 6
    texture(301, 203).save(photos / "a.png")
    texture(301, 203).save(photos / "b.jpg", quality=95, exif=turned)
    images_to_shards(photos, tmp_path / "out", ImageOptions(sizes=(size,), grayscale=grayscale))
    ds = open_dataset(tmp_path / "out")
    for index, name in enumerate(["a.png", "b.jpg"]):
        image = ImageOps.exif_transpose(Image.open(photos / name))
        image = image.convert("L" if grayscale else "RGB")
        width, height = image.size
        scale = min(width / size[0], height / size[1])
        crop = round(size[0] * scale), round(size[1] * scale)
        left, top = (width - crop[0]) // 2, (height - crop[1]) // 2
        box = (left, top, left + crop[0], top + crop[1])
        expected = np.asarray(image.crop(box).resize(size, Image.Resampling.BICUBIC), np.int16)
        stored = ds[index]["image"].permute(1, 2, 0).numpy().astype(np.int16)
        assert stored.shape[2] == (1 if grayscale else 3)
        difference = np.abs(stored.reshape(expected.shape) - expected)
        assert difference.max() <= (2 if grayscale else 1)  # luma itself is rounded by each


def test_every_size_comes_from_the_same_photo(tmp_path: Path) -> None:
    write_image_tree(tmp_path / "photos", ["ant"], 3, size=(80, 60))
    sizes = ((32, 32), (16, 16), (20, 10))
    images_to_shards(tmp_path / "photos", tmp_path / "out", ImageOptions(sizes=sizes))
    means = [open_dataset(tmp_path / "out", size=size).mean for size in sizes]
    assert np.ptp(np.array(means[:2]), axis=0).max() < 0.01


def test_the_process_is_left_as_it_was(tmp_path: Path) -> None:
    write_image_tree(tmp_path / "photos", ["ant"], 2)

    def settings() -> list[Any]:
        level = cv2.utils.logging.getLogLevel()
        threads = [torch.get_num_threads(), cv2.getNumThreads()]
        return [*threads, Image.MAX_IMAGE_PIXELS, level, list(warnings.filters)]

    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        before = settings()
        images_to_shards(tmp_path / "photos", tmp_path / "out", ImageOptions(sizes=((8, 8),)))
        assert settings() == before
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(("classes", "dtype"), [(1, "uint8"), (256, "uint8"), (257, "uint16")])
def test_labels_take_the_narrowest_type_that_holds_the_classes(classes: int, dtype: str) -> None:
    recipe = ImageRecipe(chosen=ImageOptions(sizes=((8, 8),)), key_nbytes=5, class_count=classes)
    assert {field.name: field.dtype for field in recipe.fields()}["label"] == dtype


def test_more_than_256_classes_are_stored_and_read_right(tmp_path: Path) -> None:
    classes = [f"class-{index:03d}" for index in range(300)]
    write_image_tree(tmp_path / "photos", classes, 1, size=(8, 8))
    for container in ("tensor", "zarr"):
        out = tmp_path / container
        options = ImageOptions(sizes=((8, 8),))
        images_to_shards(tmp_path / "photos", out, options, RunOptions(container=container))
        ds = open_dataset(out)
        assert [ds[index]["label"] for index in range(300)] == list(range(300))
        assert ds.__getitems__([299, 256, 255])["label"].tolist() == [299, 256, 255]


def test_a_flat_folder_has_no_label(tmp_path: Path) -> None:
    write_image_tree(tmp_path / "photos", ["ant"], 3)
    images_to_shards(tmp_path / "photos" / "ant", tmp_path / "out", ImageOptions(sizes=((8, 8),)))
    ds = open_dataset(tmp_path / "out")
    assert set(ds[0]) == {"image", "key"}
    assert ds.classes == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": ()}, "at least one"),
        ({"sizes": ((8, 8), (8, 8))}, "all different"),
        ({"sizes": ((0, 8),)}, "1..16384"),
        ({"sizes": ((8, 8),), "fit": "zoom"}, "fit='zoom'"),
        ({"sizes": ((8, 8),), "resample": "nearest"}, "resample='nearest'"),
        ({"sizes": ((8, 8),), "background": "pink"}, "background='pink'"),
        ({"sizes": ((8, 8),), "max_pixels": 0}, "max_pixels=0"),
        ({"sizes": ((8, 8),), "max_item_nbytes": 0}, "max_item_nbytes=0"),
    ],
)
def test_options_outside_their_range_name_what_is_allowed(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ImageOptions(**options)


def test_pictures_over_max_pixels_are_refused_by_name(tmp_path: Path) -> None:
    write_image_tree(tmp_path / "photos", ["ant"], 1, size=(40, 40))
    options = ImageOptions(sizes=((8, 8),), max_pixels=1599)
    with pytest.raises(SourceError, match=r"ant/0000\.jpg: .* more than 1,599 \(`max_pixels`\)"):
        images_to_shards(tmp_path / "photos", tmp_path / "out", options)


def test_files_over_max_item_nbytes_are_refused_by_name_unread(tmp_path: Path) -> None:
    photos, masks = tmp_path / "photos", tmp_path / "masks"
    write_image_tree(photos, ["ant"], 3, size=(40, 40))
    for path in sorted((photos / "ant").iterdir()):
        mask = masks / "ant" / f"{path.stem}.png"
        mask.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (40, 40)).save(mask)
    for large in (photos / "ant/0000.jpg", masks / "ant/0001.png"):
        os.truncate(large, 2_000_000_001)  # takes no room on the disk
    for copy in ("ant/0003.jpg", "ant/0004.jpg"):  # of one size: looked at for copies
        (photos / copy).touch()
        os.truncate(photos / copy, 40_000_000_000)
    report = images_to_shards(
        photos, tmp_path / "out", ImageOptions(sizes=((8, 8),), masks=masks), RunOptions()
    )
    skipped = dict(report.skipped)
    large = "2,000,000,001 bytes, files may have 2,000,000,000; raise --max-item-bytes"
    assert skipped["ant/0000.jpg"] == large
    assert skipped["ant/0001.jpg"] == f"its mask ant/0001.png: {large}"
    assert "40,000,000,000 bytes" in skipped["ant/0003.jpg"]
    assert (sorted(skipped), sum(report.samples.values())) == (
        ["ant/0000.jpg", "ant/0001.jpg", "ant/0003.jpg", "ant/0004.jpg"],
        1,
    )


def test_many_small_files_on_many_cores_go_to_processes(tmp_path: Path) -> None:
    write_image_tree(tmp_path / "photos", ["ant"], 2)
    run_options = RunOptions()
    plan = plan_images(
        tmp_path / "photos", tmp_path / "out", ImageOptions(sizes=((8, 8),)), run_options
    )
    assert plan.recipe.backend(plan.listing, 16) == "threading"
    (items,) = plan.listing.splits.values()
    many = type(plan.listing)(root=plan.listing.root, splits={"train": items * 10_000})
    assert plan.recipe.backend(many, 16) == "loky"
    assert plan.recipe.backend(many, 2) == "threading"


def test_sizes_are_named_by_width_then_height() -> None:
    assert [size_name((512, 512)), size_name((512, 384))] == ["512", "512x384"]
