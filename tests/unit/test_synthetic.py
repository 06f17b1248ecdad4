"""The test inputs are what they say."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from tests.synthetic import Damage, smooth_image, write_damaged, write_image_tree


def test_a_tree_lists_what_it_wrote_and_repeats(tmp_path: Path) -> None:
    splits = ("train", "val")
    paths = write_image_tree(tmp_path / "a", ["cat", "dog"], 4, splits=splits, seed=1)
    write_image_tree(tmp_path / "b", ["cat", "dog"], 4, splits=splits, seed=1)
    found = sorted(p.relative_to(tmp_path / "a").as_posix() for p in tmp_path.glob("a/*/*/*"))
    assert paths == found
    contents = [(tmp_path / "a" / path).read_bytes() for path in paths]
    assert contents == [(tmp_path / "b" / path).read_bytes() for path in paths]
    assert len(set(contents)) == 16


def test_a_tree_without_splits_starts_with_its_classes(tmp_path: Path) -> None:
    assert write_image_tree(tmp_path, ["cat"], 3) == [
        "cat/0000.jpg",
        "cat/0001.jpg",
        "cat/0002.png",
    ]


def test_a_written_photo_has_the_size_asked_for_and_is_near_its_pixels(tmp_path: Path) -> None:
    from PIL import Image

    write_image_tree(tmp_path, ["cat"], 1, size=(40, 30), seed=0)
    with Image.open(tmp_path / "cat" / "0000.jpg") as image:
        assert image.size == (40, 30)
        difference = np.asarray(image, np.int16) - smooth_image(40, 30, seed=0)
    assert np.abs(difference).mean() < 4


@pytest.mark.parametrize("kind", [kind for kind in get_args(Damage) if kind != "fifo"])
def test_a_damaged_file_is_refused_by_pillow(tmp_path: Path, kind: Damage) -> None:
    from PIL import Image

    write_damaged(tmp_path / "x.jpg", kind)

    def read() -> None:  # Pillow checks the sums of a PNG in verify, the data of a JPEG in load
        with Image.open(tmp_path / "x.jpg") as image:
            image.verify()
        with Image.open(tmp_path / "x.jpg") as image:
            image.load()

    with pytest.raises((OSError, SyntaxError)):
        read()


def test_a_fifo_is_a_fifo(tmp_path: Path) -> None:
    write_damaged(tmp_path / "x.jpg", "fifo")
    assert (tmp_path / "x.jpg").is_fifo()
