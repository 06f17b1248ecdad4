"""What Pillow decodes: straight samples out of every mode that it has, page by page."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from preprocess.images import tiff_tags
from preprocess.images.deep import deep_tiff_samples
from preprocess.images.finish import LEVELS_16, Stored
from preprocess.images.float_tiff import decode_float_tiff, is_of_floats
from preprocess.images.headers import read_avif_size
from preprocess.images.orientation import read_orientation
from preprocess.images.policy import DecodePolicy, check_pixels
from preprocess.images.profiles import Profiled, ink_to_srgb

if TYPE_CHECKING:
    from PIL import Image

_ALPHA_MODES: Final = frozenset({"LA", "La", "PA", "RGBA", "RGBa"})
_OPAQUE_MODES: Final = frozenset({"1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr"})
_GREY_MODES: Final = frozenset({"1", "L", "LA", "La"})


@contextmanager
def _opened(data: bytes, kind: str) -> Iterator["Image.Image"]:
    from PIL import Image

    with Image.open(io.BytesIO(data), formats=[kind]) as image:
        yield image


def decode_with_pillow(
    data: bytes,
    kind: str,
    policy: DecodePolicy,
    *,
    sample_bits: int = 8,
    upright: bool = True,
) -> Stored:
    """Decode the first frame.

    Args:
        data: The file's bytes.
        kind: Pillow's name of the format.
        policy: What is asked for.
        sample_bits: Bits per sample of a PNG.
        upright: Take the orientation that its metadata asks for.

    Raises:
        ValueError: It holds samples that 16 bits cannot, or deeper ones than Pillow gives.
        Exception: Whatever Pillow raises at damage.
    """
    if kind == "AVIF":  # Pillow refuses large ones without saying why
        check_pixels(*read_avif_size(data), policy.max_pixels)
    with _opened(data, kind) as image:
        check_pixels(image.width, image.height, policy.max_pixels)
        image.load()
        exif, xmp = image.info.get("exif"), image.info.get("xmp")
        stored = _read(image, policy, sample_bits)
    return replace(stored, orientation=read_orientation(exif, xmp) if upright else 1)


def decode_tiff(data: bytes, policy: DecodePolicy) -> Iterator[tuple[int, Stored]]:
    """Decode the pages of a TIFF that are asked for: (number, upright samples).

    Raises:
        ValueError: As `decode_with_pillow`.
        Exception: Whatever Pillow raises at damage.
    """
    if is_of_floats(data):
        yield from decode_float_tiff(data, policy)
        return
    with _opened(data, "TIFF") as image:
        for number in range(1) if policy.pages == "first" else count():
            try:
                image.seek(number)
            except EOFError:
                return
            tags = _tags(image)
            if number and int(tags.get(tiff_tags.SUBFILE, 0)) & tiff_tags.OF_ANOTHER_PAGE:
                continue
            check_pixels(image.width, image.height, policy.max_pixels)
            orientation = int(tags.get(tiff_tags.ORIENTATION, 1))
            tiles = image.tile  # type: ignore[attr-defined]  # ImageFile alone has it
            is_plain = all(tile[0] == "raw" for tile in tiles)
            image.load()  # turns it upright by itself
            stored = _read(image, policy, 8)
            _check_tiff(image, stored.samples, is_plain=is_plain)
            if _is_deep(image) and stored.samples.dtype == np.uint8:
                multiplied = tags.get(tiff_tags.EXTRA, ())[:1] == (1,)
                deep = deep_tiff_samples(
                    data, number, stored.samples, orientation, multiplied=multiplied
                )
                if deep is None and policy.depth == 16:
                    raise ValueError(
                        "its 16-bit samples are laid out as no decoder here reads them whole; "
                        "--depth 8 takes their upper bytes"
                    )
                if deep is not None:
                    stored = replace(stored, samples=deep)
            yield number, replace(stored, turned=2 <= orientation <= 8)


def _check_tiff(image: "Image.Image", samples: NDArray[Any], *, is_plain: bool) -> None:
    """Refuse what Pillow takes for something else.

    Args:
        image: The page, loaded.
        samples: Of it.
        is_plain: Pillow itself has read it, not libtiff.

    Raises:
        ValueError: Samples are negative, which it takes for large ones; or of 16 bits in planes,
            which it takes for 8.
    """
    tags = _tags(image)
    cut = _is_deep(image) and samples.dtype == np.uint8
    if is_plain and cut and tags.get(tiff_tags.PLANES) == 2:
        raise ValueError(
            "its 16-bit samples lie uncompressed in a plane a colour, which no decoder here reads; "
            "convert it to another layout"
        )
    if 2 in tags.get(tiff_tags.FORMAT, ()) and samples.dtype == np.uint8 and samples.max() > 127:
        raise ValueError("its samples are signed, and some of them are negative")


def _tags(image: "Image.Image") -> Any:
    return image.tag_v2  # type: ignore[attr-defined]  # TiffImageFile alone has it


def _is_deep(image: "Image.Image") -> bool:
    return bool(max(_tags(image).get(tiff_tags.BITS, (1,))) > 8)


def _read(image: "Image.Image", policy: DecodePolicy, sample_bits: int) -> Stored:
    """Take the samples of a loaded image, whatever its mode."""
    icc = _profile(image)
    profiled: Profiled = "none"
    if image.mode.startswith("I;16"):
        deep, peak = _grey16(image)
        return Stored(samples=deep, peak=peak, icc=icc, grey=True)
    if image.mode == "CMYK":
        samples, profiled = ink_to_srgb(image, icc if policy.icc == "srgb" else b"")
        icc = b""
    elif image.mode in _OPAQUE_MODES or image.mode in _ALPHA_MODES:
        samples = _straight(image, sample_bits)
    else:
        kinds = {"I": "16-bit signed or 32-bit integer", "F": "floating-point"}
        raise ValueError(f"{kinds.get(image.mode, image.mode)} samples are not supported")
    return Stored(samples=samples, icc=icc, grey=image.mode in _GREY_MODES, profiled=profiled)


def _profile(image: "Image.Image") -> bytes:
    """Return the colour profile of the page: Pillow's info still holds that of an earlier one."""
    found = image.info.get("icc_profile")
    if image.format == "TIFF":
        found = _tags(image).get(tiff_tags.ICC)
    return cast("bytes", found or b"")


