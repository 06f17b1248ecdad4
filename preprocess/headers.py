"""What a JPEG, PNG or WebP says before its pixels: size, kind, metadata, and whether it is whole.

Every reader raises ValueError with the cause in one line.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

_STANDALONE_MARKERS = frozenset({0x01, *range(0xD0, 0xD8)})
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC} | {0xF7}
_EXIF_PREFIX = b"Exif\0\0"
_XMP_PREFIX = b"http://ns.adobe.com/xap/1.0/\0"
_ICC_PREFIX = b"ICC_PROFILE\0"
_CRITICAL_CHUNKS = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
_MAX_TEXT_NBYTES = 1 << 20  # of inflated metadata that is looked at, against zip bombs


@dataclass(frozen=True, slots=True, kw_only=True)
class JpegHeader:
    """The segments before the first scan.

    Attributes:
        width: Pixels, as stored.
        height: Pixels, as stored.
        process: Second byte of the frame's marker: 0xC0 baseline, 0xC2 progressive and so on.
        precision: Bits per sample.
        sampling: (horizontal, vertical) factors of each component.
        exif: The first Exif block.
        xmp: The last XMP packet.
        icc: All parts of the colour profile, as stored.
        clean: The file without stray bytes after its metadata segments; None if there are none.
    """

    width: int
    height: int
    process: int
    precision: int
    sampling: tuple[tuple[int, int], ...]
    exif: bytes | None
    xmp: bytes | None
    icc: bytes
    clean: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PngHeader:
    """The chunks around the pixels.

    Attributes:
        width: Pixels, as stored.
        height: Pixels, as stored.
        depth: Bits per sample.
        exif: The Exif block.
        xmp: The XMP packet.
        bare: The file with nothing but IHDR, PLTE, tRNS, IDAT and IEND: no text to inflate, no
            animation, no colour profile.
    """

    width: int
    height: int
    depth: int
    exif: bytes | None
    xmp: bytes | None
    bare: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WebpHeader:
    """The RIFF chunks.

    Attributes:
        width: Pixels, as stored.
        height: Pixels, as stored.
        plain: Neither alpha nor animation.
        exif: The Exif block.
        xmp: The XMP packet.
    """

    width: int
    height: int
    plain: bool
    exif: bytes | None
    xmp: bytes | None


def read_jpeg_header(data: bytes) -> JpegHeader:
    """Walk a JPEG's segments up to the first scan.

    Stray bytes between segments are skipped, as decoders do.

    Source:
        ITU-T T.81 annex B; Exif 2.32 section 4.7.2; XMP part 3 section 1.1.3; ICC.1 annex B.4.
    """
    frame: bytes | None = None
    process, previous, kept = 0, 0xD8, 0
    exif = xmp = None
    icc, parts = b"", []
    for marker, stray, start, body in _jpeg_segments(data):
        if stray < start and (0xE0 <= previous <= 0xEF or previous == 0xFE):
            parts.append(data[kept:stray])
            kept = start
        previous = marker
        if marker in _FRAME_MARKERS:
            if frame is not None:
                raise ValueError("it has two frames")
            frame, process = body, marker
        elif marker == 0xE1 and body.startswith(_EXIF_PREFIX):
            exif = exif or body
        elif marker == 0xE1 and body.startswith(_XMP_PREFIX):
            xmp = body[len(_XMP_PREFIX) :]
        elif marker == 0xE2 and body.startswith(_ICC_PREFIX):
            icc += body[len(_ICC_PREFIX) + 2 :]
    if frame is None or len(frame) < 6 or len(frame) < 6 + 3 * frame[5]:
        raise ValueError("it has no whole frame header before its pixels")
    precision, height, width, count = struct.unpack_from(">BHHB", frame)
    factors = frame[7 : 6 + 3 * count : 3]
    return JpegHeader(
        width=width,
        height=height,
        process=process,
        precision=precision,
        sampling=tuple((factor >> 4, factor & 15) for factor in factors),
        exif=exif,
        xmp=xmp,
        icc=icc,
        clean=b"".join([*parts, data[kept:]]) if parts else None,
    )


def read_png_header(data: bytes) -> PngHeader:
    """Walk a PNG's chunks and hold every checksum on which the pixels depend against its bytes.

    Pillow checks no IDAT checksum, so a changed byte that still inflates would go unseen.

    Source:
        W3C PNG (third edition) sections 5, 11 and 12; 13.2 for errors.
    """
    view = memoryview(data)
    last, pixels_seen = b"", False
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
            exif = data[start + 8 : end - 4]
        elif kind in (b"tEXt", b"zTXt", b"iTXt"):
            keyword, text = _png_text(kind, data[start + 8 : end - 4])
            if keyword == b"XML:com.adobe.xmp":
                xmp = text
            elif keyword == b"Raw profile type exif":
                raw_exif = _unhex_profile(text)
        last = kind
    width, height, depth = struct.unpack_from(">IIB", data, 16)
    return PngHeader(
        width=width, height=height, depth=depth, exif=exif or raw_exif, xmp=xmp, bare=b"".join(kept)
    )


def read_webp_header(data: bytes) -> WebpHeader:
    """Walk a WebP's chunks; a file shorter than it says is refused.

    Source:
        RFC 9649 sections 2.3 to 2.7 and 3.4; RFC 6386 section 9.1.
    """
    if int.from_bytes(data[4:8], "little") + 8 > len(data):
        raise ValueError("it is cut: shorter than its header says")
    end = int.from_bytes(data[4:8], "little") + 8
    position, size, plain, exif, xmp = 12, None, True, None, None
    while position + 8 <= end:
        kind, nbytes = struct.unpack_from("<4sI", data, position)
        body = position + 8
        if body + nbytes > end:
            raise ValueError("it is cut inside a chunk")
        if kind == b"VP8X" and nbytes >= 10:
            plain = not data[body] & 0x12  # bits: alpha 0x10, animation 0x02
            size = _uint24(data, body + 4) + 1, _uint24(data, body + 7) + 1
        elif kind == b"VP8 " and nbytes >= 10:
            width, height = struct.unpack_from("<HH", data, body + 6)
            size = size or (width & 0x3FFF, height & 0x3FFF)
        elif kind == b"VP8L" and nbytes >= 5:
            bits = int.from_bytes(data[body + 1 : body + 5], "little")
            plain = plain and not bits >> 28 & 1
            size = size or ((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
        elif kind == b"EXIF":
            exif = data[body : body + nbytes]
        elif kind == b"XMP ":
            xmp = data[body : body + nbytes]
        position = body + nbytes + (nbytes & 1)
    if size is None:
        raise ValueError("it has no pixels")
    return WebpHeader(width=size[0], height=size[1], plain=plain, exif=exif, xmp=xmp)


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield each segment up to the first scan: marker, where stray bytes begin, where it does."""
    position = 2
    while True:
        start, marker, begin = _next_marker(data, position)
        if marker in _STANDALONE_MARKERS:
            position = begin
            continue
        if marker == 0xD9:
            raise ValueError("it ends before any pixels")
        nbytes = int.from_bytes(data[begin : begin + 2], "big")
        if nbytes < 2 or begin + nbytes > len(data):
            raise ValueError("it is cut or damaged inside its header")
        yield marker, position, start, data[begin + 2 : begin + nbytes]
        if marker == 0xDA:
            return
        position = begin + nbytes


def _next_marker(data: bytes, position: int) -> tuple[int, int, int]:
    """Find the next marker: where its first 0xFF is, its second byte, where its body begins."""
    while True:
        start = data.find(b"\xff", position)
        if start < 0:
            raise ValueError("it is cut inside its header")
        code = start + 1
        while data[code : code + 1] == b"\xff":
            code += 1
        if code >= len(data):
            raise ValueError("it is cut inside its header")
        if data[code]:
            return start, data[code], code + 1
        position = code + 1


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
