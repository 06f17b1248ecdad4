"""Which part of each image an epoch shows: a pure function of seed, epoch and place in it."""

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.errors import SelectionError

TOP, LEFT, HEIGHT, WIDTH, FLIPPED = range(5)
"""Columns of a box."""

_TRIES: Final = 10
_STEPS: Final = 1024
"""Proportions that a box can have, evenly spaced in their logarithm."""

_LARGEST: Final = 1 << 16
"""Of proportions: wider than any image."""

_ONE: Final = 1 << 16
_MASK: Final = np.uint64(0xFFFFFFFF)
_BITS: Final = np.uint64(32)
_GOLDEN: Final = 0x9E3779B9


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes:
    """Draws a box of an image, and whether it is shown mirrored.

    Attributes:
        size: Height and width that are shown; None shows all of an image.
        scale: Least and greatest share of an image's area, for boxes that are scaled to `size`;
            None cuts boxes of `size` out.
        ratio: Least and greatest width / height of scaled boxes.
        padding: Rows and columns of zeros around an image, that boxes may reach into.
        flip: Probability of being mirrored.
    """

    size: tuple[int, int] | None
    scale: tuple[float, float] | None
    ratio: tuple[float, float]
    padding: int
    flip: float

    def __post_init__(self) -> None:
        wrong = [
            (not _is_size(self.size), "size", self.size, "positive integers, (height, width)"),
            (type(self.padding) is not int or self.padding < 0, "padding", self.padding, ">= 0"),
            (not _is_pair((0, self.flip), 0, 1), "flip", self.flip, "a probability in 0..1"),
            (
                not (_is_pair(self.ratio, 0, _LARGEST) and self.ratio[0] > 0),
                *("ratio", self.ratio, "0 < least <= greatest"),
            ),
        ]
        if self.scale is not None:
            is_share = _is_pair(self.scale, 0, 1) and self.scale[0] > 0
            wrong.append((not is_share, "scale", self.scale, "0 < least <= most <= 1"))
            wrong.append((self.size is None, "scale", self.scale, "a size as well"))
            wrong.append((self.padding > 0, "scale", self.scale, "no padding"))
        for is_wrong, name, value, expected in wrong:
            if is_wrong:
                raise SelectionError(f"{name}={value!r}: expected {expected}")

    def check(self, height: int, width: int) -> None:
        """Refuse images that no box fits into.

        Raises:
            SelectionError: Says so.
        """
        if self.size is None or self.scale is not None:
            return
        for name, wanted, stored in zip(("high", "wide"), self.size, (height, width), strict=True):
            if wanted > stored + 2 * self.padding:
                raise SelectionError(
                    f"augment: size is {wanted} {name}, images are {stored} and {self.padding} of "
                    "padding on each side: give a smaller size, or scale=(0.08, 1.0) to enlarge"
                )

    def draw(
        self, indices: NDArray[np.int64], height: int, width: int, seed: int, epoch: int
    ) -> NDArray[np.int32]:
        """Return the boxes of some samples.

        Args:
            indices: [B] which samples.
            height: Of the images.
            width: Of the images.
            seed: Any integer >= 0.
            epoch: Number of the epoch.

        Returns:
            [B, 5] int32: top, left, height, width, and 1 where mirrored, else 0.
        """
        draws = Draws(indices, seed, epoch)
        found = np.empty((len(indices), 5), np.int32)
        found[:, FLIPPED] = draws.number(0) < np.uint64(round(self.flip * (1 << 32)))
        if self.scale is None:
            tall, wide = (height, width) if self.size is None else self.size
            found[:, HEIGHT], found[:, WIDTH] = tall, wide
            found[:, TOP] = draws.below(1, height + 2 * self.padding - tall + 1)
            found[:, LEFT] = draws.below(2, width + 2 * self.padding - wide + 1)
            found[:, TOP : LEFT + 1] -= self.padding
            return found
        tall_wide = self._scaled(draws, height, width)
        found[:, HEIGHT : WIDTH + 1] = tall_wide
        found[:, TOP] = draws.below(1, height - tall_wide[:, 0] + 1)
        found[:, LEFT] = draws.below(2, width - tall_wide[:, 1] + 1)
        return found

    def _scaled(self, draws: "Draws", height: int, width: int) -> NDArray[np.int64]:
        """Return height and width of boxes, [B, 2]: the first of ten draws that fits.

        Source:
            torchvision, `RandomResizedCrop.get_params`: ten tries, then the largest centred box
            of an allowed proportion; here that is placed at random too.
        """
        low, high = self.scale or (1.0, 1.0)
        ratios = _ratios(self.ratio)
        found = np.zeros((draws.count, 2), np.int64)
        for attempt in range(_TRIES):
            share = low + draws.number(3 + 2 * attempt) * (high - low) / (1 << 32)
            ratio = ratios[draws.below(4 + 2 * attempt, _STEPS)]
            area = np.floor(share * (height * width))
            # Square roots are rounded alike by all processors, as are sums and products.
            tall = np.rint(np.sqrt(area / ratio)).astype(np.int64)
            wide = np.rint(np.sqrt(area * ratio)).astype(np.int64)
            fits = (tall > 0) & (wide > 0) & (tall <= height) & (wide <= width)
            fits &= found[:, 0] == 0
            found[fits] = np.stack([tall, wide], axis=1)[fits]
        least, most = self.ratio
        own = min(max(width / height, least), most)
        whole = (min(height, round(width / own)), min(width, round(height * own)))
        found[found[:, 0] == 0] = max(1, whole[0]), max(1, whole[1])
        return found


