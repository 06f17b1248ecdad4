"""Pictures in buckets: what is stored, what is counted, what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image  # noqa: TID253 - a test may write what it compares

from loaders import open_dataset
from loaders.format.spec import read_manifest
from preprocess import ImageOptions, images_to_shards
from preprocess.images.buckets import bucket_shapes
from tests.token_commands import call


def write_photos(folder: Path, sizes: list[tuple[int, int]]) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(5)
    for number, (width, height) in enumerate(sizes):
        pixels = rng.integers(0, 256, (height, width, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


def test_the_shapes_for_1024_are_those_that_trainers_use() -> None:
    tall = [(768, 1344), (832, 1216), (896, 1152), (960, 1088)]
    turned = [(height, width) for width, height in reversed(tall)]
    assert bucket_shapes(1024, 64, 2.0) == (*tall, (1024, 1024), *turned)


def test_pictures_are_counted_by_bucket_and_size_in_the_manifest_and_by_info(
    tmp_path: Path,
) -> None:
    photos = write_photos(tmp_path / "photos", [(40, 40), (50, 40), (90, 30), (30, 90), (31, 80)])
    words = ("--sizes", "32", "64", "--fit", "bucket", "--bucket-step", "8")
    assert call("images", photos, tmp_path / "out", *words).exit_code == 0
    manifest = read_manifest(tmp_path / "out")
    shapes = {"32": bucket_shapes(32, 8, 2.0), "64": bucket_shapes(64, 8, 2.0)}
    assert manifest.version == 4
    assert manifest.recipe["buckets"] == {
        name: [list(shape) for shape in found] for name, found in shapes.items()
    }
    assert manifest.splits["train"].tallies["buckets_32"] == (2, 2, 1)
    assert open_dataset(tmp_path / "out", size=32).buckets == {
        (24, 40): 2, (32, 32): 2, (40, 24): 1
    }  # fmt: skip
    shown = call("info", tmp_path / "out").stdout
    assert "train: buckets of 32: 24x40 2, 32x32 2, 40x24 1\n" in shown
    described = json.loads(call("info", tmp_path / "out", "--json").stdout)["buckets"]
    for size, found in shapes.items():
        counts = open_dataset(tmp_path / "out", size=size).buckets
        assert described["train"][size] == [[*shape, counts[shape]] for shape in found]


def test_a_dry_run_shows_the_buckets_that_a_run_fills(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", [(40, 40), (50, 40), (90, 30), (30, 90), (31, 80)])
    turned = Image.new("RGB", (90, 30))
    exif = turned.getexif()
    exif[274] = 6
    for ending in ("jpg", "png", "webp", "tif"):
        turned.save(photos / f"turned.{ending}", exif=exif)
    (photos / "broken.jpg").write_bytes(b"\xff\xd8\xff no picture")
    words = ("--sizes", "32", "64", "--fit", "bucket", "--bucket-step", "8", "--max-skipped", "1")
    shown = call("images", photos, tmp_path / "out", *words, "--dry-run").stdout
    as_json = call("images", photos, tmp_path / "out", *words, "--dry-run", "--json").stdout
    previewed = json.loads(as_json)["buckets"]
    assert not (tmp_path / "out").exists()

    assert call("images", photos, tmp_path / "out", *words).exit_code == 0
    stored = json.loads(call("info", tmp_path / "out", "--json").stdout)["buckets"]
    for size in ("32", "64"):
        found = previewed["train"][size]
        assert (found["looked_at"], found["photos"], found["unknown"]) == (10, 10, 1)
        counts = [[one["width"], one["height"], one["photos"]] for one in found["buckets"]]
        assert counts == stored["train"][size]
    assert "train: buckets of 32, by the headers of 10 photos:\n" in shown
    assert "  24x40              6   66.7%, 42.9% of each cut off\n" in shown
    assert "  no bucket          1 whose headers tell no size that is taken\n" in shown


def test_a_dry_run_counts_what_is_too_small_to_be_enlarged(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", [(40, 40), (20, 20), (32, 33)])
    words = ("--sizes", "32", "--fit", "bucket", "--bucket-step", "8", "--no-upscale")
    shown = call("images", photos, tmp_path / "out", *words, "--dry-run").stdout
    assert "  32x32              2  100.0%, 1.5% of each cut off\n" in shown
    assert "  no bucket          1 too small, with --no-upscale\n" in shown


def test_shards_and_workers_do_not_change_what_is_stored(tmp_path: Path) -> None:
    sizes = [(20 + 7 * n % 60, 20 + 5 * n % 70) for n in range(24)]
    photos = write_photos(tmp_path / "photos", sizes)
    found = []
    for number, words in enumerate([["--workers", "1"], ["--shard-size", "9kB"]]):
        out = tmp_path / f"out{number}"
        asked = ["--sizes", "32", "--fit", "bucket", "--bucket-step", "8", *words]
        assert call("images", photos, out, *asked).exit_code == 0
        ds = open_dataset(out)
        found.append(([ds[n]["image"].numpy().tobytes() for n in range(24)], ds.mean))
    assert len(read_manifest(tmp_path / "out1").splits["train"].counts) > 2
    assert found[0] == found[1]


def test_pictures_smaller_than_their_bucket_are_refused_where_nothing_is_enlarged(
    tmp_path: Path,
) -> None:
    photos = write_photos(tmp_path / "photos", [(40, 24), (39, 24), (200, 90)])
    options = ImageOptions(sizes=((32, 32),), fit="bucket", bucket_step=8, no_upscale=True)
    report = images_to_shards(photos, tmp_path / "out", options)
    ((key, reason),) = report.skipped
    assert key == "1.png"
    assert "too small to fill 40 x 24" in reason


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"sizes": ((100, 100),)},
            "sizes: 100: expected a multiple of bucket_step=64, such as 128",
        ),
        ({"sizes": ((10, 10),)}, "such as 64"),
        ({"sizes": ((128, 64),)}, "takes one side"),
        ({"margin": 1.15}, "margin=1.15: sides of buckets are multiples"),
        ({"bucket_step": 0}, "bucket_step=0: expected an integer"),
        ({"bucket_step": 2.5}, "bucket_step=2.5: expected an integer"),
        ({"bucket_ratio": 0.5}, "bucket_ratio=0.5: expected 1 to 16"),
        ({"bucket_ratio": float("nan")}, "bucket_ratio=nan: expected 1 to 16"),
        ({"fit": "crop", "bucket_step": 32}, "only with fit='bucket'"),
        ({"fit": "pad", "bucket_ratio": 3}, "only with fit='bucket'"),
    ],
)
def test_options_that_make_no_buckets_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageOptions(**{"sizes": ((128, 128),), "fit": "bucket", **options})


def test_other_fits_record_nothing_of_buckets(tmp_path: Path) -> None:
    photos = write_photos(tmp_path / "photos", [(40, 24)])
    images_to_shards(photos, tmp_path / "out", ImageOptions(sizes=((8, 8),), fit="shortest"))
    manifest = read_manifest(tmp_path / "out")
    assert not any("bucket" in name for name in manifest.recipe)
    assert "buckets" not in json.loads(call("info", tmp_path / "out", "--json").stdout)
    assert open_dataset(tmp_path / "out").buckets == {}
