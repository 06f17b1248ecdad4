"""One encoded image to upright RGB pixels, or the reason why not.

Pure: bytes in, array out. Each format goes to the fastest decoder that refuses damage, chosen by
its header and never by trying: what one decoder refuses is not given to a laxer one.
"""

import io
import struct
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from preprocess.errors import SampleError
from preprocess.images.formats import DECODED_FORMATS, explain_refusal, sniff_format
from preprocess.images.headers import read_avif_size, read_png_header, read_webp_header
from preprocess.images.jpeg_header import JpegHeader, read_jpeg_header
from preprocess.images.orientation import read_orientation, turn_upright

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["MAX_PIXELS", "decode_image", "sniff_format"]

MAX_PIXELS = 178_956_970
"""Pixels beyond which a header is taken for a decompression bomb: where Pillow raises by default
(twice its warning limit of 1 GiB / 4 / 3): 512 MiB of RGB."""

# Huffman and arithmetic coding, sequential and progressive. The others: lossless, hierarchical.
_JPEG_PROCESSES = frozenset({0xC0, 0xC1, 0xC2, 0xC9, 0xCA})
# First component's sampling factors, all others (1, 1): what TurboJPEG's interface has names for.
_TURBO_SAMPLINGS = frozenset({(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)})
_ALPHA_MODES = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
_OPAQUE_MODES = frozenset({"1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr"})
_MAX_CAUSE_LENGTH = 200


def decode_image(
    data: bytes,
    *,
    key: str,
    background: tuple[int, int, int] = (255, 255, 255),
    max_pixels: int = MAX_PIXELS,
) -> NDArray[np.uint8]:
    """Decode one encoded image, upright, first frame.

    16-bit grey is scaled by 1/257 and rounded, other 16-bit samples keep their upper byte. CMYK is
    converted plainly; colour profiles are ignored.

    Args:
        data: The file's bytes, in one of `formats.DECODED_FORMATS` by content.
        key: Names the sample in errors.
        background: RGB in 0..255 that shows where the picture is transparent.
        max_pixels: Width times height beyond which nothing is decoded.

    Returns:
        [H, W, 3] uint8 RGB in 0..255, C-contiguous, writable.

    Raises:
        SampleError: The bytes are no image, cannot be decoded whole, hold what 8-bit RGB cannot
            (32-bit samples, Lab), or are too many pixels.

    Source:
        Alpha compositing: Porter and Duff 1984, "over". CMYK: R = (255 - C)(255 - K) / 255.
    """
    kind = sniff_format(data)
    if kind not in DECODED_FORMATS:
        raise SampleError(key, explain_refusal(data))
    try:
        if kind == "JPEG":
            return _decode_jpeg(data, background, max_pixels)
        if kind == "PNG":
            return _decode_png(data, background, max_pixels)
        if kind == "WEBP":
            return _decode_webp(data, background, max_pixels)
        return _decode_with_pillow(data, kind, background, max_pixels)
    except MemoryError as error:
        raise SampleError(key, f"cannot decode this {kind}: not enough memory") from error
    except Exception as error:  # decoders raise anything; one bad item is one error
        raise SampleError(key, f"cannot decode this {kind}: {_cause(error)}") from error


def _decode_jpeg(
    data: bytes, background: tuple[int, int, int], max_pixels: int
) -> NDArray[np.uint8]:
    import simplejpeg

    header = read_jpeg_header(data)
    _check_jpeg(header, max_pixels)
    whole = header.clean or data
    first, *others = header.sampling
    if len(header.sampling) == 4:
        others.pop() if others[-1] == first else others.append((0, 0))
    regular = not others or (first in _TURBO_SAMPLINGS and set(others) == {(1, 1)})
    orientation = read_orientation(header.exif, header.xmp)
    if not regular:
        image = _decode_with_pillow(whole, "JPEG", background, max_pixels, upright=False)
    elif len(header.sampling) == 4:
        image = _cmyk_to_rgb(simplejpeg.decode_jpeg(whole, "CMYK", strict=True))
    else:
        image = simplejpeg.decode_jpeg(whole, "RGB", strict=True)
    return turn_upright(image, orientation)


def _check_jpeg(header: JpegHeader, max_pixels: int) -> None:
    _check_pixels(header.width, header.height, max_pixels)
    if header.precision != 8:
        raise ValueError(f"samples of {header.precision} bits are not supported in JPEG")
    if header.process not in _JPEG_PROCESSES:
        name = {0xC3: "lossless", 0xCB: "lossless", 0xF7: "JPEG-LS"}.get(header.process)
        raise ValueError(f"{name or 'hierarchical'} JPEG is not supported")
    if len(header.sampling) not in (1, 3, 4):
        raise ValueError(f"{len(header.sampling)} components instead of 1, 3 or 4")
    if _is_xyb(header.icc):
        raise ValueError("its values are XYB, which mean nothing without its colour profile")


def _is_xyb(icc: bytes) -> bool:
    # Source: ICC.1 section 7.3 (tag table). Only the description: a big table may hold any bytes.
    count = int.from_bytes(icc[128:132], "big")
    for entry in range(132, min(132 + 12 * count, len(icc) - 11), 12):
        tag, start, nbytes = struct.unpack_from(">4sII", icc, entry)
        if tag == b"desc":
            text = icc[start : start + nbytes]
            return b"XYB" in text or "XYB".encode("utf-16-be") in text
    return False


