"""The comparison of a dry run: sizes are exact for what is measured, and nothing is written."""

import json
from pathlib import Path

import pytest

from preprocess import ImageOptions, RunOptions, images_to_shards
from preprocess.images.compare import compare_storage
from preprocess.images.prepare import plan_images
from tests.synthetic import encode_image, smooth_image
from tests.token_commands import call

WAYS = ["raw", "jpeg 95", "zstd", "blosc-lz4"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(5):
        data = encode_image(smooth_image(60 + number, 40, seed=number), ".png")
        (folder / f"{number}.png").write_bytes(data)
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 and no more")
    return folder


@pytest.mark.parametrize("fit", ["crop", "longest"])
def test_predicted_bytes_are_those_that_are_written(photos: Path, fit: str, tmp_path: Path) -> None:
    (photos / "broken.jpg").unlink()
    options = ImageOptions(sizes=((32, 32), (24, 24)), fit=fit)
    plan = plan_images(photos, tmp_path / "none", options, RunOptions())
    found = {way.name: way for way in compare_storage(plan)}
    assert list(found) == WAYS
    assert not (tmp_path / "none").exists()
    changes = {"raw": {}, "jpeg 95": {"store": "jpeg"}, "zstd": {"compress": "zstd"}}
    for name, change in changes.items():
        if found[name].refused:
            assert fit == "longest"
            assert found[name].refused.startswith("--compress and --fit longest: zarr's")
            continue
        assert set(found[name].per_second) == {"image_32", "image_24"}
        assert min(found[name].per_second.values()) > 0
        out = tmp_path / name
        chosen = ImageOptions(sizes=((32, 32), (24, 24)), fit=fit, **change)
        run = RunOptions(container="zarr" if name == "zstd" else "tensor")
        images_to_shards(photos, out, chosen, run)
        stored = sum(
            path.stat().st_size for path in out.rglob("*image_*") if path.is_file()
        ) or sum(p.stat().st_size for p in out.rglob("train/image_*/c/**/*") if p.is_file())
        assert 0 <= stored - found[name].nbytes < 1_200  # headers, offsets, index, rounding


def test_photos_that_cannot_be_read_are_left_out(photos: Path, tmp_path: Path) -> None:
    options = ImageOptions(sizes=((16, 16),))
    plan = plan_images(photos, tmp_path / "out", options, RunOptions())
    (raw, *_) = compare_storage(plan)
    assert raw.nbytes == 6 * 16 * 16 * 3  # of all six: which of them are bad is not known
    for path in photos.glob("*.png"):
        path.unlink()
    plan = plan_images(photos, tmp_path / "out", options, RunOptions())
    assert compare_storage(plan) == []


def test_a_dry_run_shows_the_comparison_as_a_table_and_in_json(
    photos: Path, tmp_path: Path
) -> None:
    words = ["images", photos, tmp_path / "out", "--sizes", "32", "--dry-run"]
    lines = call(*words).stdout.splitlines()
    (first,) = [n for n, line in enumerate(lines) if line.startswith("storage, measured on")]
    assert lines[first + 1].split() == ["bytes", "image_32"]
    table = lines[first + 2 :]
    assert [line[:12].strip() for line in table] == WAYS
    assert [line.split("  ")[-1] for line in table[1:]] == [
        "--store jpeg", "--format zarr --compress zstd", "--format zarr --compress blosc-lz4",
    ]  # fmt: skip
    found = json.loads(call(*words, "--json", "--depth", "16").stdout)["storage"]
    assert [way["name"] for way in found] == WAYS
    assert found[1]["refused"] == "--store jpeg and --depth 16: JPEG has 8 bits a sample"
    assert found[2]["samples_per_second_and_core"]["image_32"] > 0
    assert found[0]["nbytes"] == 2 * 6 * 32 * 32 * 3
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--store jpeg --depth 16", "JPEG has 8 bits a sample"),
        ("--store jpeg --alpha keep", "JPEG has no transparency"),
        ("--store jpeg --format zarr --compress zstd", "give one of them"),
        ("--quality 80", "--quality: only with --store jpeg"),
        ("--store jpeg --quality 0", "1<=x<=100"),
        ("--compress zstd", "--compress zstd: only with --format zarr"),
        ("--compress zstd --format zarr --fit shortest", "chunks hold pictures of one size"),
        ("--compress gzip --format zarr", "'gzip' is not one of"),
    ],
)
def test_what_an_encoding_cannot_hold_is_refused_by_name(
    words: str, said: str, photos: Path, tmp_path: Path
) -> None:
    result = call("images", photos, tmp_path / "out", "--sizes", "16", *words.split())
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_compression_without_zarr_is_refused_from_python_too(photos: Path, tmp_path: Path) -> None:
    options = ImageOptions(sizes=((16, 16),), compress="zstd")
    with pytest.raises(ValueError, match="only with container='zarr', whose"):
        images_to_shards(photos, tmp_path / "out", options)


def test_what_was_asked_for_is_recorded_and_shown(photos: Path, tmp_path: Path) -> None:
    words = ["--sizes", "16", "--store", "jpeg", "--max-skipped", "1"]
    assert call("images", photos, tmp_path / "out", *words).exit_code == 0
    shown = json.loads(call("info", tmp_path / "out", "--json").stdout)
    assert (shown["recipe"]["store"], shown["recipe"]["quality"]) == ("jpeg", 95)
    encoding = shown["splits"]["train"]["fields"]["image_16"]["encoding"]
    assert encoding == {"codec": "jpeg", "level": 95, "chroma": "420"}
    assert "[16, 16, 3] jpeg 95" in call("info", tmp_path / "out").stdout
    again = call("images", photos, tmp_path / "out", *words, "--quality", "80")
    assert again.exit_code == 1
    assert "--overwrite" in again.stderr
