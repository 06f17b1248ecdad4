"""Pixels to the sizes that are stored: which part of the picture, and how it is scaled."""

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from preprocess.images.antialias import resize_antialiased

Fit = Literal["crop", "pad", "stretch", "shortest", "longest"]
Resample = Literal["bicubic", "bilinear", "lanczos", "box", "hamming"]
"""Filters; every one widens with the reduction, so nothing is aliased."""
Box = tuple[int, int, int, int]
"""(left, top, right, bottom) in pixels, right and bottom exclusive."""

VARIABLE_FITS: Final = frozenset({"shortest", "longest"})
"""Fits whose results differ in size."""

MAX_SIDE: Final = 16384
"""Pixels of a stored side: beyond any model's input."""

FILTERS: tuple[Resample, ...] = get_args(Resample)
FITS: tuple[Fit, ...] = get_args(Fit)


class Placement(NamedTuple):
    """Which part of a picture goes where.

    Attributes:
        source: The box of the picture that is used.
        target: The box of the result that it fills.
        size: (width, height) of the result.
    """

    source: Box
    target: Box
    size: tuple[int, int]


def fit_geometry(
    width: int, height: int, size: tuple[int, int], fit: Fit, *, upscale: bool = True
) -> Placement:
    """Say which part of a picture goes where.

    Args:
        width: Of the picture, in pixels.
        height: Of the picture, in pixels.
        size: (width, height) of the result, in pixels.
        fit: "crop" takes the largest centred box of the target's aspect ratio, "pad" the whole
            picture scaled to fit inside and centred, "stretch" the whole picture over all of it;
            "shortest" scales the whole picture until its shorter side has the width of the size,
            "longest" its longer side, and the result has just that size.
        upscale: Enlarge where need be. Else "pad", "shortest" and "longest" keep a picture that is
            smaller, and the others, which cannot, refuse it.

    Raises:
        ValueError: A side is less than 1 or the result's more than `MAX_SIDE`, `fit` is unknown, or
            the picture is too small to be filled with.
    """
    if min(width, height, *size) < 1:
        raise ValueError(f"sides must be at least 1: {width} x {height} to {size[0]} x {size[1]}")
    if fit not in FITS:
        raise ValueError(f"fit is {fit!r}, must be one of {', '.join(FITS)}")
    if fit in VARIABLE_FITS:
        return _keep_shape(width, height, size[0], fit, upscale=upscale)
    source, target = (width, height), size
    wider = width * size[1] >= height * size[0]  # than the target, or of the same aspect ratio
    if fit == "crop":
        if wider:
            source = (_scaled(height, size[0], size[1]), height)
        else:
            source = (width, _scaled(width, size[1], size[0]))
    elif fit == "pad":
        if wider:
            target = (size[0], _scaled(size[0], height, width))
        else:
            target = (_scaled(size[1], width, height), size[1])
        if not upscale and (target[0] > width or target[1] > height):
            target = (width, height)
    if not upscale and (target[0] > source[0] or target[1] > source[1]):
        raise ValueError(
            f"{width} x {height} is too small to fill {size[0]} x {size[1]}, and nothing is to be "
            "enlarged"
        )
    return Placement(_centred((width, height), source), _centred(size, target), size)


def _keep_shape(width: int, height: int, side: int, fit: Fit, *, upscale: bool) -> Placement:
    """Scale a whole picture until its shorter or longer side has a length."""
    now = min(width, height) if fit == "shortest" else max(width, height)
    wanted = side if upscale else min(side, now)
    size = (_scaled(width, wanted, now), _scaled(height, wanted, now))
    if max(size) > MAX_SIDE:
        raise ValueError(
            f"{width} x {height} becomes {size[0]} x {size[1]}: a side of more than {MAX_SIDE}"
        )
    return Placement((0, 0, width, height), (0, 0, *size), size)


def fit_image(
    image: NDArray[np.uint8],
    *,
    size: tuple[int, int],
    fit: Fit = "crop",
    resample: Resample = "bicubic",
    background: tuple[int, int, int] = (255, 255, 255),
) -> NDArray[np.uint8]:
    """Bring one picture to one size; the case of one size of `fit_sizes`.

    Args:
        image: [H, W, C] uint8, C of 1 or 3.
        size: (width, height) of the result.
        fit: See `fit_geometry`.
        resample: One of `FILTERS`.
        background: RGB in 0..255 around a padded picture; its luma if C is 1.

    Returns:
        [height, width, C] uint8, C-contiguous; the very pixels if nothing needs scaling.

    Raises:
        ValueError: A side is less than 1, or `fit` or `resample` is unknown.
    """
    return fit_sizes(image, [size], fit=fit, resample=resample, background=background)[0]


