"""The orientation that a picture's metadata asks for, and turning pixels upright.

Written here and not left to Pillow: its reader warns about broken metadata through the process-wide
warning filters, so what comes out would depend on them; a broken Exif block must not cost a good
picture; and for JPEG this takes microseconds where opening the file with Pillow takes a hundred.
"""

import re
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ORIENTATION_TAG = 0x0112
_NUMBER_FORMATS = {3: "H", 4: "I", 8: "h", 9: "i"}  # TIFF types SHORT, LONG, SSHORT, SLONG
_XMP_ORIENTATION = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')


def read_orientation(exif: bytes | None, xmp: bytes | None) -> int:
    """Find the orientation: Exif first, XMP only if Exif has none.

    Args:
        exif: An Exif block, with or without its `Exif` prefix.
        xmp: An XMP packet.

    Returns:
        1 to 8; 1 (upright) if there is none or it is broken.

    Source:
        Exif 2.32 section 4.6.4 (Orientation), TIFF 6.0 section 2, XMP part 2 (tiff:Orientation).
    """
    value = _exif_orientation(exif) if exif else None
    if value is None and xmp and (match := _XMP_ORIENTATION.search(xmp)):
        value = int(match[1])
    return value if value is not None and 1 <= value <= 8 else 1


def turn_upright(image: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Apply an orientation of 1 to 8 to [H, W, C] of any type; C-contiguous, new unless it is 1."""
    if orientation == 1:
        return image
    import cv2

    # OpenCV: measured two to three times as fast as a NumPy view made contiguous.
    if orientation in (5, 7):
        turned = cv2.transpose(image)
        if orientation == 7:
            turned = cv2.rotate(turned, cv2.ROTATE_180)
    elif orientation in (2, 4):
        turned = cv2.flip(image, 1 if orientation == 2 else 0)
    else:
        codes = {3: cv2.ROTATE_180, 6: cv2.ROTATE_90_CLOCKWISE, 8: cv2.ROTATE_90_COUNTERCLOCKWISE}
        turned = cv2.rotate(image, codes[orientation])
    # [H, W, C] -> [W, H, C] for 5 to 8
    return np.ascontiguousarray(turned, dtype=image.dtype)


def _exif_orientation(exif: bytes) -> int | None:
    block = exif
    while block.startswith(b"Exif\0\0"):
        block = block[6:]
    order = {b"II": "<", b"MM": ">"}.get(block[:2])
    if order is None or len(block) < 8 or struct.unpack_from(order + "H", block, 2)[0] != 42:
        return None
    start = struct.unpack_from(order + "I", block, 4)[0]
    if start + 2 > len(block):
        return None
    count = struct.unpack_from(order + "H", block, start)[0]
    for entry in range(start + 2, min(start + 2 + 12 * count, len(block) - 11), 12):
        tag, kind, values = struct.unpack_from(order + "HHI", block, entry)
        if tag == _ORIENTATION_TAG and values >= 1 and kind in _NUMBER_FORMATS:
            number = _NUMBER_FORMATS[kind]
            place = entry + 8
            if values * struct.calcsize(number) > 4:  # not in the entry itself
                place = struct.unpack_from(order + "I", block, entry + 8)[0]
            if place + struct.calcsize(number) > len(block):
                return None
            return int(struct.unpack_from(order + number, block, place)[0])
    return None
