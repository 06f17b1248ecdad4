"""What a PNG, WebP or AVIF says beside its pixels: size, kind, metadata, and whether it is whole.

Every reader raises ValueError with the cause in one line.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

_CRITICAL_CHUNKS = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
_MAX_TEXT_NBYTES = 1 << 20  # of inflated metadata that is looked at, against zip bombs
_MAX_ICC_NBYTES = 1 << 24  # of an inflated colour profile

BROKEN_PROFILE = b"\0"
"""Stands for a profile that cannot be inflated whole: of no use, and counted as such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PngHeader:
    """The chunks around the pixels.

    Attributes:
        width: Pixels, as stored.
        height: Pixels, as stored.
        depth: Bits per sample.
        exif: The Exif block.
        xmp: The XMP packet.
        icc: The colour profile; empty without one, `BROKEN_PROFILE` where its chunk is damaged.
        grey: Whether it has grey alone, with or without alpha.
        bare: The file with nothing but IHDR, PLTE, tRNS, IDAT and IEND: no text to inflate, no
            animation, no colour profile.
    """

    width: int
    height: int
    depth: int
    exif: bytes | None
    xmp: bytes | None
    icc: bytes
    grey: bool
    bare: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WebpHeader:
    """The RIFF chunks.

    Attributes:
        width: Pixels, as stored.
        height: Pixels, as stored.
        plain: The pixels alone as a file, if they have neither alpha nor animation; else None. What
            follows them must be out of a decoder's reach: damaged pixels would run on into it.
        exif: The Exif block.
        xmp: The XMP packet.
        icc: The colour profile; empty without one.
    """

    width: int
    height: int
    plain: bytes | None
    exif: bytes | None
    xmp: bytes | None
    icc: bytes


def read_png_header(data: bytes) -> PngHeader:
    """Walk a PNG's chunks and hold every checksum on which the pixels depend against its bytes.

    Pillow checks no IDAT checksum, so a changed byte that still inflates would go unseen.

    Source:
        W3C PNG (third edition) sections 5, 11 and 12; 13.2 for errors.
    """
    view = memoryview(data)
    last, pixels_seen, icc = b"", False, b""
    kept, exif, raw_exif, xmp = [view[:8]], None, None, None
    for kind, start, end in _png_chunks(data):
        if kind in _CRITICAL_CHUNKS or kind == b"tRNS":
            _check_png_checksum(kind, view[start:end])
            if kind == b"IDAT" and pixels_seen and last != b"IDAT":
                raise ValueError("its IDAT chunks do not follow each other")
            pixels_seen |= kind == b"IDAT"
            kept.append(view[start:end])
        elif not kind[0] & 0x20:
            raise ValueError(f"unknown critical chunk {kind!r}")
        elif kind == b"eXIf":
            # An ancillary chunk that is damaged is ignored: the picture does not depend on it.
            exif = data[start + 8 : end - 4] if _is_whole(view[start:end]) else exif
        elif kind == b"iCCP":
            icc = _png_profile(view[start:end])
        elif kind in (b"tEXt", b"zTXt", b"iTXt"):
            keyword, text = _png_text(kind, data[start + 8 : end - 4])
            if keyword == b"XML:com.adobe.xmp":
                xmp = text
            elif keyword == b"Raw profile type exif":
                raw_exif = _unhex_profile(text)
        last = kind
    width, height, depth, colour = struct.unpack_from(">IIBB", data, 16)
    return PngHeader(
        width=width,
        height=height,
        depth=depth,
        exif=exif or raw_exif,
        xmp=xmp,
        icc=icc,
        grey=colour in (0, 4),
        bare=b"".join(kept),
    )


def read_avif_size(data: bytes) -> tuple[int, int]:
    """Return width and height of the largest item of an AVIF; (1, 1) if none says its size.

    Source:
        ISO/IEC 23008-12 section 6.5.3 (ImageSpatialExtentsProperty, `ispe`).
    """
    sizes = [(1, 1)]
    place = data.find(b"ispe")
    while 0 <= place <= len(data) - 16:
        sizes.append(struct.unpack_from(">II", data, place + 8))
        place = data.find(b"ispe", place + 4)
    return max(sizes, key=lambda size: size[0] * size[1])


def is_deep_avif(data: bytes) -> bool:
    """Say whether a picture in an AVIF has more than 8 bits a sample.

    Source:
        AV1-ISOBMFF section 2.3.3 (`av1C`).
    """
    place = data.find(b"av1C")
    while 0 <= place <= len(data) - 7:
        if data[place + 6] & 0x40:
            return True
        place = data.find(b"av1C", place + 4)
    return False


def jpeg2000_bits(data: bytes) -> tuple[int, ...]:
    """Return the bits of each component of a JPEG 2000; none if its header is not whole.

    Source:
        ISO/IEC 15444-1 section A.5.1 (SIZ: Csiz and Ssiz).
    """
    size = data.find(b"\xff\x4f\xff\x51") + 2
    if size < 2 or size + 40 > len(data):
        return ()
    count = int.from_bytes(data[size + 38 : size + 40], "big")
    return tuple((bits & 0x7F) + 1 for bits in data[size + 40 : size + 40 + 3 * count : 3])


