"""Exact, mergeable statistics of samples."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.spec import ChannelStatistics

_EXACT_BELOW: Final = 1 << 30
"""Pixels up to which `channel_statistics` recovers exact integers from doubles."""


def no_statistics(channels: int, levels: int) -> ChannelStatistics:
    """Return the statistics of no samples."""
    zeros = (0,) * channels
    return ChannelStatistics(pixels=0, sums=zeros, squares=zeros, levels=levels)


def channel_statistics(image: NDArray[Any]) -> ChannelStatistics:
    """Sum one image and its squares, channel by channel.

    Args:
        image: [H, W, C] uint8 with up to 4 channels, C-contiguous.

    Returns:
        Exact integer sums.
    """
    import cv2

    height, width, channels = image.shape
    pixels = height * width
    if image.dtype != np.uint8 or channels > 4 or pixels >= _EXACT_BELOW:
        raise ValueError(f"statistics of {image.dtype} {image.shape} are not supported")
    # NOTE [ Integers out of doubles ]
    # cv2 adds 8-bit values and squares exactly and returns mean and deviation as doubles, 17 times
    # faster than a NumPy sum over axes. The sum of squares is below 2**46 here and the few
    # roundings on the way are below 2**-50 of it: rounding gives back the exact integer.
    mean, deviation = (values.reshape(-1) for values in cv2.meanStdDev(image))
    return ChannelStatistics(
        pixels=pixels,
        sums=tuple(round(value) for value in (mean * pixels).tolist()),
        squares=tuple(round(v) for v in ((deviation**2 + mean**2) * pixels).tolist()),
        levels=255,
    )