def _straight(image: "Image.Image", sample_bits: int) -> NDArray[np.uint8]:
    transparent = image.info.get("transparency")
    if image.mode == "RGB" and sample_bits == 16:
        transparent = None  # of 16 bits: see deep.deep_png_samples
    if transparent is None and image.mode not in _ALPHA_MODES:
        return np.array(image.convert("RGB"))
    if image.mode == "1" and isinstance(transparent, int):
        image = image.convert("L")
        image.info["transparency"] = 255 if transparent else 0
    elif image.mode == "L" and isinstance(transparent, int) and sample_bits < 8:
        # Pillow widens 2 and 4-bit grey to 8 bits but not the grey that means transparent.
        image.info["transparency"] = transparent * 255 // (2**sample_bits - 1)
    elif image.mode == "La":
        image = image.convert("LA")
    return np.array(image.convert("RGBA"))


def _grey16(image: "Image.Image") -> tuple[NDArray[np.uint16], int]:
    """Return [H, W, 3], or [H, W, 4] where one value means transparent, and which means 1."""
    peak, inverted = LEVELS_16, False
    if image.format == "TIFF":
        peak = 2 ** int(_tags(image).get(tiff_tags.BITS, (16,))[0]) - 1
        inverted = _tags(image).get(tiff_tags.PHOTOMETRIC) == 0  # Pillow inverts 8 bits and not 16
    values = np.asarray(image).astype(np.uint16)  # [H, W]
    grey = peak - values.clip(max=peak) if inverted else values
    planes = [grey, grey, grey]
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        planes.append(np.where(values == transparent, 0, peak).astype(np.uint16))
    return np.dstack(planes), peak