def _is_size(value: Any) -> bool:
    if value is None:
        return True
    sides = value if isinstance(value, tuple) else ()
    return len(sides) == 2 and all(type(side) is int and side >= 1 for side in sides)


def _is_pair(value: Any, low: float, high: float) -> bool:
    """Return whether it is two numbers of a range, the first not the greater."""
    pair = value if isinstance(value, tuple) else ()
    if len(pair) != 2 or not all(isinstance(number, int | float) for number in pair):
        return False
    return bool(low <= pair[0] <= pair[1] <= high)


class Draws:
    """Random integers for samples, each a pure function of seed, epoch, sample and its number.

    Args:
        indices: [B] integers in 0..2**63-1.
        seed: Any integer >= 0.
        epoch: Any integer >= 0.

    Source:
        Keys by BLAKE2b of seed and epoch; the integer hash "lowbias32" of Wellons, "Prospecting
        for Hash Functions", 2018.
    """

    def __init__(self, indices: NDArray[np.int64], seed: int, epoch: int) -> None:
        digest = hashlib.blake2b(f"augment,{seed},{epoch}".encode(), digest_size=8).digest()
        first, second = (np.uint64(key) for key in np.frombuffer(digest, "<u4"))
        wide = indices.astype(np.uint64)
        self.count = len(indices)
        self._state = _mixed(_mixed((wide & _MASK) ^ first) ^ (wide >> _BITS) ^ second)

    def number(self, which: int) -> NDArray[np.uint64]:
        """Return draw number `which` of each sample, [B] in 0..2**32-1."""
        return _mixed(self._state ^ np.uint64(which * _GOLDEN & 0xFFFFFFFF))

    def below(self, which: int, limits: int | NDArray[np.int64]) -> NDArray[np.int64]:
        """Return draw number `which` of each sample, [B] in 0..limits-1."""
        return ((self.number(which) * np.asarray(limits).astype(np.uint64)) >> _BITS).view(np.int64)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    half, shift = np.uint64(16), np.uint64(15)
    numbers = numbers ^ (numbers >> half)
    numbers = (numbers * np.uint64(0x7FEB352D)) & _MASK
    numbers = numbers ^ (numbers >> shift)
    numbers = (numbers * np.uint64(0x846CA68B)) & _MASK
    return numbers ^ (numbers >> half)


@lru_cache(maxsize=16)
def _ratios(bounds: tuple[float, float]) -> NDArray[np.float64]:
    """Return proportions evenly spaced in their logarithm, as multiples of 2**-16.

    Rounded so far that the last bit of a library's logarithm does not matter.
    """
    low, high = (math.log(bound) for bound in bounds)
    steps = (low + (step + 0.5) / _STEPS * (high - low) for step in range(_STEPS))
    return np.array([max(1, round(math.exp(step) * _ONE)) / _ONE for step in steps])
