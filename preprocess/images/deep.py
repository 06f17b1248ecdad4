"""Colours of more than 8 bits, of which Pillow gives 8 alone.

OpenCV reads them whole, and some layouts wrongly: so what it gives counts where its upper bytes are
the very samples of Pillow, which also sees damage that OpenCV passes over.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from preprocess.images.finish import LEVELS_16
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
    tiff: bytes, page: int, upper: NDArray[np.uint8], orientation: int, *, multiplied: bool
) -> NDArray[np.uint16] | None:
    """Return the upright samples of a page of 16-bit colours; None where OpenCV cannot tell them.

    Args:
        tiff: The file.
        page: Number of the page.
        upper: [H, W, 3 or 4] upright, what Pillow has read.
        orientation: What Pillow has turned it by.
        multiplied: Its colours are multiplied by alpha; Pillow has divided the upper bytes.
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
        kept = candidate[:, :, : upper.shape[2]]  # further ones than Pillow's have no meaning
        if multiplied and kept.shape[2] == 4 and _agree_divided(kept, upper):
            return unmultiplied(kept, LEVELS_16)
        if not multiplied and _agree(kept, upper):
            return np.ascontiguousarray(kept)
    return None


def deep_jpeg2000_samples(data: bytes, bits: int, upper: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Return the samples of a JPEG 2000 of more than 8 bits: [H, W, 3 or 4] in 0..2**bits - 1.

    Args:
        data: The file.
        bits: Of every sample.
        upper: [H, W, 3 or 4], what Pillow has read: rounded to 8 bits, white as 256, which is 0.

    Raises:
        ValueError: OpenCV cannot tell them.
    """
    import cv2

    try:
        found: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error:
        found = None
    if found is not None and found.ndim == 2:
        found = np.dstack([found] * 3)
    found = _rgb_order(found)
    if found is not None and found.shape == upper.shape and found.max() < 2**bits:
        beyond = upper - (found >> (bits - 8)).astype(np.uint8)  # modulo 256
        if (beyond <= 1).all():
            return np.asarray(found)
    raise ValueError(
        "its samples of more than 8 bits are laid out as no decoder here reads them whole; convert "
        "it to PNG or TIFF"
    )


def unmultiplied(samples: NDArray[np.uint16], peak: int) -> NDArray[np.uint16]:
    """Return [H, W, 4] without the alpha that its colours were multiplied by, rounded.

    Where all is transparent no colour is left, and it is 0; one above alpha is the largest.

    Args:
        samples: [H, W, 4] RGBA in 0..peak.
        peak: What stands for 1.
    """
    result = samples.copy()
    for row in result:  # [W, 4]; a row at a time, for it takes 8 bytes a sample
        alpha = row[:, 3:].astype(np.uint64)
        colours = row[:, :3].astype(np.uint64) * peak + alpha // 2
        row[:, :3] = (colours // np.maximum(alpha, 1)).clip(max=peak)
        row[row[:, 3] == 0, :3] = 0
    return result


def _rgb_order(found: Any) -> NDArray[np.uint16] | None:
    if found is None or found.dtype != np.uint16 or found.ndim != 3 or found.shape[2] < 3:
        return None
    order = [2, 1, 0, 3][: found.shape[2]]
    return np.ascontiguousarray(found[:, :, order])


def _agree_divided(found: NDArray[np.uint16], upper: NDArray[np.uint8]) -> bool:
    """Say whether these are what Pillow has divided by alpha: upper bytes, cut down to integers."""
    if found.shape != upper.shape:
        return False
    for row, known in zip(found >> 8, upper, strict=True):
        alpha = row[:, 3:]
        colours = row[:, :3] * 255 // np.maximum(alpha, 1)
        divided = np.where(alpha == 0, 0, colours.clip(max=255))
        if (divided != known[:, :3]).any() or (alpha != known[:, 3:]).any():
            return False
    return True


def _agree(found: NDArray[np.uint16], upper: NDArray[np.uint8]) -> bool:
    shapes = found.shape[:2] == upper.shape[:2] and found.shape[2] >= upper.shape[2]
    return shapes and bool((found[:, :, : upper.shape[2]] >> 8 == upper).all())
