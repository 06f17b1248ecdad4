"""TIFFs with all that the layout of samples can be, written from the standard alone.

Source:
    TIFF 6.0, sections 2, 8, 14 and 19; TIFF Technical Note 3 for the predictor of floats; for
    BigTIFF its design of 2004.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FORMATS = {"u": 1, "i": 2, "f": 3}
_TYPES = {3: "H", 4: "I", 16: "Q"}


def make_tiff(
    pages: NDArray[Any] | Sequence[NDArray[Any]],
    *,
    extra: int | None = None,
    packed: bool = False,
    predictor: int = 1,
    orientation: int = 1,
    order: str = "<",
    rows: int | None = None,
    photometric: int | None = None,
    planar: bool = False,
    big: bool = False,
    subfile: int | None = None,
) -> bytes:
    """Return a TIFF of [H, W, C] samples of any type, a page each.

    Args:
        pages: The samples of one page, or of several.
        extra: What the fourth sample means.
        packed: Deflated.
        predictor: 1, or 3 for floats that are packed.
        orientation: Tag 274.
        order: "<" or ">".
        rows: To a strip; None for one strip.
        photometric: None for grey or RGB, as there are samples.
        planar: A plane a colour.
        big: BigTIFF.
        subfile: Tag 254 of all pages but the first.
    """
    word = "Q" if big else "I"
    marks = b"II" if order == "<" else b"MM"
    head = struct.pack(order + "HHH", 43, 8, 0) if big else struct.pack(order + "H", 42)
    found = bytearray(marks + head + struct.pack(order + word, 0))
    link = len(found) - struct.calcsize(word)
    for number, samples in enumerate([pages] if isinstance(pages, np.ndarray) else pages):
        height, width, channels = samples.shape
        planes = np.split(samples, channels, 2) if planar else [samples]
        places, sizes = [], []
        for plane in planes:
            for first in range(0, height, rows or height):
                strip = _strip(plane[first : first + (rows or height)], order, predictor)
                strip = zlib.compress(strip) if packed else strip
                places.append(len(found))
                sizes.append(len(strip))
                found += strip + bytes(len(strip) % 2)
        offset = 16 if big else 4
        tags: dict[int, tuple[int, list[int]]] = {
            256: (4, [width]),
            257: (4, [height]),
            258: (3, [8 * samples.dtype.itemsize] * channels),
            259: (3, [8 if packed else 1]),
            262: (3, [(2 if channels > 2 else 1) if photometric is None else photometric]),
            273: (offset, places),
            274: (3, [orientation]),
            277: (3, [channels]),
            278: (4, [rows or height]),
            279: (offset, sizes),
            284: (3, [2 if planar else 1]),
            317: (3, [predictor]),
            339: (3, [_FORMATS[samples.dtype.kind]] * channels),
        }
        if extra is not None:
            tags[338] = (3, [extra])
        if number and subfile is not None:
            tags[254] = (4, [subfile])
        entries = b""
        for tag, (kind, values) in sorted(tags.items()):
            data = struct.pack(order + _TYPES[kind] * len(values), *values)
            if len(data) > struct.calcsize(word):
                place = len(found)
                found += data + bytes(len(data) % 2)
                data = struct.pack(order + word, place)
            entries += struct.pack(order + "HH" + word, tag, kind, len(values))
            entries += data.ljust(struct.calcsize(word), b"\0")
        struct.pack_into(order + word, found, link, len(found))
        found += struct.pack(order + ("Q" if big else "H"), len(tags)) + entries
        link = len(found)
        found += bytes(struct.calcsize(word))
    return bytes(found)


def _strip(samples: NDArray[Any], order: str, predictor: int) -> bytes:
    if predictor == 1:
        return samples.astype(samples.dtype.newbyteorder(order)).tobytes()
    rows, channels, nbytes = len(samples), samples.shape[2], samples.dtype.itemsize
    big = np.frombuffer(samples.astype(samples.dtype.newbyteorder(">")).tobytes(), np.uint8)
    planes = big.reshape(rows, -1, nbytes).transpose(0, 2, 1).reshape(rows, -1)
    return np.hstack([planes[:, :channels], planes[:, channels:] - planes[:, :-channels]]).tobytes()
