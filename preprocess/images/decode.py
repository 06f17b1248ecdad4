"""One encoded image to upright pixels, or the reason why not.

Pure: bytes in, array out. Each format goes to the fastest decoder that refuses damage, chosen by
its header and never by trying: what one decoder refuses is not given to a laxer one.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from preprocess.errors import SampleError
from preprocess.images.bmp import with_read_palette
from preprocess.images.deep import deep_jpeg2000_samples, deep_png_samples
from preprocess.images.finish import Picture, Stored, finish
from preprocess.images.formats import explain_refusal, sniff_format
from preprocess.images.headers import (
    is_deep_avif,
    jpeg2000_bits,
    read_png_header,
    read_webp_header,
)
from preprocess.images.jpeg_header import JpegHeader, read_jpeg_header
from preprocess.images.orientation import read_orientation
from preprocess.images.packages import decode_heic, decode_jxl
from preprocess.images.pillow_decode import decode_tiff, decode_with_pillow
from preprocess.images.policy import DecodePolicy, check_pixels
from preprocess.images.profiles import Profiled, ink_to_srgb, to_srgb

__all__ = ["decode_image", "decode_pictures"]

# Huffman and arithmetic coding, sequential and progressive. The others: lossless, hierarchical.
_MAX_SCANS: Final = 500
"""Of a JPEG: encoders make at most some tens, and each goes through all of the picture."""

_JPEG_PROCESSES = frozenset({0xC0, 0xC1, 0xC2, 0xC9, 0xCA})
# Sampling factors of the first component -> of all others: what TurboJPEG's interface has names
# for. Beside these all may be equal, with three blocks at most.
_TURBO_SAMPLINGS: Final[Mapping[tuple[int, int], frozenset[tuple[int, int]]]] = {
    (2, 1): frozenset({(1, 1)}),
    (1, 2): frozenset({(1, 1)}),
    (2, 2): frozenset({(1, 1), (1, 2), (2, 1)}),
    (4, 1): frozenset({(1, 1)}),
}
_MAX_CAUSE_LENGTH: Final = 200
_DEFAULT: Final = DecodePolicy()


def decode_image(data: bytes, *, key: str, policy: DecodePolicy = _DEFAULT) -> NDArray[Any]:
    """Decode one encoded image, upright: its first frame or page.

    Args:
        data: The file's bytes, in one of `formats.DECODED_FORMATS` by content.
        key: Names the sample in errors.
        policy: What becomes of profiles, transparency, deep samples and large sizes.

    Returns:
        [H, W, 3] RGB, or [H, W, 4] RGBA where alpha is kept, uint8 in 0..255 or uint16 in 0..65535
        as the policy's depth says; C-contiguous, writable.

    Raises:
        SampleError: As `decode_pictures`.
    """
    return next(decode_pictures(data, key=key, policy=policy)).pixels


def decode_pictures(data: bytes, *, key: str, policy: DecodePolicy = _DEFAULT) -> Iterator[Picture]:
    """Decode the pages of an encoded image that are asked for: one, but for a TIFF of several.

    Args:
        data: The file's bytes, in one of `formats.DECODED_FORMATS` by content.
        key: Names the sample in errors.
        policy: What becomes of profiles, transparency, deep samples, pages and large sizes.

    Raises:
        SampleError: The bytes are no image, cannot be decoded whole, hold what no policy brings to
            pixels (32-bit integers, Lab, floats beyond 0 and 1, or where no depth is chosen), or
            are too many pixels.
    """
    kind = sniff_format(data)
    decoders = {"JPEG": _decode_jpeg, "PNG": _decode_png, "WEBP": _decode_webp}
    decoders |= {"AVIF": _decode_avif, "JPEG2000": _decode_jpeg2000}
    decoders |= {"BMP": _decode_bmp, "GIF": _decode_gif}
    decoders |= {"HEIC": decode_heic, "JPEG XL": _decode_jxl}
    if kind is None or (kind != "TIFF" and kind not in decoders):
        raise SampleError(key, explain_refusal(data))
    try:
        if kind == "TIFF":
            for number, stored in decode_tiff(data, policy):
                yield finish(stored, policy, number)
        else:
            yield finish(decoders[kind](data, policy), policy)
    except MemoryError as error:
        raise SampleError(key, f"cannot decode this {kind}: not enough memory") from error
    except Exception as error:  # decoders raise anything; one bad item is one error
        raise SampleError(key, f"cannot decode this {kind}: {_cause(error)}") from error


def _decode_jpeg(data: bytes, policy: DecodePolicy) -> Stored:
    import simplejpeg

    header = read_jpeg_header(data)
    _check_jpeg(header, policy)
    whole = header.clean or data
    regular = _is_regular(header.sampling)
    orientation = read_orientation(header.exif, header.xmp)
    profiled: Profiled = "none"
    icc = header.icc
    if len(header.sampling) == 4:
        image, profiled = _decode_ink(whole, icc, policy, regular=regular)
        icc = b""
    elif regular:
        image = simplejpeg.decode_jpeg(whole, "RGB", strict=True)
    else:
        image = decode_with_pillow(whole, "JPEG", policy, upright=False).samples
    if _is_xyb(icc):
        image, profiled = to_srgb(image, icc if policy.icc == "srgb" else b"", grey=False)
        if profiled != "converted":
            raise ValueError("its values are XYB, which mean nothing without its colour profile")
        icc = b""
    return Stored(
        samples=image,
        icc=icc,
        grey=len(header.sampling) == 1,
        orientation=orientation,
        profiled=profiled,
    )


def _is_regular(sampling: tuple[tuple[int, int], ...]) -> bool:
    """Say whether the strict decoder knows these sampling factors."""
    first, *others = sampling
    if len(sampling) == 4 and others.pop() != first:  # black has the size of the first ink
        return False
    ways = set(others)
    if ways == {first}:
        return first[0] * first[1] <= 3
    return not ways or (len(ways) == 1 and ways <= _TURBO_SAMPLINGS.get(first, frozenset()))


def _decode_ink(
    data: bytes, icc: bytes, policy: DecodePolicy, *, regular: bool
) -> tuple[NDArray[Any], Profiled]:
    """Decode a JPEG of four inks."""
    import simplejpeg
    from PIL import Image

    if not regular:
        stored = decode_with_pillow(data, "JPEG", policy, upright=False)
        return stored.samples, stored.profiled
    inks = simplejpeg.decode_jpeg(data, "CMYK", strict=True)
    # Adobe stores 255 - ink; decoders take that for granted, marked or not.
    height, width = inks.shape[:2]
    image = Image.frombuffer("CMYK", (width, height), inks, "raw", "CMYK;I", 0, 1)
    return ink_to_srgb(image, icc if policy.icc == "srgb" else b"")


def _check_jpeg(header: JpegHeader, policy: DecodePolicy) -> None:
    check_pixels(header.width, header.height, policy.max_pixels)
    if header.precision != 8:
        raise ValueError(f"samples of {header.precision} bits are not supported in JPEG")
    if header.process not in _JPEG_PROCESSES:
        name = {0xC3: "lossless", 0xCB: "lossless", 0xF7: "JPEG-LS"}.get(header.process)
        raise ValueError(f"{name or 'hierarchical'} JPEG is not supported")
    if len(header.sampling) not in (1, 3, 4):
        raise ValueError(f"{len(header.sampling)} components instead of 1, 3 or 4")
    if header.scans > _MAX_SCANS:
        raise ValueError(
            f"{header.scans:,} scans, more than {_MAX_SCANS}, and than any encoder makes"
        )


def _is_xyb(icc: bytes) -> bool:
    # Source: ICC.1 section 7.3 (tag table). Only the description: a big table may hold any bytes.
    count = int.from_bytes(icc[128:132], "big")
    for entry in range(132, min(132 + 12 * count, len(icc) - 11), 12):
        tag, start, nbytes = struct.unpack_from(">4sII", icc, entry)
        if tag == b"desc":
            text = icc[start : start + nbytes]
            return b"XYB" in text or "XYB".encode("utf-16-be") in text
    return False


def _decode_png(data: bytes, policy: DecodePolicy) -> Stored:
    header = read_png_header(data)
    check_pixels(header.width, header.height, policy.max_pixels)
    stored = decode_with_pillow(header.bare, "PNG", policy, sample_bits=header.depth)
    samples = stored.samples
    if header.depth == 16 and samples.dtype == np.uint8:
        samples = deep_png_samples(header.bare, samples)
    return Stored(
        samples=samples,
        icc=header.icc,
        grey=header.grey,
        orientation=read_orientation(header.exif, header.xmp),
    )


def _decode_webp(data: bytes, policy: DecodePolicy) -> Stored:
    import cv2

    header = read_webp_header(data)
    check_pixels(header.width, header.height, policy.max_pixels)
    if header.plain:  # both use libwebp: equal pixels, and OpenCV takes half of Pillow's time
        flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
        image: Any = cv2.imdecode(np.frombuffer(header.plain, np.uint8), flags)
        if image is None:
            raise ValueError("its pixels are damaged")
        samples = np.asarray(image, dtype=np.uint8)
    else:
        samples = decode_with_pillow(data, "WEBP", policy, upright=False).samples
    return Stored(
        samples=samples, icc=header.icc, orientation=read_orientation(header.exif, header.xmp)
    )


def _decode_avif(data: bytes, policy: DecodePolicy) -> Stored:
    if policy.depth == 16 and is_deep_avif(data):
        raise ValueError("the bits of AVIF beyond 8 do not come through here: --depth 8 takes 8")
    return decode_with_pillow(data, "AVIF", policy)


def _decode_jpeg2000(data: bytes, policy: DecodePolicy) -> Stored:
    bits = max(jpeg2000_bits(data), default=8)
    if bits > 16:
        raise ValueError(f"samples of {bits} bits are not supported in JPEG 2000")
    stored = decode_with_pillow(data, "JPEG2000", policy)
    if stored.samples.dtype == np.uint16:  # grey, of which Pillow moves the first bit to the left
        return replace(stored, peak=(2**bits - 1) << (16 - bits))
    if bits > 8:
        samples = deep_jpeg2000_samples(data, bits, stored.samples)
        return replace(stored, samples=samples, peak=2**bits - 1)
    return stored


def _decode_jxl(data: bytes, policy: DecodePolicy) -> Stored:
    decoded = decode_jxl(data, policy)
    return decoded if isinstance(decoded, Stored) else _decode_jpeg(decoded, policy)


def _decode_bmp(data: bytes, policy: DecodePolicy) -> Stored:
    return decode_with_pillow(with_read_palette(data), "BMP", policy)


def _decode_gif(data: bytes, policy: DecodePolicy) -> Stored:
    return decode_with_pillow(data, "GIF", policy)


def _cause(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "its header is damaged or of a kind that Pillow does not read"
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:_MAX_CAUSE_LENGTH]
