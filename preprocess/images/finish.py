"""Samples as a file stores them -> the pixels that a policy asks for: colours, depth, alpha."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from preprocess.images.orientation import turn_upright
from preprocess.images.policy import DecodePolicy, Depth
from preprocess.images.profiles import Profiled, to_srgb

LEVELS_16: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a decoder gives.

    Attributes:
        samples: [H, W, 3] RGB or [H, W, 4] RGBA, uint8 or uint16, colours not multiplied by alpha.
        icc: The profile that is still to be applied; empty for none.
        grey: All of it is grey.
        orientation: 1 to 8, still to be applied.
        profiled: What has become of a profile already.
        peak: The sample of 16 bits that stands for 1.
        turned: An orientation has been applied already.
    """

    samples: NDArray[Any]
    icc: bytes = b""
    grey: bool = False
    orientation: int = 1
    profiled: Profiled = "none"
    peak: int = LEVELS_16
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """One decoded picture.

    Attributes:
        pixels: [H, W, C] uint8 or uint16 as the policy's depth says, C-contiguous, writable,
            upright; RGB, or RGBA where alpha is kept.
        profiled: What became of its colour profile.
        page: Its number in the file, from 0.
        turned: It is stored otherwise than upright, and metadata say so.
    """

    pixels: NDArray[Any]
    profiled: Profiled
    page: int = 0
    turned: bool = False


def finish(stored: Stored, policy: DecodePolicy, page: int = 0) -> Picture:
    """Bring stored samples to what the policy asks for.

    Source:
        Alpha compositing: Porter and Duff 1984, "over".
    """
    samples, profiled = stored.samples, stored.profiled
    if samples.dtype == np.uint16:
        samples = _scaled(samples, stored.peak, policy.depth)
    if stored.icc and policy.icc == "srgb":
        samples, profiled = to_srgb(samples, stored.icc, grey=stored.grey)
    if samples.dtype == np.uint8 and policy.depth == 16:
        samples = samples.astype(np.uint16) * np.uint16(257)
    pixels = _with_alpha(samples, policy)
    turned = stored.turned or stored.orientation != 1
    return Picture(turn_upright(pixels, stored.orientation), profiled, page, turned)


def _scaled(samples: NDArray[np.uint16], peak: int, depth: Depth) -> NDArray[Any]:
    """Scale 0..peak to all that the depth can say, rounded to nearest."""
    levels = 255 if depth == 8 else LEVELS_16
    if peak == levels:
        return samples
    values = np.arange(LEVELS_16 + 1).clip(max=peak)
    table = (values * levels + peak // 2) // peak
    return np.asarray(table.astype(np.uint8 if depth == 8 else np.uint16)[samples])


def _with_alpha(samples: NDArray[Any], policy: DecodePolicy) -> NDArray[Any]:
    has_alpha = samples.shape[2] == 4
    if policy.alpha == "keep":
        if has_alpha:
            return np.ascontiguousarray(samples)
        opaque = np.full(samples.shape[:2], np.iinfo(samples.dtype).max, samples.dtype)
        return np.dstack((samples, opaque))
    if not has_alpha:
        return samples
    if policy.alpha == "drop":
        return np.ascontiguousarray(samples[:, :, :3])
    if samples.dtype == np.uint16:
        return _composite_deep(samples, policy.background)
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(samples))
    canvas = Image.new("RGBA", image.size, (*policy.background, 255))
    return np.array(Image.alpha_composite(canvas, image).convert("RGB"))


def _composite_deep(
    samples: NDArray[np.uint16], background: tuple[int, int, int]
) -> NDArray[np.uint16]:
    """Composite [H, W, 4] uint16 over a colour of 8 bits, row by row: [H, W, 3]."""
    result = np.empty((*samples.shape[:2], 3), np.uint16)
    under = np.array(background, np.uint64) * 257
    for row, into in zip(samples, result, strict=True):
        wide = row.astype(np.uint64)
        alpha = wide[:, 3:]
        mixed = wide[:, :3] * alpha + under * (LEVELS_16 - alpha)
        into[:] = (mixed + LEVELS_16 // 2) // LEVELS_16
    return result
