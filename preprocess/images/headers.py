"""What a PNG, WebP or AVIF says beside its pixels: size, kind, metadata, and whether it is whole.

Every reader raises ValueError with the cause in one line.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

_CRITICAL_CHUNKS = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
_MAX_TEXT_NBYTES = 1 << 20  # of inflated metadata that is looked at, against zip bombs


@dataclass(frozen=True, slots=True, kw_only=True)
class PngHeader:
    """The chunks around the pixels.

    Attributes:
        width: Pixels, as stored.
        height: Pixels, as stored.
        depth: Bits per sample.
        exif: The Exif block.
        xmp: The XMP packet.
        keyed16: Whether it is RGB of 16 bits with a transparent colour.
        bare: The file with nothing but IHDR, PLTE, tRNS, IDAT and IEND: no text to inflate, no
            animation, no colour profile.
    """

    width: int
    height: int
    depth: int
    exif: bytes | None
    xmp: bytes | None
    keyed16: bool
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
    """

    width: int
    height: int
    plain: bytes | None
    exif: bytes | None
    xmp: bytes | None


def read_png_header(data: bytes) -> PngHeader:
    """Walk a PNG's chunks and hold every checksum on which the pixels depend against its bytes.

    Pillow checks no IDAT checksum, so a changed byte that still inflates would go unseen.

    Source:
        W3C PNG (third edition) sections 5, 11 and 12; 13.2 for errors.
    """
    view = memoryview(data)
    last, pixels_seen, keyed = b"", False, False
    kept, exif, raw_exif, xmp = [view[:8]], None, None, None
    for kind, start, end in _png_chunks(data):
        if kind in _CRITICAL_CHUNKS or kind == b"tRNS":
            _check_png_checksum(kind, view[start:end])
            if kind == b"IDAT" and pixels_seen and last != b"IDAT":
                raise ValueError("its IDAT chunks do not follow each other")
            pixels_seen |= kind == b"IDAT"
            keyed |= kind == b"tRNS"
            kept.append(view[start:end])
        elif not kind[0] & 0x20:
            raise ValueError(f"unknown critical chunk {kind!r}")
        elif kind == b"eXIf":
            # An ancillary chunk that is damaged is ignored: the picture does not depend on it.
            whole = zlib.crc32(view[start + 4 : end - 4]) == int.from_bytes(
                view[end - 4 : end], "big"
            )
            exif = data[start + 8 : end - 4] if whole else exif
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
        keyed16=(depth, colour) == (16, 2) and keyed,
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


def read_webp_header(data: bytes) -> WebpHeader:
    """Walk a WebP's chunks; a file shorter than it says is refused.

    Source:
        RFC 9649 sections 2.3 to 2.7 and 3.4; RFC 6386 section 9.1.
    """
    plain, exif, xmp = True, None, None
    canvas = size = pixels = None
    flags = 0xFF
    for kind, start, body, end in _riff_chunks(data):
        nbytes = end - body
        if kind == b"VP8X" and nbytes >= 10:
            flags = data[body]  # bits: alpha 0x10, Exif 0x08, animation 0x02
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
    if plain and canvas is not None and size is not None and canvas != tuple(size):
        raise ValueError(
            f"its canvas is {canvas[0]} x {canvas[1]}, its pixels {size[0]} x {size[1]}"
        )
    width, height = canvas or size or (0, 0)
    if not width:
        raise ValueError("it has no pixels")
    alone = _webp_of(pixels) if plain and pixels is not None else None
    return WebpHeader(width=width, height=height, plain=alone, exif=exif, xmp=xmp)


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


def _check_png_checksum(kind: bytes, chunk: memoryview) -> None:
    if zlib.crc32(chunk[4:-4]) != int.from_bytes(chunk[-4:], "big"):
        raise ValueError(f"the checksum of its {kind.decode()} chunk does not match")


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
        try:
            text = zlib.decompressobj().decompress(text, _MAX_TEXT_NBYTES)
        except zlib.error:
            text = b""  # broken metadata does not cost the picture
    return keyword, text


def _unhex_profile(text: bytes) -> bytes | None:
    # ImageMagick's form: a name and a length on lines of their own, then hexadecimal digits.
    try:
        return bytes.fromhex(b"".join(text.split(b"\n")[3:]).decode("ascii"))
    except ValueError:
        return None


def _uint24(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 3], "little")
