"""Photos that metadata turn, where what is paired with them may be of the picture as stored."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image  # noqa: TID253 - a test may load what it compares with

from loaders import open_dataset
from preprocess import ImageOptions, RunOptions, images_to_shards

KINDS = ("JPEG", "PNG", "WEBP", "TIFF", "AVIF")
NOTE = "Exif or a like tag turns or mirrors 5 photos: {} are taken to be of the upright pictures"


def write_source(folder: Path, orientation: int) -> None:
    """Write a square photo of each kind that is turned, one that is not, and masks and boxes."""
    for below in ("photos", "masks", "boxes"):
        (folder / below).mkdir()
    exif = Image.Exif()
    exif[0x0112] = orientation
    names = {kind: kind.lower() for kind in KINDS}
    for kind, name in {**names, "plain": "png"}.items():
        options: dict[str, Any] = {} if kind == "plain" else {"exif": exif}
        image = Image.new("RGB", (16, 16), (9, 99, 199))
        image.save(folder / "photos" / f"{kind}.{name}", **options)
        Image.new("L", (16, 16), 1).save(folder / "masks" / f"{kind}.png")
        (folder / "boxes" / f"{kind}.txt").write_text("0 0.5 0.5 0.5 0.5\n")


def prepare(folder: Path, out: str, **options: Any) -> Any:
    chosen = ImageOptions(sizes=((8, 8),), **options)
    return images_to_shards(folder / "photos", folder / out, chosen, RunOptions(workers=1))


@pytest.mark.parametrize("orientation", [2, 3, 6])
@pytest.mark.parametrize("paired", [("masks",), ("boxes",), ("masks", "boxes")])
def test_photos_that_metadata_turn_are_counted_where_masks_or_boxes_belong_to_them(
    tmp_path: Path, orientation: int, paired: tuple[str, ...]
) -> None:
    write_source(tmp_path, orientation)
    options = {name: tmp_path / name for name in paired}
    report = prepare(tmp_path, "out", **options)
    assert not report.skipped
    wanted = NOTE.format(" and ".join(paired))
    assert wanted in report.notes
    assert f"note: {wanted}" in report.to_text()
    assert wanted in json.loads((tmp_path / "out/report.json").read_bytes())["notes"]
    again = prepare(tmp_path, "out", **options)
    assert not again.made
    assert wanted in again.notes
    assert open_dataset(tmp_path / "out").manifest.splits["train"].tallies["turned"] == (5,)


def test_nothing_is_said_where_nothing_is_paired_or_nothing_is_turned(tmp_path: Path) -> None:
    write_source(tmp_path, 3)
    alone = prepare(tmp_path, "alone")
    assert "turned" not in alone.tallies
    assert not any("upright" in note for note in alone.notes)
    upright = tmp_path / "upright"
    upright.mkdir()
    write_source(upright, 1)
    report = prepare(upright, "out", masks=upright / "masks")
    assert "turned" not in report.tallies
    assert not any("upright" in note for note in report.notes)
    np.testing.assert_array_equal(open_dataset(upright / "out")[0]["mask"].numpy(), 1)


def test_one_photo_is_spoken_of_as_one(tmp_path: Path) -> None:
    write_source(tmp_path, 3)
    for kind in KINDS[1:]:
        (tmp_path / "photos" / f"{kind}.{kind.lower()}").unlink()
    report = prepare(tmp_path, "out", boxes=tmp_path / "boxes")
    assert any("mirrors 1 photo: boxes are taken" in note for note in report.notes)
