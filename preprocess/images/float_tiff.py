"""TIFF of floating point: 0 is black, 1 is white, and what lies beyond is refused, not clipped.

OpenCV reads them, as Pillow knows grey of 32 bits alone. Some layouts it reads wrongly without a
word, so the page's tags say first whether it is one that it reads whole.
"""

import io
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from preprocess.images import tiff_tags as tags
from preprocess.images.finish import LEVELS_16, Stored
from preprocess.images.policy import DecodePolicy, check_pixels

_FLOATS: Final = 3
"""FORMAT of IEEE floating point."""

_CHUNKY, _STRAIGHT_ALPHA = 1, 2
_CHANNELS: Final = {1: 1, 3: 2, 4: 2}
"""Samples to a pixel that are read -> what PHOTOMETRIC must say of them."""

_BLOCK_VALUES: Final = 1 << 20
"""Values that are scaled at a time: in float64, in a core's cache."""

_PIXEL_NBYTES: Final = 16
"""Bytes that a pixel may take as a float: RGBA of 32 bits."""


def is_of_floats(data: bytes) -> bool:
    """Say whether the first page of a TIFF is of floating point; a damaged one is of nothing."""
    try:
        found = next(_pages(data), None)
    except Exception:  # noqa: BLE001 - any: whoever decodes the file says what is damaged
        return False
    return found is not None and _is_float(found)


def decode_float_tiff(data: bytes, policy: DecodePolicy) -> Iterator[tuple[int, Stored]]:
    """Decode the pages of a TIFF of floats that are asked for: (number, upright samples).

    Args:
        data: The file.
        policy: What is asked for: samples are of its depth already.

    Raises:
        ValueError: Floats are not asked for, lie as no decoder here reads them whole, or are
            beyond 0 and 1.
    """
    if not policy.takes_floats:
        raise ValueError(
            "floating-point samples are taken only where --depth 8 or --depth 16 is given: 0 as "
            "black, 1 as white"
        )
    for number, page in enumerate(_pages(data)):
        if number and int(page.get(tags.SUBFILE, 0)) & tags.OF_ANOTHER_PAGE:
            continue
        width, height = int(page[256]), int(page[257])
        check_pixels(width, height, policy.max_pixels)
        channels = _check_layout(page, width * height, policy)
        floats = _read(data, number, page, channels)
        orientation = int(page.get(tags.ORIENTATION, 1))
        yield (
            number,
            Stored(
                samples=_scaled(floats, policy),
                icc=page.get(tags.ICC) or b"",
                grey=channels == 1,
                turned=2 <= orientation <= 8,  # by OpenCV
            ),
        )
        if policy.pages == "first":
            return


def _pages(data: bytes) -> Iterator[Any]:
    """Yield the tags of each page; a chain of pages that comes back to one ends there."""
    from PIL.TiffImagePlugin import ImageFileDirectory_v2

    file = io.BytesIO(data)
    head = file.read(8)
    if head[2:4] == b"\x2b\0":  # BigTIFF; Pillow knows none of the other byte order
        head += file.read(8)
    place, seen = ImageFileDirectory_v2(head).next, set[int]()
    while place and place not in seen:
        seen.add(place)
        page = ImageFileDirectory_v2(head)
        file.seek(place)
        page.load(file)
        yield page
        place = page.next


def _is_float(page: Any) -> bool:
    return set(page.get(tags.FORMAT, (1,))) == {_FLOATS}


def _check_layout(page: Any, pixels: int, policy: DecodePolicy) -> int:
    """Return the samples to a pixel of a page that OpenCV reads whole.

    Raises:
        ValueError: It is another page, or too large.
    """
    channels = int(page.get(tags.SAMPLES, 1))
    bits = set(page.get(tags.BITS, (1,)))
    extra = page.get(tags.EXTRA, ())
    if not _is_float(page):
        raise ValueError("its pages are of floating point and of integers")
    if bits not in ({32}, {64}):
        raise ValueError(f"floating-point samples of {max(bits)} bits are not supported")
    if page.get(tags.PHOTOMETRIC) != _CHANNELS.get(channels, -1):
        raise ValueError("its floating-point samples are neither grey, RGB nor RGBA")
    if channels > 1 and page.get(tags.PLANES, _CHUNKY) != _CHUNKY:
        raise ValueError(
            "its floating-point samples lie in a plane a colour, which no decoder here reads; "
            "convert it to another layout"
        )
    if extra not in ((), (_STRAIGHT_ALPHA,)) or (channels == 4) != bool(extra):
        raise ValueError("its floating-point colours are multiplied by alpha, or alpha is no alpha")
    nbytes = pixels * channels * max(bits) // 8
    if nbytes > _PIXEL_NBYTES * policy.max_pixels:
        most = _PIXEL_NBYTES * policy.max_pixels
        raise ValueError(
            f"its floats take {nbytes:,} bytes, more than {most:,} ({_PIXEL_NBYTES} times "
            "--max-pixels)"
        )
    return channels


def _read(data: bytes, number: int, page: Any, channels: int) -> NDArray[Any]:
    """Return a page as [H, W, 1, 3 or 4] float32 or float64, upright."""
    import cv2

    try:
        whole, found = cv2.imdecodemulti(
            np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED, range=(number, number + 1)
        )
    except cv2.error:
        whole, found = False, ()
    if not whole or len(found) != 1:
        raise ValueError("its pixels are damaged")
    floats = np.atleast_3d(found[0])
    sides = sorted(floats.shape[:2]), sorted((int(page[256]), int(page[257])))
    if floats.dtype.kind != "f" or sides[0] != sides[1] or floats.shape[2] != channels:
        raise ValueError("its floating-point samples cannot be told")
    return floats


def _scaled(floats: NDArray[Any], policy: DecodePolicy) -> NDArray[Any]:
    """Return [H, W, 3 or 4] in RGB order, uint8 or uint16: 0..1 as 0..255 or 0..65535, rounded.

    Raises:
        ValueError: A value is no number, or rounds to something beyond.
    """
    channels = floats.shape[2]
    order = {1: [0, 0, 0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[channels]
    levels = 255 if policy.depth == 8 else LEVELS_16
    result = np.empty((*floats.shape[:2], len(order)), np.uint8 if policy.depth == 8 else np.uint16)
    rows = max(1, _BLOCK_VALUES // max(1, floats.shape[1] * channels))
    for first in range(0, len(floats), rows):
        block = np.rint(floats[first : first + rows].astype(np.float64) * levels)
        # A comparison with what is no number is false.
        if not ((block >= 0) & (block <= levels)).all():
            raise ValueError(_beyond(floats))
        result[first : first + rows] = block.astype(result.dtype)[:, :, order]
    return result


def _beyond(floats: NDArray[Any]) -> str:
    finite = floats[np.isfinite(floats)]
    if finite.size != floats.size:
        return f"{floats.size - finite.size:,} of its floating-point samples are not finite numbers"
    return (
        f"its floating-point samples go from {finite.min():.6g} to {finite.max():.6g}; 0 to 1 are "
        "taken, as black to white: scale them first"
    )