def fit_sizes(
    image: NDArray[Any],
    sizes: Sequence[tuple[int, int]],
    *,
    fit: Fit = "crop",
    resample: Resample = "bicubic",
    background: tuple[int, int, int] = (255, 255, 255),
    grayscale: bool = False,
    upscale: bool = True,
) -> list[NDArray[Any]]:
    """Bring one picture to several sizes; what they have in common is cut out once.

    Args:
        image: [H, W, C] uint8 or uint16, C of 1, 3 or 4.
        sizes: (width, height) of every result.
        fit: See `fit_geometry`.
        resample: One of `FILTERS`.
        background: RGB in 0..255 around a padded picture; its luma if C is 1 or `grayscale`.
        grayscale: Convert to luma, after cutting out and before scaling.
        upscale: See `fit_geometry`.

    Returns:
        One [height, width, C] of the image's type per size, C-contiguous, never a view of `image`.

    Raises:
        ValueError: As `fit_geometry`, or `resample` is unknown.
    """
    if resample not in FILTERS:
        raise ValueError(f"resample is {resample!r}, must be one of {', '.join(FILTERS)}")
    height, width = image.shape[:2]
    parts: dict[Box, NDArray[Any]] = {}
    results = []
    for wanted in sizes:
        source, target, size = fit_geometry(width, height, wanted, fit, upscale=upscale)
        if source not in parts:
            left, top, right, bottom = source
            part = image[top:bottom, left:right]
            parts[source] = to_luma(part) if grayscale else np.ascontiguousarray(part)
        left, top, right, bottom = target
        scaled = _scale(parts[source], (right - left, bottom - top), resample)
        if (right - left, bottom - top) != size:
            canvas = np.empty((size[1], size[0], scaled.shape[2]), scaled.dtype)
            canvas[:] = _fill(background, scaled)
            canvas[top:bottom, left:right] = scaled
            scaled = canvas
        results.append(scaled if not np.may_share_memory(scaled, image) else scaled.copy())
    return results


def _fill(background: tuple[int, int, int], like: NDArray[Any]) -> NDArray[Any]:
    """Return what stands around a padded picture: [1, 1, C]; with alpha it is transparent."""
    colour = np.array(background, like.dtype).reshape(1, 1, 3)
    if like.dtype == np.uint16:
        colour = colour * np.uint16(257)
    if like.shape[2] == 1:
        return to_luma(colour)
    return colour if like.shape[2] == 3 else np.dstack((colour, np.zeros((1, 1), like.dtype)))


def to_luma(image: NDArray[Any]) -> NDArray[Any]:
    """Weigh [H, W, 3] uint8 or uint16 RGB to [H, W, 1] luma of that type, C-contiguous.

    Source:
        ITU-R BT.601: 0.299 R + 0.587 G + 0.114 B, in OpenCV's fixed point.
    """
    import cv2

    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), dtype=image.dtype)[:, :, None]


def _scale(part: NDArray[Any], size: tuple[int, int], resample: Resample) -> NDArray[Any]:
    """Scale C-contiguous [H, W, C] to size (width, height)."""
    height, width = part.shape[:2]
    if (width, height) == size:
        return part
    # NOTE [ Two resizers, one law ]
    # Both resize one axis after the other and round to uint8 between, torch several times faster.
    # Pillow's weights have 22 bits, torch's 16: one axis differs by at most 1 level, and so do two
    # that shrink, save for fewer than one value in 10,000, of noise above all, which differs by 2.
    # When bicubic enlarges, weights add the first axis's differences up often enough: Pillow then.
    if part.dtype == np.uint16 or part.shape[2] == 4:
        return _scale_planes(part, size, resample)
    shrinks = size[0] <= width and size[1] <= height
    if resample == "bilinear" or (resample == "bicubic" and shrinks):
        return _scale_with_torch(part, size, resample)
    return _scale_with_pillow(part, size, resample)


def _scale_with_torch(
    part: NDArray[np.uint8], size: tuple[int, int], resample: Resample
) -> NDArray[np.uint8]:
    height, width = part.shape[:2]
    # Bicubic overshoots and uint8 cuts that off between the axes, so their order shows. This is
    # Pillow's order (13.0, found by experiment: 9,000 random shapes without exception).
    sizes = [(size[1], size[0])]
    if size[1] < height and height - size[1] > 2 * (width - size[0]):
        sizes.insert(0, (size[1], width))
    for step in sizes:
        part = resize_antialiased(part, step, resample)
    return part


def _scale_with_pillow(
    part: NDArray[np.uint8], size: tuple[int, int], resample: Resample
) -> NDArray[np.uint8]:
    from PIL import Image

    channels = part.shape[2]
    image = Image.fromarray(part if channels == 3 else part[:, :, 0])
    scaled = image.resize(size, Image.Resampling[resample.upper()])
    return np.array(scaled).reshape(size[1], size[0], channels)


def _scale_planes(part: NDArray[Any], size: tuple[int, int], resample: Resample) -> NDArray[Any]:
    """Scale [H, W, C] of any type plane by plane in floats, colours weighed by their alpha.

    A transparent pixel's hidden colour does not bleed into its neighbours. Rounded once, at the
    end, so within 1 level of what integers would give; where alpha becomes 0 colours are 0.
    """
    peak = int(np.iinfo(part.dtype).max)
    planes = part.astype(np.float32)
    if part.shape[2] == 4:
        planes[:, :, :3] *= planes[:, :, 3:] / peak
    from PIL import Image

    scaled = np.dstack(
        [
            np.asarray(
                Image.fromarray(np.ascontiguousarray(planes[:, :, channel])).resize(
                    size, Image.Resampling[resample.upper()]
                )
            )
            for channel in range(part.shape[2])
        ]
    )  # [height, width, C] float32
    if part.shape[2] == 4:
        alpha = scaled[:, :, 3:].clip(0, peak)
        shown = np.divide(peak, alpha, out=np.zeros_like(alpha), where=alpha >= 0.5)
        scaled[:, :, :3] *= shown
    return np.ascontiguousarray(np.rint(scaled).clip(0, peak).astype(part.dtype))


def _scaled(side: int, numerator: int, denominator: int) -> int:
    """Scale a side by a ratio, rounded half up, at least 1."""
    return max(1, (2 * side * numerator + denominator) // (2 * denominator))


def _centred(outer: tuple[int, int], inner: tuple[int, int]) -> Box:
    left, top = (outer[0] - inner[0]) // 2, (outer[1] - inner[1]) // 2
    return left, top, left + inner[0], top + inner[1]
