"""How many bytes the samples of a photo will take: what shards are cut by, before it is read."""

import math
from collections.abc import Sequence
from typing import Final

from loaders.format.fields import FieldSpec
from preprocess.images.buckets import BUCKET
from preprocess.images.options import ImageOptions
from preprocess.items import Item

_PAGE_NBYTES: Final = 100_000
"""Bytes of a TIFF that are taken for a page where shards are planned."""

_JPEG_NBYTES: Final = 0.5
"""Bytes of a pixel of a stored JPEG, about: 0.26 in photos of 512 x 512, more in smaller ones."""

_FILE_PIXELS: Final = 8
"""Pixels of a picture to a byte of its file, about: those of a JPEG of one bit a pixel."""

_PROPORTION: Final = {"shortest": 4 / 3, "longest": 3 / 4, BUCKET: 1.0}
"""Pixels of a picture of 4 to 3 that is stored at its size, to those of the square."""


def expected_nbytes(chosen: ImageOptions, fields: Sequence[FieldSpec], item: Item) -> int:
    """Return the bytes of the samples of a photo, an estimate where sizes, pages or codecs differ.

    Args:
        chosen: What is made of it.
        fields: What a sample holds.
        item: The photo.
    """
    pages = 1
    if chosen.pages == "all" and item.key.lower().endswith((".tif", ".tiff")):
        pages = max(1, item.nbytes // _PAGE_NBYTES)
    each = _JPEG_NBYTES if chosen.store == "jpeg" else chosen.channels * chosen.depth // 8
    if not chosen.is_variable:
        pictures = [field for field in fields if field.role == "image"]
        pixels = sum(math.prod(field.shape[:2]) for field in pictures)
        beside = sum(field.nbytes for field in fields if field.role != "image")
        return pages * (beside + int(pixels * each))
    pixels = sum(w * h for w, h in map(chosen.stored, chosen.sizes))
    pixels = int(pixels * _PROPORTION[chosen.fit])
    if chosen.no_upscale:  # no more than the picture has
        pixels = min(pixels, len(chosen.sizes) * _FILE_PIXELS * item.nbytes)
    return pages * (sum(field.nbytes for field in fields) + int(pixels * each))
