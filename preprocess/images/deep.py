"""Colours of 16 bits, of which Pillow gives the upper bytes alone.

OpenCV reads them whole, and some layouts wrongly: so what it gives counts where its upper bytes are
the very samples of Pillow, which also sees damage that OpenCV passes over.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from preprocess.images.orientation import turn_upright


def deep_png_samples(png: bytes, upper: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Return the samples of a PNG of 16-bit colours, or grey with alpha: [H, W, 3 or 4].

    Args:
        png: The file, with nothing but what its pixels depend on.
        upper: [H, W, 3 or 4], what Pillow has read.

    Raises:
        ValueError: The two decoders disagree.
    """
    import cv2

    found = _rgb_order(cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED))
    if found is None or not _agree(found, upper):
        raise ValueError("its 16-bit samples cannot be told")
    return found


def deep_tiff_samples(
    tiff: bytes, page: int, upper: NDArray[np.uint8], orientation: int
) -> NDArray[np.uint16] | None:
    """Return the upright samples of a page of 16-bit colours; None where OpenCV cannot tell them.

    Args:
        tiff: The file.
        page: Number of the page.
        upper: [H, W, 3 or 4] upright, what Pillow has read.
        orientation: What Pillow has turned it by.
    """
    import cv2

    try:
        whole, pages = cv2.imdecodemulti(
            np.frombuffer(tiff, np.uint8), cv2.IMREAD_UNCHANGED, range=(page, page + 1)
        )
    except cv2.error:
        return None
    found = _rgb_order(pages[0]) if whole and len(pages) == 1 else None
    if found is None or not 1 <= orientation <= 8:
        return None
    upright = turn_upright(found, orientation)
    for candidate in (upright, found):  # in case OpenCV turns it, too
        if _agree(candidate, upper):  # further samples than Pillow's have no meaning
            return np.ascontiguousarray(candidate[:, :, : upper.shape[2]])
    return None


def _rgb_order(found: Any) -> NDArray[np.uint16] | None:
    if found is None or found.dtype != np.uint16 or found.ndim != 3 or found.shape[2] < 3:
        return None
    order = [2, 1, 0, 3][: found.shape[2]]
    return np.ascontiguousarray(found[:, :, order])


def _agree(found: NDArray[np.uint16], upper: NDArray[np.uint8]) -> bool:
    shapes = found.shape[:2] == upper.shape[:2] and found.shape[2] >= upper.shape[2]
    return shapes and bool((found[:, :, : upper.shape[2]] >> 8 == upper).all())