def read_webp_header(data: bytes) -> WebpHeader:
    """Walk a WebP's chunks; a file shorter than it says is refused.

    Source:
        RFC 9649 sections 2.3 to 2.7 and 3.4; RFC 6386 section 9.1.
    """
    plain, exif, xmp, icc = True, None, None, b""
    canvas = size = pixels = None
    flags = 0xFF
    for kind, start, body, end in _riff_chunks(data):
        nbytes = end - body
        if kind == b"VP8X" and nbytes >= 10:
            flags = data[body]  # bits: profile 0x20, alpha 0x10, Exif 0x08, animation 0x02
            plain = not flags & 0x12
            canvas = _uint24(data, body + 4) + 1, _uint24(data, body + 7) + 1
        elif kind in (b"VP8 ", b"VP8L") and nbytes >= 10 and pixels is None:
            *size, alpha = _webp_frame(kind, data[body:end])
            plain = plain and not alpha
            pixels = data[start:end]
        elif kind == b"EXIF" and flags & 0x08:
            exif = data[body:end]
        elif kind == b"XMP ":
            xmp = data[body:end]
        elif kind == b"ICCP" and flags & 0x20:
            icc = data[body:end]
    if plain and canvas is not None and size is not None and canvas != tuple(size):
        raise ValueError(
            f"its canvas is {canvas[0]} x {canvas[1]}, its pixels {size[0]} x {size[1]}"
        )
    width, height = canvas or size or (0, 0)
    if not width:
        raise ValueError("it has no pixels")
    alone = _webp_of(pixels) if plain and pixels is not None else None
    return WebpHeader(width=width, height=height, plain=alone, exif=exif, xmp=xmp, icc=icc)


def _riff_chunks(data: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield each chunk: kind, where it starts, where its body does, where that ends."""
    end = int.from_bytes(data[4:8], "little") + 8
    if end > len(data):
        raise ValueError("it is cut: shorter than its header says")
    position = 12
    while position + 8 <= end:
        kind, nbytes = struct.unpack_from("<4sI", data, position)
        body = position + 8
        if body + nbytes > end:
            raise ValueError("it is cut inside a chunk")
        yield kind, position, body, body + nbytes
        position = body + nbytes + (nbytes & 1)


def _webp_frame(kind: bytes, body: bytes) -> tuple[int, int, int]:
    """Return width, height and whether a frame of pixels has alpha."""
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", body, 6)
        return width & 0x3FFF, height & 0x3FFF, 0
    bits = int.from_bytes(body[1:5], "little")
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, bits >> 28 & 1


def _webp_of(chunk: bytes) -> bytes:
    """Make a file of one chunk."""
    padded = chunk + b"\0" * (len(chunk) & 1)
    return b"RIFF" + (len(padded) + 4).to_bytes(4, "little") + b"WEBP" + padded


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield each chunk up to IEND: kind, where it starts, where it ends."""
    position, kind = 8, b""
    while kind != b"IEND":
        if position + 12 > len(data):
            raise ValueError("it is cut: no IEND chunk")
        nbytes, kind = struct.unpack_from(">I4s", data, position)
        if position + 12 + nbytes > len(data):
            raise ValueError("it is cut inside a chunk")
        if position == 8 and (kind != b"IHDR" or nbytes != 13):
            raise ValueError("it does not begin with a whole IHDR chunk")
        yield kind, position, position + 12 + nbytes
        position += 12 + nbytes


def _is_whole(chunk: memoryview) -> bool:
    return zlib.crc32(chunk[4:-4]) == int.from_bytes(chunk[-4:], "big")


def _check_png_checksum(kind: bytes, chunk: memoryview) -> None:
    if not _is_whole(chunk):
        raise ValueError(f"the checksum of its {kind.decode()} chunk does not match")


def _png_profile(chunk: memoryview) -> bytes:
    inflater = zlib.decompressobj()
    packed = bytes(chunk[8:-4]).partition(b"\0")[2][1:]
    try:
        profile = inflater.decompress(packed, _MAX_ICC_NBYTES)
    except zlib.error:
        return BROKEN_PROFILE
    return profile if profile and inflater.eof and _is_whole(chunk) else BROKEN_PROFILE


def _png_text(kind: bytes, body: bytes) -> tuple[bytes, bytes]:
    keyword, _, text = body.partition(b"\0")
    if keyword not in (b"XML:com.adobe.xmp", b"Raw profile type exif"):
        return keyword, b""
    packed = kind == b"zTXt"
    if kind == b"zTXt":
        text = text[1:]
    elif kind == b"iTXt":
        packed = text[:1] == b"\1"
        text = text[2:].partition(b"\0")[2].partition(b"\0")[2]
    if packed:
        text = _inflate(text)
    return keyword, text


def _inflate(packed: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(packed, _MAX_TEXT_NBYTES)
    except zlib.error:
        return b""  # broken metadata does not cost the picture


def _unhex_profile(text: bytes) -> bytes | None:
    # ImageMagick's form: a name and a length on lines of their own, then hexadecimal digits.
    try:
        return bytes.fromhex(b"".join(text.split(b"\n")[3:]).decode("ascii"))
    except ValueError:
        return None


def _uint24(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 3], "little")
