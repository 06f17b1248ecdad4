"""Palettes of BMP that Pillow takes for greys, and reads the indices of as other numbers."""

import struct
from typing import Final

_OFFSET: Final = 14
"""Of the second header, behind that of the file."""

_OS2_NBYTES: Final = 12


def with_read_palette(data: bytes) -> bytes:
    """Return a BMP whose palette Pillow reads as one: the very bytes where it does already.

    Pillow leaves a palette of greys out, and takes two of them for pixels of one bit and more for
    pixels of one byte, whatever the header says: black and white in a BMP of 8 bits come out
    black. Such a palette is filled up, or gets a colour at an index that no pixel can have.

    Raises:
        ValueError: It is such a file of OS/2, whose palette has no number of colours.

    Source:
        Microsoft, BITMAPINFOHEADER: biBitCount, biClrUsed; bfOffBits of BITMAPFILEHEADER.
    """
    if len(data) < _OFFSET + 40:
        return data
    nbytes = struct.unpack_from("<I", data, _OFFSET)[0]
    is_os2 = nbytes == _OS2_NBYTES
    bits = struct.unpack_from("<H", data, _OFFSET + (10 if is_os2 else 14))[0]
    if bits not in {1, 2, 4, 8}:
        return data
    used = 0 if is_os2 else struct.unpack_from("<I", data, _OFFSET + 32)[0]
    count, width = used or 1 << bits, 3 if is_os2 else 4
    start = _OFFSET + nbytes
    palette = data[start : start + count * width]
    if count > 1 << bits or len(palette) < count * width or not _misread(palette, width, bits):
        return data
    if is_os2:
        raise ValueError("its palette of greys is one that Pillow misreads")
    added = bytes(4 * ((1 << bits) - count)) or b"\1\2\3\0"
    head = bytearray(data[:start])
    pixels = struct.unpack_from("<I", data, 10)[0]
    if pixels:
        struct.pack_into("<I", head, 10, pixels + len(added))
    struct.pack_into("<I", head, _OFFSET + 32, count + len(added) // 4)
    return bytes(head) + palette + added + data[start + len(palette) :]


def _misread(palette: bytes, width: int, bits: int) -> bool:
    """Whether Pillow leaves a palette out, and reads pixels of another number of bits."""
    count = len(palette) // width
    greys = (0, 255) if count == 2 else range(count)
    found = [palette[place : place + 3] for place in range(0, len(palette), width)]
    left_out = all(found[place] == bytes([grey]) * 3 for place, grey in enumerate(greys))
    return left_out and bits != (1 if count <= 2 else 8)
