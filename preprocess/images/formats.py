"""What a file is, by its first bytes; extensions are never asked."""

import re

# Also of kinds that cannot be decoded: such a picture is skipped by name, not passed over.
IMAGE_EXTENSIONS = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".webp", ".bmp", ".dib", ".gif",
    ".tif", ".tiff", ".avif", ".avifs", ".jp2", ".j2k", ".jpx", ".jpc", ".heic", ".heif", ".jxl",
    ".tga", ".psd", ".ico", ".cur", ".qoi", ".dds", ".sgi", ".xpm", ".hdr", ".exr", ".pcx",
    ".pbm", ".pgm", ".ppm", ".pnm", ".pam", ".pfm", ".dng", ".cr2", ".nef", ".arw",
})  # fmt: skip

HEAD_NBYTES = 64
"""Leading bytes that `sniff_format` looks at; with fewer it may answer None for a known format."""

DECODED_FORMATS = frozenset({"JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "AVIF", "JPEG2000"})
"""Answers of `sniff_format` that `decode.decode_image` turns into pixels."""

PACKAGED_FORMATS = frozenset({"HEIC", "JPEG XL"})
"""Answers of `sniff_format` that it decodes where an optional package is installed."""

OTHER_IMAGE_FORMATS = frozenset(
    {"JPEG XR", "PSD", "ICO", "CUR", "DDS", "QOI", "SGI", "PNM", "PFM", "PAM"}
    | {"XV thumbnail", "Radiance HDR", "OpenEXR", "XPM", "FITS", "ICNS"}
    | {"PCX", "Sun raster", "FLIF", "JNG", "MNG", "BPG", "WMF", "EMF", "raw photo"}
)
"""Answers of `sniff_format` that are pictures, which `decode_image` refuses by name."""

# Source of the magic numbers: each format's specification; (offset, bytes, name), first match wins.
_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"\x89PNG\r\n\x1a\n", "PNG"),
    (0, b"GIF87a", "GIF"),
    (0, b"GIF89a", "GIF"),
    (0, b"\x00\x00\x00\x0cjP  \r\n\x87\n", "JPEG2000"),
    (0, b"\xff\x4f\xff\x51", "JPEG2000"),
    (0, b"II\xbc\x01", "JPEG XR"),
    (8, b"CR\x02\x00", "raw photo"),
    (0, b"II*\x00", "TIFF"),
    (0, b"MM\x00*", "TIFF"),
    (0, b"II+\x00", "TIFF"),
    (0, b"MM\x00+", "TIFF"),
    (0, b"IIRO", "raw photo"),
    (0, b"IIU\x00", "raw photo"),
    (0, b"FUJIFILMCCD-RAW", "raw photo"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"\x00\x00\x00\x0cJXL \r\n\x87\n", "JPEG XL"),
    (0, b"8BPS", "PSD"),
    (0, b"DDS ", "DDS"),
    (0, b"qoif", "QOI"),
    (0, b"\x01\xda\x00", "SGI"),
    (0, b"\x01\xda\x01", "SGI"),
    (0, b"P7 332", "XV thumbnail"),
    (0, b"P7\n", "PAM"),
    (0, b"#?RADIANCE", "Radiance HDR"),
    (0, b"#?RGBE", "Radiance HDR"),
    (0, b"\x76\x2f\x31\x01", "OpenEXR"),
    (0, b"/* XPM", "XPM"),
    (0, b"SIMPLE  =", "FITS"),
    (0, b"icns", "ICNS"),
    (0, b"\x59\xa6\x6a\x95", "Sun raster"),
    (0, b"FLIF", "FLIF"),
    (0, b"\x8bJNG\r\n\x1a\n", "JNG"),
    (0, b"\x8aMNG\r\n\x1a\n", "MNG"),
    (0, b"BPG\xfb", "BPG"),
    (0, b"\xd7\xcd\xc6\x9a", "WMF"),
    (40, b" EMF", "EMF"),
)
# What stands behind a format's signature, and where: (offset, bytes, name).
_INNER: tuple[tuple[int, bytes, str], ...] = (
    (12, b"IHDR", "PNG"),
    (6, b"JFIF\0", "JPEG"),
    (6, b"Exif\0\0", "JPEG"),
    (8, b"WEBPVP8", "WEBP"),
)
_OTHER_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", "a PDF document"),
    (b"%!PS", "a PostScript drawing"),
    (b"\xc5\xd0\xd3\xc6", "a PostScript drawing"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x1a\x45\xdf\xa3", "a Matroska or WebM video"),
)
_BMP_HEADER_NBYTES = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_HEIC_BRANDS = frozenset(
    {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"}
)
_PNM = re.compile(rb"P([1-6Ff])(?:\s+\d|\s*#)")
_PCX = re.compile(rb"\x0a[\0\2-\5][\0\1][\1\2\4\x08]")
_XML_PROLOGS = (b"<?xml", b"<!--")
_HTML_STARTS = (b"<!doctype html", b"<html", b"<head", b"<body", b"<script", b"<title")


def sniff_format(head: bytes) -> str | None:
    """Name the image container by content.

    Args:
        head: The first `HEAD_NBYTES` bytes of a file or more; fewer only if the file is shorter.

    Returns:
        One of `DECODED_FORMATS` or `OTHER_IMAGE_FORMATS`; None for what is no picture of pixels,
        and for the unknown (TGA has no magic).

    Source:
        ISO/IEC 14496-12 section 4.3 for `ftyp` brands, RFC 9649 for WebP.
    """
    for offset, magic, name in _MAGIC:
        if head.startswith(magic, offset):
            return name
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head[4:8] == b"ftyp":
        return _sniff_brands(head)
    return _sniff_weak_magic(head)


def damaged_signature(head: bytes) -> str | None:
    """Name the format of a file whose signature alone is damaged: of its size, or a byte off."""
    for offset, inner, name in _INNER:
        if inner in head[offset - 1 : offset + 1 + len(inner)]:
            return name
    return None


def explain_refusal(head: bytes) -> str:
    """Say in one line why a file that is in none of `DECODED_FORMATS` is refused."""
    if not head:
        return "empty file"
    name = sniff_format(head)
    if name is not None:
        return f"{name} images are not supported"
    if head.startswith(b"\xff\xd8"):
        return "a JPEG that is damaged at its second marker"
    if (damaged := damaged_signature(head)) is not None:
        return f"a {damaged} image whose signature is damaged"
    other = next((name for magic, name in _OTHER_MAGIC if head.startswith(magic)), None)
    if other is None and head[4:8] == b"ftyp":
        other = "an MP4 or QuickTime video"
    other = other or _sniff_markup(head)
    return f"{other}, not an image" if other else "not an image format that prep knows"


def _sniff_brands(head: bytes) -> str | None:
    end = min(len(head), int.from_bytes(head[:4], "big"))
    brands = {head[8:12], *(head[i : i + 4] for i in range(16, end - 3, 4))}
    if brands & _AVIF_BRANDS:
        return "AVIF"
    if brands & _HEIC_BRANDS:
        return "HEIC"
    return "raw photo" if b"crx " in brands else None


def _sniff_weak_magic(head: bytes) -> str | None:
    # Two to four bytes are too weak: text may start so. A second field must agree.
    if head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in _BMP_HEADER_NBYTES:
        return "BMP"
    if head[:4] in (b"\0\0\1\0", b"\0\0\2\0") and head[4:6] != b"\0\0" and head[9:10] == b"\0":
        return "ICO" if head[2] == 1 else "CUR"
    if match := _PNM.match(head):
        return "PFM" if match[1] in b"Ff" else "PNM"
    return "PCX" if _PCX.match(head) else None


def _sniff_markup(head: bytes) -> str | None:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith(_HTML_STARTS):
        return "an HTML page"
    if text.startswith(b"<svg") or (text.startswith(_XML_PROLOGS) and b"<svg" in text):
        return "an SVG drawing"
    return "an XML document" if text.startswith(_XML_PROLOGS) else None
