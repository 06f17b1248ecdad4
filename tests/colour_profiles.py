"""Colour profiles made by hand, for tests of what becomes of them."""

import struct

from PIL import ImageCms  # noqa: TID253 - a test may load what it compares with


def srgb() -> bytes:
    """Return littlecms's own sRGB profile."""
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def red_and_blue_swapped() -> bytes:
    """Return a profile of RGB under which red and blue change places."""
    whole = bytearray(srgb())
    red, blue = whole.index(b"rXYZ"), whole.index(b"bXYZ")
    whole[red : red + 4], whole[blue : blue + 4] = b"bXYZ", b"rXYZ"
    return bytes(whole)


def adobe_rgb() -> bytes:
    """Return a profile of RGB as cameras and editors embed it: wider than sRGB, gamma 2.2.

    Source:
        Adobe RGB (1998) Color Image Encoding, annex C: colorants adapted to D50; gamma 563 / 256.
    """
    points = {
        b"wtpt": (0.9642, 1.0, 0.8249),
        b"rXYZ": (0.60974, 0.31111, 0.01947),
        b"gXYZ": (0.20528, 0.62567, 0.06087),
        b"bXYZ": (0.14919, 0.06322, 0.74457),
    }
    tags = {
        name: struct.pack(">4s4x3i", b"XYZ ", *(round(65536 * value) for value in point))
        for name, point in points.items()
    }
    curve = struct.pack(">4s4xIH2x", b"curv", 1, 563)
    tags |= dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve)
    return _profile(b"mntr", b"RGB ", b"XYZ ", tags)


def linear_grey() -> bytes:
    """Return a profile of grey whose values are proportional to light."""
    white = struct.pack(">4s4x3i", b"XYZ ", 63190, 65536, 54061)
    curve = struct.pack(">4s4xIH2x", b"curv", 1, 256)
    return _profile(b"mntr", b"GRAY", b"XYZ ", {b"wtpt": white, b"kTRC": curve})


def two_level_ink() -> bytes:
    """Return a profile of CMYK: a table of the 16 corners, in Lab."""
    ramp = bytes(range(256))
    corners = bytes(
        value
        for c in (0, 1)
        for m in (0, 1)
        for y in (0, 1)
        for k in (0, 1)
        for value in (255 - 150 * k - 30 * (c + m + y), 128 + 40 * (m - c), 128 + 40 * (y - c))
        for value in [max(0, value)]
    )
    matrix = struct.pack(">9i", *(65536 * (i % 4 == 0) for i in range(9)))
    table = struct.pack(">4s4x4B", b"mft1", 4, 3, 2, 0) + matrix + ramp * 4 + corners + ramp * 3
    white = struct.pack(">4s4x3i", b"XYZ ", 63190, 65536, 54061)
    return _profile(b"prtr", b"CMYK", b"Lab ", {b"A2B0": table, b"wtpt": white})


def _profile(kind: bytes, space: bytes, between: bytes, tags: dict[bytes, bytes]) -> bytes:
    # Source: ICC.1 sections 7.2 (header) and 7.3 (tag table).
    entries, body = b"", b""
    start = 128 + 4 + 12 * len(tags)
    for name, data in tags.items():
        padded = data + bytes(-len(data) % 4)
        entries += struct.pack(">4sII", name, start + len(body), len(data))
        body += padded
    header = bytearray(128)
    struct.pack_into(
        ">I4sI4s4s4s", header, 0, start + len(body), b"lcms", 0x02100000, kind, space, between
    )
    header[36:40] = b"acsp"
    struct.pack_into(">3i", header, 68, 63190, 65536, 54061)
    return bytes(header) + struct.pack(">I", len(tags)) + entries + body
