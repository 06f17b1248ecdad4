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
        image: [H, W, C] uint8 or uint16.

    Returns:
        Exact integer sums.
    """
    import cv2

    height, width, channels = image.shape
    pixels = height * width
    levels = int(np.iinfo(image.dtype).max)
    if image.dtype != np.uint8 or channels > 4 or pixels >= _EXACT_BELOW:
        return _sum_slowly(image, levels)
    # NOTE [ Integers out of doubles ]
    # cv2 adds 8-bit values and squares exactly and returns mean and deviation as doubles. The sum
    # of squares is below 2**46 here and the few roundings on the way are below 2**-50 of it:
    # rounding gives back the exact integer. 1024 x 1024 RGB: 0.25 ms channel by channel, 0.87 ms
    # interleaved (no vector code for three channels), 15 ms for a NumPy sum over axes.
    sums, squares = [], []
    for plane in cv2.split(np.ascontiguousarray(image)):
        mean, deviation = (float(value[0, 0]) for value in cv2.meanStdDev(plane))
        sums.append(round(mean * pixels))
        squares.append(round((deviation**2 + mean**2) * pixels))
    return ChannelStatistics(pixels=pixels, sums=tuple(sums), squares=tuple(squares), levels=levels)


def _sum_slowly(image: NDArray[Any], levels: int) -> ChannelStatistics:
    """Sum any image in integers, a row at a time: the sums of one row fit 64 bits."""
    height, width, channels = image.shape
    sums, squares = [0] * channels, [0] * channels
    for row in image:
        values = row.astype(np.uint64)  # [W, C]
        for channel, total in enumerate(values.sum(axis=0).tolist()):
            sums[channel] += total
        for channel, total in enumerate((values * values).sum(axis=0).tolist()):
            squares[channel] += total
    return ChannelStatistics(
        pixels=height * width, sums=tuple(sums), squares=tuple(squares), levels=levels
    )
