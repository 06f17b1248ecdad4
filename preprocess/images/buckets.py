"""Aspect-ratio buckets: shapes of about as many pixels, and the one that suits a picture best."""

from bisect import bisect_left
from functools import lru_cache
from typing import Final

BUCKET: Final = "bucket"
"""The fit that stores each picture in the shape of its bucket."""

STEP: Final = 64
"""Sides are multiples of it, as latent diffusion models want them."""

RATIO: Final = 2.0
"""The longer side of a bucket is at most so many times the shorter."""


@lru_cache(maxsize=64)
def bucket_shapes(side: int, step: int, ratio: float) -> tuple[tuple[int, int], ...]:
    """Return the shapes of the buckets of a size.

    For each width the largest height with which it has no more pixels than the square, and each
    such shape turned: a batch of any bucket takes no more memory than one of squares.

    Args:
        side: Of the square, a multiple of `step`.
        step: Sides are multiples of it.
        ratio: Most times that the longer side is as long as the shorter, at least 1.

    Returns:
        (width, height) of each, from the tallest to the widest.

    Source:
        NovelAI, "Aspect Ratio Bucketing", 2022; kohya-ss/sd-scripts, `make_bucket_resolutions`.
    """
    shapes = set()
    for short in range(step, side + 1, step):
        long = side * side // short // step * step
        if long <= short * ratio:
            shapes |= {(short, long), (long, short)}
    return tuple(sorted(shapes, key=lambda shape: shape[0] / shape[1]))


def nearest_bucket(shapes: tuple[tuple[int, int], ...], width: int, height: int) -> tuple[int, int]:
    """Return the shape whose width / height is nearest to a picture's by its logarithm.

    Worked out in integers, so alike everywhere; half-way between two the taller one is taken.

    Args:
        shapes: As `bucket_shapes` gives them.
        width: Of the upright picture, in pixels.
        height: Likewise.
    """

    def suits(number: int) -> bool:  # up to the geometric mean of this ratio and the next
        tall, wide = shapes[number], shapes[number + 1]
        return width * width * tall[1] * wide[1] <= height * height * tall[0] * wide[0]

    return shapes[bisect_left(range(len(shapes) - 1), True, key=suits)]  # noqa: FBT003
