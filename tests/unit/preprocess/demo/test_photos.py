"""The demo's painted photos: what is written, and that a seed fixes it."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from preprocess.demo.photos import SIZES, write_photos
from preprocess.demo.scenes import PAINTERS, paint_photo, paint_tiles


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    write_photos(folder, count_per_class=8, seed=3)
    return folder


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*.*"))
    }


def test_each_class_has_its_photos_in_train_and_validation(photos: Path) -> None:
    counts = {
        (split, name): len(list((photos / split / name).iterdir()))
        for split in ("train", "validation")
        for name in ("coast", "forest", "mountains")
    }
    assert counts == {key: 7 if key[0] == "train" else 1 for key in counts}
    assert sum(counts.values()) == len(list(photos.rglob("*.*")))


def test_one_photo_in_five_is_for_validation(tmp_path: Path) -> None:
    write_photos(tmp_path, count_per_class=10, seed=0)
    assert len(list((tmp_path / "validation").rglob("*.*"))) == 2 * len(PAINTERS)


def test_the_same_seed_gives_the_same_files_and_another_seed_gives_others(tmp_path: Path) -> None:
    for folder, seed in (("first", 1), ("again", 1), ("other", 2)):
        write_photos(tmp_path / folder, count_per_class=2, seed=seed)
    first, other = digests(tmp_path / "first"), digests(tmp_path / "other")
    assert first == digests(tmp_path / "again")
    assert first.keys() == other.keys()
    assert not set(first.values()) & set(other.values())


def test_a_photo_depends_on_its_key_alone(tmp_path: Path) -> None:
    tiles = paint_tiles(5, (96, 96))
    first = paint_photo(tiles, "coast", (5, 7), (96, 72))
    paint_photo(tiles, "forest", (5, 8), (96, 72))
    np.testing.assert_array_equal(paint_photo(tiles, "coast", (5, 7), (96, 72)), first)


def test_every_photo_decodes_upright_to_one_of_the_sizes(photos: Path) -> None:
    from PIL import Image, ImageOps

    for path in photos.rglob("*.*"):
        with Image.open(path) as image:
            assert ImageOps.exif_transpose(image).size in SIZES


def test_the_files_are_as_mixed_as_a_folder_from_cameras(photos: Path) -> None:
    from PIL import Image

    kinds: list[str] = []
    for path in sorted(photos.rglob("*.*")):
        with Image.open(path) as image:
            turned = image.getexif().get(0x0112, 1)
            progressive = bool(image.info.get("progressive"))
            kinds.append(f"{image.format} {image.mode} {turned} {progressive}")
    assert kinds.count("PNG RGBA 1 False") == 1
    assert kinds.count("JPEG L 1 False") == 1
    assert kinds.count("JPEG RGB 1 True") == 1
    assert kinds.count("JPEG RGB 6 False") == 6
    assert kinds.count("JPEG RGB 1 False") == 24 - 9


def test_the_mean_colour_does_not_tell_the_class() -> None:
    tiles = paint_tiles(0, (96, 72))
    means = np.array(
        [
            [paint_photo(tiles, name, (0, i), (96, 72)).mean(axis=(0, 1)) for i in range(40)]
            for name in PAINTERS
        ]
    )  # [3 classes, 40, RGB]
    centres = means[:, :20].mean(axis=1)
    away = ((means[:, 20:, None] - centres) ** 2).sum(axis=-1)  # [3, 20, 3]
    right = away.argmin(axis=-1) == np.arange(len(PAINTERS))[:, None]
    assert right.mean() < 0.75


@pytest.mark.parametrize("name", PAINTERS)
@pytest.mark.parametrize("size", [(33, 47), (64, 48), (300, 200)])
def test_any_size_can_be_painted(name: str, size: tuple[int, int]) -> None:
    for index in range(6):
        photo = paint_photo(paint_tiles(1, size), name, (index,), size)
        assert photo.shape == (size[1], size[0], 3)
        assert photo.dtype == np.uint8
        assert photo.std() > 5


@pytest.mark.parametrize("count", [1, 0, -3])
def test_fewer_than_two_photos_a_class_are_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(ValueError, match="at least 2"):
        write_photos(tmp_path, count_per_class=count, seed=0)
    assert list(tmp_path.iterdir()) == []
