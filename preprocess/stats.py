"""Exact, mergeable statistics of samples."""

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.statistics import ChannelStatistics

_BLOCK_PIXELS: Final = 1 << 17
"""Pixels that are summed at a time: 384 KiB of RGB."""

_MAX_CHANNELS: Final = 4
"""Channels that cv2 adds at a time."""


def merge_tallies(
    tallies: dict[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
) -> None:
    """Add rows of counts to those of the same name, place by place."""
    for name, row in found.items():
        pairs = zip_longest(tallies.get(name, ()), row, fillvalue=0)
        tallies[name] = tuple(a + b for a, b in pairs)


def no_statistics(channels: int, levels: int) -> ChannelStatistics:
    """Return the statistics of no samples."""
    zeros = (0,) * channels
    return ChannelStatistics(pixels=0, sums=zeros, squares=zeros, levels=levels)


def channel_statistics(image: NDArray[Any]) -> ChannelStatistics:
    """Sum images and their squares, channel by channel.

    Args:
        image: [..., H, W, C] uint8 or uint16.

    Returns:
        Exact integer sums.
    """
    channels = image.shape[-1]
    count = image.size // channels
    levels = int(np.iinfo(image.dtype).max)
    if image.dtype != np.uint8 or channels > _MAX_CHANNELS:
        return _sum_slowly(image, levels)
    import cv2

    # cv2 adds 8-bit values and their squares in integers. It returns doubles, the squares by way
    # of their root; a block's are below 2**34, so that rounding gives the exact integer.
    # 1024 x 1024 RGB: 0.24 ms in blocks that stay in the cache, on planes that are used again;
    # 0.87 ms as cv2.meanStdDev of interleaved channels, 15 ms as a NumPy sum over axes.
    pixels = np.ascontiguousarray(image).reshape(1, -1, channels)  # [1, count, C]
    step = min(count, _BLOCK_PIXELS)
    planes = [np.empty((1, step), np.uint8) for _ in range(channels)]
    sums, squares = [0] * channels, [0] * channels
    for start in range(0, count, step):
        block = pixels[:, start : start + step]
        totals = cv2.sumElems(block)
        views = [plane[:, : block.shape[1]] for plane in planes]
        for channel, plane in enumerate(cv2.split(block, views)):
            sums[channel] += int(totals[channel])
            squares[channel] += round(cv2.norm(plane, cv2.NORM_L2SQR))
    return ChannelStatistics(pixels=count, sums=tuple(sums), squares=tuple(squares), levels=levels)


def _sum_slowly(image: NDArray[Any], levels: int) -> ChannelStatistics:
    """Sum any image in integers, a row at a time: the sums of one row fit 64 bits."""
    channels = image.shape[-1]
    sums, squares = [0] * channels, [0] * channels
    for row in image.reshape(-1, image.shape[-2], channels):
        values = row.astype(np.uint64)  # [W, C]
        for channel, total in enumerate(values.sum(axis=0).tolist()):
            sums[channel] += total
        for channel, total in enumerate((values * values).sum(axis=0).tolist()):
            squares[channel] += total
    return ChannelStatistics(
        pixels=image.size // channels, sums=tuple(sums), squares=tuple(squares), levels=levels
    )
