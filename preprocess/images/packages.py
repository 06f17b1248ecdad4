"""HEIC and JPEG XL, which packages of their own decode; without them they are refused by name."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import numpy as np

from preprocess.images.deep import unmultiplied
from preprocess.images.finish import Stored
from preprocess.images.policy import DecodePolicy, check_pixels

_JXL_HEADER_NBYTES: Final = 48
_JXL_MODES: Final = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_JXL_RATIOS: Final = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))


def decode_heic(data: bytes, policy: DecodePolicy) -> Stored:
    """Decode the primary picture of a HEIC; libheif turns it as its transforms say.

    Raises:
        ValueError: pillow-heif is not installed.
        Exception: Whatever pillow-heif raises at damage.
    """
    package = _package("pillow_heif", "HEIC", "heic")
    heif = package.open_heif(data, convert_hdr_to_8bit=False)
    width, height = heif.size
    check_pixels(width, height, policy.max_pixels)
    if heif.mode.endswith(";16"):
        return _deep_heic(heif)
    image = heif.to_pillow()
    mode = "RGBA" if image.mode in ("RGBA", "RGBa", "LA") else "RGB"
    icc = image.info.get("icc_profile") or b""
    return Stored(samples=np.array(image.convert(mode)), icc=icc, grey=image.mode in ("L", "LA"))


def _deep_heic(heif: Any) -> Stored:
    """Take samples of more than 8 bits, which are moved so that the first bit is at the left."""
    rows = np.asarray(heif)  # [H, W or more, ...]
    width, height = heif.size
    bits = heif.info["bit_depth"]
    samples = rows[:, :width].reshape(height, width, -1).copy()
    peak = (2**bits - 1) << (16 - bits)
    if heif.mode.startswith("RGBa"):
        samples = unmultiplied(samples, peak)
    is_grey = samples.shape[2] == 1
    return Stored(
        samples=samples[:, :, [0, 0, 0]] if is_grey else samples,
        icc=heif.info.get("icc_profile") or b"",
        grey=is_grey,
        peak=peak,
    )


def decode_jxl(data: bytes, policy: DecodePolicy) -> Stored | bytes:
    """Decode a JPEG XL; one that was made of a JPEG gives that JPEG back, byte for byte.

    Raises:
        ValueError: pillow-jxl-plugin is not installed, or the samples are deeper than 8 bits.
        Exception: Whatever the package raises at damage.
    """
    decoder = _package("pillow_jxl", "JPEG XL", "jxl").Decoder(num_threads=0)
    width, height, is_one = read_jxl_header(data)
    check_pixels(width, height, policy.max_pixels)
    if not is_one:
        raise ValueError("animations and previews are not supported in JPEG XL")
    is_jpeg, info, decoded, icc, _ = decoder(data)
    if is_jpeg:
        return bytes(decoded)
    channels = _JXL_MODES.get(info.mode, 0)
    if not channels or len(decoded) != info.width * info.height * channels:
        raise ValueError(f"{info.mode} samples are not supported")
    samples = np.frombuffer(decoded, np.uint8).reshape(info.height, info.width, channels)
    if channels < 3:
        samples = samples[:, :, [0, 0, 0, 1][: channels + 2]]
    return Stored(samples=samples.copy(), icc=bytes(icc or b""), grey=channels < 3)


def _package(module: str, kind: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{kind} needs a package of its own: pip install 'prepshards[{extra}]'"
        ) from error


@dataclass(slots=True)
class _Bits:
    """Bits that are still to be read, the lowest first."""

    left: int

    def take(self, count: int) -> int:
        value = self.left & ((1 << count) - 1)
        self.left >>= count
        return value

    def size(self) -> tuple[int, int]:
        """Read a size header: width and height."""
        small = self.take(1)
        height = self._side(small)
        ratio = self.take(3)
        if not ratio:
            return self._side(small), height
        over, under = _JXL_RATIOS[ratio - 1]
        return height * over // under, height

    def _side(self, small: int) -> int:
        if small:
            return (self.take(5) + 1) * 8
        return self.take((9, 13, 18, 30)[self.take(2)]) + 1


def read_jxl_header(data: bytes) -> tuple[int, int, bool]:
    """Return width and height of a JPEG XL as stored, and whether it has one frame for certain.

    Raises:
        ValueError: It does not begin as it should.

    Source:
        ISO/IEC 18181-1 sections D.2 (size header) and D.3 (image metadata), 18181-2 section 9
        (boxes).
    """
    start = b"".join(_codestream(data))[:_JXL_HEADER_NBYTES]
    if len(start) < 10 or start[:2] != b"\xff\x0a":
        raise ValueError("it has no whole header")
    bits = _Bits(int.from_bytes(start[2:], "little"))
    width, height = bits.size()
    if bits.take(1) or not bits.take(1):  # all as by default, or no further fields
        return width, height, True
    bits.take(3)  # orientation
    if bits.take(1):  # another size that is meant to be shown
        bits.size()
    has_preview, is_animated = bits.take(1), bits.take(1)
    return width, height, not has_preview and not is_animated


def _codestream(data: bytes) -> Iterator[bytes]:
    """Yield the parts of the codestream, the first of them at least."""
    if data[:2] == b"\xff\x0a":
        yield data[:_JXL_HEADER_NBYTES]
        return
    place = 0
    while place + 8 <= len(data):
        nbytes, kind = struct.unpack_from(">I4s", data, place)
        body = place + 8
        if nbytes == 1 and body + 8 <= len(data):
            nbytes, body = struct.unpack_from(">Q", data, body)[0], body + 8
        end = len(data) if nbytes == 0 else place + nbytes
        if kind in (b"jxlc", b"jxlp"):
            begin = body + (4 if kind == b"jxlp" else 0)
            yield data[begin : min(end, begin + _JXL_HEADER_NBYTES)]
        if end <= place:
            return
        place = end