def _cmyk_to_rgb(stored: NDArray[np.uint8]) -> NDArray[np.uint8]:
    from PIL import Image

    # Adobe stores 255 - ink; decoders take that for granted, marked or not.
    height, width = stored.shape[:2]
    ink = Image.frombuffer("CMYK", (width, height), stored, "raw", "CMYK;I", 0, 1)
    return np.array(ink.convert("RGB"))


def _decode_png(
    data: bytes, background: tuple[int, int, int], max_pixels: int
) -> NDArray[np.uint8]:
    header = read_png_header(data)
    _check_pixels(header.width, header.height, max_pixels)
    image = _decode_with_pillow(header.bare, "PNG", background, max_pixels, depth=header.depth)
    if header.keyed16:
        image[_transparent16(header.bare)] = background
    return turn_upright(image, read_orientation(header.exif, header.xmp))


def _transparent16(png: bytes) -> NDArray[np.bool_]:
    """Find the transparent pixels of a 16-bit RGB PNG with a tRNS colour: [H, W].

    Pillow keeps the upper bytes alone, of which other colours may have the same.
    """
    import cv2

    samples = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED)
    if samples is None or samples.dtype != np.uint16 or samples.shape[2:] != (4,):
        raise ValueError("its transparent colour cannot be told")
    return np.asarray(samples[:, :, 3] == 0)


def _decode_webp(
    data: bytes, background: tuple[int, int, int], max_pixels: int
) -> NDArray[np.uint8]:
    import cv2

    header = read_webp_header(data)
    _check_pixels(header.width, header.height, max_pixels)
    if header.plain:  # both use libwebp: equal pixels, and OpenCV takes half of Pillow's time
        flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
        image = cv2.imdecode(np.frombuffer(header.plain, np.uint8), flags)
        if image is None:
            raise ValueError("its pixels are damaged")
        upright = np.asarray(image, dtype=np.uint8)
    else:
        upright = _decode_with_pillow(data, "WEBP", background, max_pixels, upright=False)
    return turn_upright(upright, read_orientation(header.exif, header.xmp))


def _decode_with_pillow(
    data: bytes,
    kind: str,
    background: tuple[int, int, int],
    max_pixels: int,
    *,
    depth: int = 8,
    upright: bool = True,
) -> NDArray[np.uint8]:
    from PIL import Image

    if kind == "AVIF":  # Pillow refuses large ones without saying why
        _check_pixels(*read_avif_size(data), max_pixels)
    with Image.open(io.BytesIO(data), formats=[kind]) as image:
        _check_pixels(image.width, image.height, max_pixels)
        image.load()  # turns a TIFF upright by itself
        exif, xmp = image.info.get("exif"), image.info.get("xmp")
        if image.mode.startswith("I;16"):
            pixels = _grey16_to_rgb(image, background)
        elif image.mode in _OPAQUE_MODES or image.mode in _ALPHA_MODES:
            pixels = _to_rgb(image, depth, background)
        else:
            kinds = {"I": "16-bit signed or 32-bit integer", "F": "floating-point"}
            raise ValueError(f"{kinds.get(image.mode, image.mode)} samples are not supported")
    if not upright or kind == "TIFF":
        return pixels
    return turn_upright(pixels, read_orientation(exif, xmp))


def _to_rgb(
    image: "Image.Image", depth: int, background: tuple[int, int, int]
) -> NDArray[np.uint8]:
    from PIL import Image

    transparent = image.info.get("transparency")
    if image.mode == "RGB" and depth == 16:
        transparent = None  # see _transparent16
    if transparent is None and image.mode not in _ALPHA_MODES:
        return np.array(image.convert("RGB"))
    if image.mode == "1" and isinstance(transparent, int):
        image = image.convert("L")
        image.info["transparency"] = 255 if transparent else 0
    elif image.mode == "L" and isinstance(transparent, int) and depth < 8:
        # Pillow widens 2 and 4-bit grey to 8 bits but not the grey that means transparent.
        image.info["transparency"] = transparent * 255 // (2**depth - 1)
    elif image.mode == "La":
        image = image.convert("LA")
    canvas = Image.new("RGBA", image.size, (*background, 255))
    return np.array(Image.alpha_composite(canvas, image.convert("RGBA")).convert("RGB"))


def _grey16_to_rgb(image: "Image.Image", background: tuple[int, int, int]) -> NDArray[np.uint8]:
    peak, inverted = 65535, False
    if (
        image.format == "TIFF"
    ):  # Source: TIFF 6.0, BitsPerSample (258), PhotometricInterpretation (262)
        tags = image.tag_v2  # type: ignore[attr-defined]  # TiffImageFile alone has it
        peak = 2 ** int(tags.get(258, (16,))[0]) - 1
        inverted = tags.get(262) == 0  # white is zero; Pillow inverts 8 bits and not 16
    values = np.arange(65536).clip(max=peak)
    table = ((values * 255 + peak // 2) // peak).astype(np.uint8)
    grey = (255 - table if inverted else table)[np.asarray(image)]  # [H, W]
    pixels = np.repeat(grey[:, :, None], 3, axis=2)  # [H, W, 3]
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        pixels[np.asarray(image) == transparent] = background
    return pixels


def _check_pixels(width: int, height: int, max_pixels: int) -> None:
    if width < 1 or height < 1:
        raise ValueError(f"its header says {width} x {height} pixels")
    if width * height > max_pixels:
        raise ValueError(
            f"{width} x {height} is {width * height} pixels, more than max_pixels = {max_pixels}"
        )


def _cause(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "its header is damaged or of a kind that Pillow does not read"
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:_MAX_CAUSE_LENGTH]
