"""Colour profiles: embedded ICC profile -> sRGB, by littlecms through Pillow."""

import io
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

Profiled = Literal["none", "srgb", "converted", "unusable"]
"""What became of a profile: there was none or it was not asked for, it is sRGB itself, it was
applied, or it is broken or of another kind of colour than the picture, which is left as it is."""

_MODES: Final = {b"RGB ": "RGB", b"GRAY": "L", b"CMYK": "CMYK"}
"""Colour space in a profile's header -> Pillow's mode. Source: ICC.1 section 7.2.6."""

_SAME: Final = 1
"""Levels by which the sRGB of different vendors move a colour."""


@dataclass(frozen=True, slots=True)
class _Profile:
    """A profile that littlecms has taken.

    Attributes:
        mode: Pillow's mode of the colours that it describes; "" if it is of no use.
        transform: To sRGB; None where that changes nothing.
    """

    mode: str
    transform: Any = None


def to_srgb(samples: NDArray[Any], icc: bytes, *, grey: bool) -> tuple[NDArray[Any], Profiled]:
    """Convert [H, W, 3 or 4] RGB or straight RGBA to sRGB; a fourth channel stays as it is.

    Args:
        samples: The colours as stored; [:, :, :3] are equal where `grey`.
        icc: The embedded profile.
        grey: The picture has grey alone, which a profile of grey describes.

    Returns:
        The colours, the very array if there is nothing to change, and what became of the profile.

    Raises:
        ValueError: Samples of 16 bits would have to change: littlecms takes 8 through Pillow.

    Source:
        ICC.1; perceptual intent, without black point compensation.
    """
    from PIL import Image

    profile = _load(icc)
    if profile.mode not in (("L", "RGB") if grey else ("RGB",)):
        return samples, "unusable"
    if profile.transform is None:
        return samples, "srgb"
    if samples.dtype != np.uint8:
        raise ValueError(
            "its colour profile cannot be applied to 16-bit samples; --depth 8 applies it, "
            "--icc ignore leaves it"
        )
    colours = np.ascontiguousarray(samples[:, :, 0] if profile.mode == "L" else samples[:, :, :3])
    converted = np.array(profile.transform.apply(Image.fromarray(colours)))
    if samples.shape[2] == 4:
        converted = np.dstack((converted, samples[:, :, 3]))
    return converted, "converted"


def ink_to_srgb(image: "Image.Image", icc: bytes) -> tuple[NDArray[np.uint8], Profiled]:
    """Convert a picture of mode CMYK: by its profile, or plainly where that is of no use.

    Source:
        Without a profile: R = (255 - C)(255 - K) / 255.
    """
    profile = _load(icc) if icc else _Profile("")
    if profile.mode == "CMYK" and profile.transform is not None:
        return np.array(profile.transform.apply(image)), "converted"
    return np.array(image.convert("RGB")), "unusable" if icc else "none"


@lru_cache(maxsize=64)
def _load(icc: bytes) -> _Profile:
    """Read a profile once, and look whether it changes anything at all."""
    from PIL import Image, ImageCms

    mode = _MODES.get(icc[16:20], "")
    if not mode:
        return _Profile("")
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(icc))
        target = ImageCms.createProfile("sRGB")
        transform = ImageCms.buildTransform(source, target, mode, "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return _Profile("")
    if mode == "CMYK":
        return _Profile(mode, transform)
    steps = np.arange(0, 256, 15, dtype=np.uint8)  # 18 levels a channel: 5,832 colours
    if mode == "L":
        probe = np.arange(256, dtype=np.uint8)[None]
        plain = np.repeat(probe[:, :, None], 3, axis=2)
    else:
        plain = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(1, -1, 3)
        probe = plain
    moved = np.array(transform.apply(Image.fromarray(np.ascontiguousarray(probe))), np.int16)
    if np.abs(moved - plain).max() <= _SAME:
        return _Profile(mode)
    return _Profile(mode, transform)
