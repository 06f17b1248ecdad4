"""Files over --max-item-bytes: a dry run leaves out what the run will, and says so."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image  # noqa: TID253 - a test may load what it compares with

from preprocess import ImageOptions, RunOptions
from preprocess.images.prepare import plan_images
from tests.synthetic import write_image_tree
from tests.token_commands import call, prepare, write_jsonl
from tests.tokenizers_made import make_bpe

LIMIT = "5000"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    write_image_tree(tmp_path / "photos", ["cat", "dog"], 3)
    noise = np.random.default_rng(0).integers(0, 256, (90, 90, 3), np.uint8)
    for name in ("cat/large.png", "dog/zlarge.png"):
        Image.fromarray(noise).save(tmp_path / "photos" / name)
    return tmp_path / "photos"


def dry_and_run(*words: Any) -> tuple[dict[str, Any], str, dict[str, Any]]:
    planned = json.loads(call(*words, "--dry-run", "--json").stdout)
    shown = call(*words, "--dry-run").stdout
    done = call(*words, "--json")
    assert done.exit_code == 3, done.output
    return planned, shown, json.loads(done.stdout)


def shard_nbytes(out: Path) -> int:
    return sum(path.stat().st_size for path in out.glob("*/0*"))


@pytest.mark.parametrize("words", [(), ("--format", "zarr"), ("--shard-size", "4kB")])
def test_photos_that_are_too_large_are_left_out_of_a_dry_run(
    tmp_path: Path, photos: Path, words: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    planned, shown, made = dry_and_run(
        "images", photos, out, "--sizes", "16", "--max-item-bytes", LIMIT, *words
    )
    assert planned["skipped"] == made["skipped"] == 2
    assert planned["splits"]["train"]["samples"] == made["samples"]["train"] == 6
    assert planned["nbytes"] == planned["nbytes_left"] == made["nbytes"]
    if words != ("--format", "zarr"):
        assert planned["nbytes"] == shard_nbytes(out)
    assert "train: 6 samples in" in shown
    assert "skipped: 2 that are too large" in shown
    assert "  cat/large.png: " in shown
    assert "files may have 5,000; raise --max-item-bytes" in shown


def test_a_photo_whose_mask_is_too_large_is_left_out_of_a_dry_run(
    tmp_path: Path, photos: Path
) -> None:
    for path in photos.rglob("*.*"):
        mask = (tmp_path / "masks" / path.relative_to(photos)).with_suffix(".png")
        mask.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as photo:
            indices = np.zeros(photo.size[::-1], np.uint8)
        if "large" in path.name:
            indices[:] = np.random.default_rng(0).integers(0, 2, indices.shape)
        Image.fromarray(indices).save(mask)
    Image.new("RGB", (90, 90)).save(photos / "cat" / "large.png")
    Image.new("RGB", (90, 90)).save(photos / "dog" / "zlarge.png")
    sizes = sorted(p.stat().st_size for p in (tmp_path / "masks").rglob("*.png"))
    words = ["images", photos, tmp_path / "out", "--sizes", "16", "--masks", tmp_path / "masks"]
    limit = max(sizes[-3], *(p.stat().st_size for p in photos.rglob("*.*"))) + 1
    assert limit < sizes[-2]
    planned, shown, made = dry_and_run(*words, "--mask-classes", "2", "--max-item-bytes", limit)
    assert planned["skipped"] == made["skipped"] == 2
    assert planned["nbytes"] == made["nbytes"]
    assert "cat/large.png: its mask cat/large.png: " in shown


def test_texts_that_are_too_large_are_left_out_of_a_dry_run(tmp_path: Path) -> None:
    bpe = make_bpe(tmp_path / "bpe")
    write_jsonl(tmp_path / "in/a.jsonl", ["one", "two dogs", "3"])

    def dry(*words: str) -> str:
        dry_words = ("--dry-run", "--max-item-bytes", LIMIT, *words)
        return prepare(tmp_path / "in", tmp_path / "out", bpe, *dry_words).stdout

    before = json.loads(dry("--json"))
    (tmp_path / "in" / "zlarge.txt").write_text("word " * 5000)
    planned = json.loads(dry("--json"))
    assert planned["nbytes"] == before["nbytes"]
    assert (before["skipped"], planned["skipped"]) == (0, 1)
    assert planned["splits"]["train"]["items"] == 1
    cut = json.loads(dry("--json", "--validation", "0.5"))
    assert cut["skipped"] == 1  # one file, though two splits share it
    said = "skipped: 1 that are too large\n  zlarge.txt: 25,000 bytes, files may have 5,000"
    assert said in dry()


def test_a_dataset_stays_what_it_is_and_can_be_appended_to(tmp_path: Path, photos: Path) -> None:
    out = tmp_path / "out"
    words = ["images", photos, out, "--sizes", "16", "--max-item-bytes", LIMIT]
    words += ["--max-skipped", "2", "--key-bytes", "40"]
    assert call(*words).exit_code == 0
    options = ImageOptions(sizes=((16, 16),), max_item_nbytes=int(LIMIT), key_bytes=40)
    plan = plan_images(photos, out, options, RunOptions())
    keys = {item.key for items in plan.listing.splits.values() for item in items}
    assert "cat/large.png" in keys  # items as before, so that fingerprints are those of before
    assert "nothing to do" in call(*words).stdout
    Image.new("RGB", (20, 20)).save(photos / "dog" / "zz.png")
    Image.new("RGB", (20, 20)).save(photos / "dog" / "zzz.bmp")
    planned = json.loads(call(*words, "--append", "--dry-run", "--json").stdout)
    assert (planned["splits"]["train"]["samples"], planned["skipped"]) == (2, 0)
    assert call(*words, "--append").exit_code == 0
