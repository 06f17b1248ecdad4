"""What a JPEG says before its pixels: size, kind, metadata.

Every reader raises ValueError with the cause in one line.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_STANDALONE_MARKERS = frozenset({0x01, *range(0xD0, 0xD8)})
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC} | {0xF7}
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_MARK = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")
_EXIF_PREFIX = b"Exif\0\0"
_XMP_PREFIX = b"http://ns.adobe.com/xap/1.0/\0"
_ICC_PREFIX = b"ICC_PROFILE\0"
_JFIF_PREFIX = b"JFIF\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class JpegHeader:
    """The segments before the first scan.

    Attributes:
        width: Pixels, as stored.
        height: Pixels, as stored.
        process: Second byte of the frame's marker: 0xC0 baseline, 0xC2 progressive and so on.
        precision: Bits per sample.
        sampling: (horizontal, vertical) factors of each component.
        scans: How often its coefficients are gone through.
        exif: The first Exif block.
        xmp: The last XMP packet.
        icc: The colour profile: its parts in the order of their numbers, whether all are there or
            not.
        clean: The file without what decoders warn about and pixels do not depend on: stray bytes
            after metadata segments, a JFIF revision other than 1, parts of a colour profile that
            do not fit together. None if there is nothing of that.
    """

    width: int
    height: int
    process: int
    precision: int
    sampling: tuple[tuple[int, int], ...]
    scans: int
    exif: bytes | None
    xmp: bytes | None
    icc: bytes
    clean: bytes | None


def read_jpeg_header(data: bytes) -> JpegHeader:
    """Walk a JPEG's segments up to the first scan.

    Stray bytes between segments are skipped, as decoders do.

    Source:
        ITU-T T.81 annex B; Exif 2.32 section 4.7.2; XMP part 3 section 1.1.3; ICC.1 annex B.4.
    """
    frame: bytes | None = None
    process = in_first_scan = first_scan = 0
    exif = xmp = None
    parts: list[tuple[int, bytes]] = []
    for marker, _, start, body in _jpeg_segments(data):
        if marker in _FRAME_MARKERS:
            if frame is not None:
                raise ValueError("it has two frames")
            frame, process = body, marker
        elif marker == 0xE1 and body.startswith(_EXIF_PREFIX):
            exif = exif or body
        elif marker == 0xE1 and body.startswith(_XMP_PREFIX):
            xmp = body[len(_XMP_PREFIX) :]
        elif marker == 0xE2 and body.startswith(_ICC_PREFIX):
            parts.append((body[len(_ICC_PREFIX)] if len(body) >= 14 else 0, body[14:]))
        elif marker == 0xDA:
            in_first_scan, first_scan = body[0] if body else 0, start
    if frame is None or len(frame) < 6 or len(frame) < 6 + 3 * frame[5]:
        raise ValueError("it has no whole frame header before its pixels")
    precision, height, width, count = struct.unpack_from(">BHHB", frame)
    in_one = process not in _PROGRESSIVE and in_first_scan == count
    factors = frame[7 : 6 + 3 * count : 3]
    return JpegHeader(
        width=width,
        height=height,
        process=process,
        precision=precision,
        sampling=tuple((factor >> 4, factor & 15) for factor in factors),
        scans=1 if in_one else _count_scans(data, first_scan),
        exif=exif,
        xmp=xmp,
        icc=b"".join(part for _, part in sorted(parts, key=lambda part: part[0])),
        clean=_clean_jpeg(data),
    )


def _count_scans(data: bytes, position: int) -> int:
    """Count the scans from the first on; what follows the picture, a film perhaps, has none."""
    scans = 0
    while mark := _MARK.search(data, position):
        marker, position = data[mark.end() - 1], mark.end()
        if marker == 0xD9:
            break
        scans += marker == 0xDA
        position += int.from_bytes(data[position : position + 2], "big")
    return scans


def _clean_jpeg(data: bytes) -> bytes | None:
    """Leave out what decoders warn about before the first scan; None if there is nothing."""
    pieces, previous, last, odd = [data[:2]], 0xD8, 2, False
    profile: list[tuple[int, int]] = []
    for marker, stray, start, body in _jpeg_segments(data):
        if stray < start:
            after_metadata = 0xE0 <= previous <= 0xEF or previous == 0xFE
            odd |= after_metadata
            pieces.append(b"" if after_metadata else data[stray:start])
        last = data.index(body, start) + len(body) if body else start + 4
        segment = data[start:last]
        if marker == 0xDA:
            pieces.append(data[start:])
        elif marker == 0xE0 and body.startswith(_JFIF_PREFIX) and body[5:6] != b"\1":
            odd = True
            prefix = len(segment) - len(body) + len(_JFIF_PREFIX)
            pieces.append(segment[:prefix] + b"\1\1" + segment[prefix + 2 :])
        elif marker == 0xE2 and body.startswith(_ICC_PREFIX):
            profile.append((body[12], body[13]) if len(body) >= 14 else (0, 0))
        else:
            pieces.append(segment)
        previous = marker
    numbers = [(index, len(profile)) for index in range(1, len(profile) + 1)]
    return b"".join(pieces) if odd or sorted(profile) != numbers else None


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
