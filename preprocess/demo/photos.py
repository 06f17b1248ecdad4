"""Photos for `prep demo`, painted because nothing can be downloaded where it runs.

The files are as mixed as a folder from cameras and phones: landscape and portrait, turned by EXIF,
progressive, grey, with alpha. The same seed gives the same pictures, and the same files wherever
Pillow's JPEG encoder is the same.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from preprocess.demo.scenes import PAINTERS, paint_photo, paint_tiles

JPEG_QUALITY = 90
ORIENTATION_TAG = 0x0112  # EXIF 2.32, section 4.6.4
ROTATE_TO_VIEW = 6  # stored lying on its left side: turn a quarter clockwise to view
ORIENTED_EVERY = 6  # one photo in six is stored turned, as phones do
VALIDATION_EVERY = 5  # one photo in five is for validation
SIZES = ((640, 480), (480, 640), (640, 427), (600, 450), (427, 640), (512, 512))  # width, height


def _save(pixels: NDArray[np.uint8], path: Path, index: int) -> Path:
    """Write a photo the way cameras, phones and editors do; the first of each class is special."""
    from PIL import Image

    image = Image.fromarray(pixels)
    options: dict[str, Any] = {"quality": JPEG_QUALITY, "subsampling": "4:2:0"}
    name = path.parent.name
    if index == 0 and name == "mountains":
        alpha = Image.new("L", image.size, 0)
        border = min(image.size) // 20
        alpha.paste(255, (border, border, image.width - border, image.height - border))
        image.putalpha(alpha)
        path = path.with_suffix(".png")
        options = {}
    elif index == 0 and name == "forest":
        image = image.convert("L")
    elif index == 0:
        options["progressive"] = True
    elif index % ORIENTED_EVERY == 1:
        exif = Image.Exif()
        exif[ORIENTATION_TAG] = ROTATE_TO_VIEW
        image = image.transpose(Image.Transpose.ROTATE_90)  # a quarter anticlockwise
        options["exif"] = exif
    image.save(path, **options)
    return path


def write_photos(folder: Path, *, count_per_class: int, seed: int) -> None:
    """Write the demo's photos: `train/<class>/` and `validation/<class>/`, about 640 x 480.

    Args:
        folder: Where to write; made if absent.
        count_per_class: Photos of each class in all, at least 2; one in five is for validation.
        seed: The same seed gives the same files.

    Raises:
        ValueError: `count_per_class` is below 2.
    """
    if count_per_class < 2:
        raise ValueError(
            f"count_per_class: {count_per_class}, must be at least 2: train and validation"
        )
    tiles = paint_tiles(seed, (max(w for w, _ in SIZES), max(h for _, h in SIZES)))
    train_count = count_per_class - max(1, count_per_class // VALIDATION_EVERY)
    for label, name in enumerate(PAINTERS):
        for index in range(count_per_class):
            split = "train" if index < train_count else "validation"
            path = folder / split / name / f"{name}_{index:03d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            size = SIZES[(index + label) % len(SIZES)]
            _save(paint_photo(tiles, name, (seed, 1, label, index), size), path, index)
