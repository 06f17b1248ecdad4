"""Fits that keep a picture's shape, that enlarge nothing, and sides longer than named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image  # noqa: TID253 - a test may load what it compares with

from loaders import open_dataset
from preprocess import ImageOptions, images_to_shards
from preprocess.images.resize import FILTERS, FITS, Fit, Resample, fit_geometry, fit_sizes

SIDES = st.integers(1, 400)


@given(SIDES, SIDES, st.integers(1, 100), st.booleans())
def test_shortest_and_longest_scale_that_side_and_keep_the_shape(
    width: int, height: int, side: int, upscale: bool
) -> None:
    for fit, pick in (("shortest", min), ("longest", max)):
        if side * max(width, height) > 16384 * min(width, height):
            continue
        found = fit_geometry(width, height, (side, side), fit, upscale=upscale)  # type: ignore[arg-type]
        now = pick(width, height)
        wanted = side if upscale else min(side, now)
        assert found.source == (0, 0, width, height)
        assert found.target == (0, 0, *found.size)
        assert pick(found.size) == wanted
        for old, new in zip((width, height), found.size, strict=True):
            assert abs(new - old * wanted / now) <= 0.5 or new == 1


@given(SIDES, SIDES, st.tuples(SIDES, SIDES), st.sampled_from(FITS))
def test_nothing_is_enlarged_where_that_is_asked(
    width: int, height: int, size: tuple[int, int], fit: Fit
) -> None:
    try:
        found = fit_geometry(width, height, size, fit, upscale=False)
    except ValueError as error:
        assert fit in {"crop", "stretch"} or "16384" in str(error)  # noqa: PT017
        return
    left, top, right, bottom = found.source
    assert found.target[2] - found.target[0] <= right - left
    assert found.target[3] - found.target[1] <= bottom - top


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize("kind", ["RGB", "16-bit", "RGBA"])
def test_every_fit_is_within_a_level_of_a_float_reference(
    fit: Fit, resample: Resample, kind: str
) -> None:
    rng = np.random.default_rng(3)
    channels = 4 if kind == "RGBA" else 3
    deep = kind == "16-bit"
    y, x = np.mgrid[0:90, 0:130]
    waves = [127 + 100 * np.sin(x / (5 + k)) * np.cos(y / (4 + k)) for k in range(channels)]
    image = (np.stack(waves, 2) + rng.normal(0, 4, (90, 130, 1))).clip(1, 255)
    image = (image * 257).astype(np.uint16) if deep else image.astype(np.uint8)
    (found,) = fit_sizes(image, [(37, 37)], fit=fit, resample=resample, background=(0, 0, 0))
    place = fit_geometry(130, 90, (37, 37), fit)
    left, top, right, bottom = place.source
    part = image[top:bottom, left:right].astype(np.float32)
    peak = 65535 if deep else 255
    if channels == 4:
        part[:, :, :3] *= part[:, :, 3:] / peak
    size = (place.target[2] - place.target[0], place.target[3] - place.target[1])
    planes = [
        Image.fromarray(np.ascontiguousarray(part[:, :, k])).resize(
            size, Image.Resampling[resample.upper()]
        )
        for k in range(channels)
    ]
    want = np.stack([np.asarray(plane) for plane in planes], 2).astype(np.float64)
    if channels == 4:
        want[:, :, :3] *= peak / want[:, :, 3:]
    inside = found[place.target[1] : place.target[3], place.target[0] : place.target[2]]
    assert found.shape[:2] == place.size[::-1]
    assert np.abs(inside - want.clip(0, peak)).max() <= (1 if kind != "RGB" else 1.6)


def test_hidden_colours_do_not_bleed_and_padding_is_transparent() -> None:
    image = np.zeros((40, 80, 4), np.uint8)
    image[:, :40] = (200, 10, 20, 255)
    image[:, 40:] = (0, 255, 0, 0)
    (found,) = fit_sizes(image, [(20, 20)], fit="pad", resample="bilinear")
    shown = found[found[:, :, 3] > 0]
    assert np.abs(shown[:, :3].astype(int) - (200, 10, 20)).max() <= 1
    assert (found[0] == (255, 255, 255, 0)).all()


def make(tmp_path: Path, sizes: list[tuple[int, int]]) -> Path:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, size in enumerate(sizes):
        Image.new("RGB", size, (200, 100, number)).save(photos / f"{number}.png")
    return photos


def test_the_valid_box_of_padded_pictures_is_stored(tmp_path: Path) -> None:
    photos = make(tmp_path, [(40, 20), (10, 8)])
    options = ImageOptions(sizes=((32, 32),), fit="pad", no_upscale=True, background="black")
    images_to_shards(photos, tmp_path / "out", options)
    ds = open_dataset(tmp_path / "out")
    assert ds[0]["transform"].tolist() == [40, 20, 0, 0, 40, 20, 0, 8, 32, 24]
    assert ds[1]["transform"].tolist() == [10, 8, 0, 0, 10, 8, 11, 12, 21, 20]
    for number in (0, 1):
        left, top, right, bottom = ds[number]["transform"].tolist()[6:]
        inside = np.zeros((32, 32), bool)
        inside[top:bottom, left:right] = True
        assert ((ds[number]["image"][0].numpy() > 100) == inside).all()


def test_pictures_too_small_for_a_crop_are_refused_where_nothing_is_enlarged(
    tmp_path: Path,
) -> None:
    photos = make(tmp_path, [(40, 40), (31, 90)])
    options = ImageOptions(sizes=((32, 32),), no_upscale=True)
    report = images_to_shards(photos, tmp_path / "out", options)
    (skipped,) = report.skipped
    assert skipped[0] == "1.png"
    assert "31 x 90 is too small to fill 32 x 32" in skipped[1]


def test_a_panorama_that_would_grow_beyond_measure_is_refused_by_name(tmp_path: Path) -> None:
    photos = make(tmp_path, [(40, 40), (4000, 2)])
    options = ImageOptions(sizes=((512, 512),), fit="shortest")
    report = images_to_shards(photos, tmp_path / "out", options)
    assert "a side of more than 16384" in dict(report.skipped)["1.png"]


def test_a_margin_stores_longer_sides_under_the_name_of_the_short_ones(tmp_path: Path) -> None:
    photos = make(tmp_path, [(400, 400)])
    options = ImageOptions(sizes=((224, 224), (64, 32)), margin=1.15, transforms=True)
    images_to_shards(photos, tmp_path / "out", options)
    ds = open_dataset(tmp_path / "out", size=224)
    assert ds[0]["image"].shape == (3, 258, 258)
    assert ds[0]["transform"].tolist() == [400, 400, 0, 0, 400, 400, 0, 0, 258, 258]
    assert ds.with_size("64x32")[0]["image"].shape == (3, 37, 74)
    assert ds.manifest.recipe["margin"] == 1.15


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fit": "shortest", "sizes": ((8, 9),)}, "takes one side"),
        ({"margin": 0.9}, "margin=0.9"),
        ({"margin": 5}, "margin=5"),
    ],
)
def test_fits_and_margins_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageOptions(**{"sizes": ((8, 8),), **options})


def test_pictures_that_are_not_enlarged_are_counted_by_their_files(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(400):
        Image.new("RGB", (8, 6), (number % 256, 0, 0)).save(folder / f"{number}.png")
    options = ImageOptions(sizes=((16384, 16384),), fit="longest", no_upscale=True)
    assert images_to_shards(folder, tmp_path / "out", options).samples == {"train": 400}
    assert len(open_dataset(tmp_path / "out").manifest.splits["train"].counts) == 1
