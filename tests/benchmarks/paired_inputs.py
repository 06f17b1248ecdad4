"""Photos as the benchmark of options wants them: with a colour profile, and with a mask each."""

import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.colour_profiles import adobe_rgb

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LEVELS = 13  # of brightness that are one class
CLASSES = -(-256 // _LEVELS)
_BLUR = 16  # pixels that are made one before: regions, not noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Folders: JPEG photos, the same with a profile that is not sRGB's, their masks."""

    photos: Path
    profiled: Path
    masks: Path


def pair(photos: Path, scratch: Path) -> Inputs:
    """Make of each photo one with a profile and a mask of its size.

    Raises:
        ValueError: A photo is no JPEG.
    """
    from preprocess.images.decode import decode_image

    made = Inputs(photos=photos, profiled=scratch / "profiled", masks=scratch / "masks")
    made.profiled.mkdir()
    made.masks.mkdir()
    profile = adobe_rgb()
    for path in photos.iterdir():
        data = path.read_bytes()
        (made.profiled / path.name).write_bytes(with_profile(data, profile, path.name))
        mask = encode_regions(decode_image(data, key=path.name))
        (made.masks / path.name).with_suffix(".png").write_bytes(mask)
    return made


def with_profile(data: bytes, icc: bytes, name: str) -> bytes:
    """Put a profile into a JPEG, whose coded pixels stay as they are.

    Raises:
        ValueError: It is no JPEG.

    Source:
        JFIF 1.02: its segment is the first. ICC.1 annex B.4: the profile's segment.
    """
    if data[:2] != b"\xff\xd8":
        raise ValueError(f"{name} is no JPEG: give a folder of JPEG photos")
    start = 2
    if data[2:4] == b"\xff\xe0":
        start += 2 + int.from_bytes(data[4:6], "big")
    body = b"ICC_PROFILE\0\1\1" + icc
    return data[:start] + struct.pack(">HH", 0xFFE2, 2 + len(body)) + body + data[start:]


def encode_regions(pixels: "NDArray[np.uint8]") -> bytes:
    """Make a PNG of class indices out of [H, W, 3]: regions of like brightness."""
    import numpy as np
    from PIL import Image

    height, width = pixels.shape[:2]
    small = (max(1, width // _BLUR), max(1, height // _BLUR))
    grey = Image.fromarray(pixels).convert("L").resize(small)
    smooth = grey.resize((width, height), Image.Resampling.BILINEAR)
    file = io.BytesIO()
    Image.fromarray(np.asarray(smooth) // _LEVELS).save(file, "PNG")
    return file.getvalue()
