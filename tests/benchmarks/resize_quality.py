"""How exact resized pixels are: against float64, and against Pillow, for every filter and fit.

The reference is the definition worked out in float64: weights of the filter, widened with the
reduction, one axis after the other, nothing rounded or cut off until the end.

Run: python -m tests.benchmarks.resize_quality
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image  # noqa: TID253 - what we are compared with

from preprocess.images.options import Fitted, ImageOptions
from preprocess.images.resize import FILTERS, Resample, fit_geometry, fit_sizes
from tests.benchmarks.inputs import usable_photos
from tests.benchmarks.rounds import show

Floats = NDArray[np.float64]
Pixels = NDArray[np.uint8]


def _bicubic(x: Floats) -> Floats:
    x, a = np.abs(x), -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _hamming(x: Floats) -> Floats:
    return np.where(np.abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0.0)


CURVES: dict[Resample, Callable[[Floats], Floats]] = {
    "bicubic": _bicubic,
    "bilinear": lambda x: np.maximum(0.0, 1 - np.abs(x)),
    "lanczos": lambda x: np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0),
    "box": lambda x: ((x > -0.5) & (x <= 0.5)).astype(np.float64),
    "hamming": _hamming,
}
"""Filters as Pillow defines them. Source: Pillow, `src/libImaging/Resample.c`."""

SUPPORTS: dict[Resample, float] = {
    "bicubic": 2,
    "bilinear": 1,
    "lanczos": 3,
    "box": 0.5,
    "hamming": 1,
}
"""How far each reaches, in pixels of the smaller picture."""


def weights(size: int, new: int, resample: Resample) -> Floats:
    """Return what each of `size` pixels gives to each of `new` ones: [new, size], rows add to 1."""
    scale = size / new
    centres = (np.arange(new)[:, None] + 0.5) * scale
    # Where a box ends at the middle of a pixel, the last bit decides whose that is: worked out in
    # Pillow's order, also which pixels are looked at.
    stretch = max(scale, 1.0)
    places = np.arange(size)
    found = CURVES[resample]((places - centres + 0.5) * (1.0 / stretch))
    reach = SUPPORTS[resample] * stretch
    first, end = (np.trunc(centres + way * reach + 0.5) for way in (-1, 1))
    found *= (places >= first) & (places < end)
    return found / found.sum(axis=1, keepdims=True)


def resize_exactly(part: Pixels, size: tuple[int, int], resample: Resample) -> Floats:
    """Scale [H, W, C] to size (width, height) in float64, cut off at 0 and 255 at the end."""
    height, width, channels = part.shape
    across = weights(width, size[0], resample)
    down = weights(height, size[1], resample)
    rows = (down @ part.reshape(height, -1).astype(np.float64)).reshape(size[1], width, channels)
    return np.einsum("ow,hwc->hoc", across, rows, optimize=True).clip(0, 255)


def resize_by_pillow(part: Pixels, size: tuple[int, int], resample: Resample) -> Pixels:
    """Scale [H, W, 3] with Pillow."""
    return np.asarray(Image.fromarray(part).resize(size, Image.Resampling[resample.upper()]))


@dataclass(slots=True)
class Errors:
    """Differences from a reference, added up.

    Attributes:
        squares: Sum of their squares.
        count: How many there are.
        above: How many are above one level.
        worst: The largest.
    """

    squares: float = 0.0
    count: int = 0
    above: int = 0
    worst: float = 0.0

    def add(self, found: NDArray[Any], reference: NDArray[Any]) -> None:
        """Compare pixels with a reference."""
        apart = np.abs(found.astype(np.float64) - reference)
        self.squares += float((apart * apart).sum())
        self.count += apart.size
        self.above += int((apart > 1).sum())
        self.worst = max(self.worst, float(apart.max()))

    @property
    def decibels(self) -> float:
        """The peak signal-to-noise ratio."""
        with np.errstate(divide="ignore"):
            return float(10 * np.log10(255.0**2 * self.count / np.float64(self.squares)))

    def __str__(self) -> str:
        return f"{self.decibels:6.2f} dB, at most {self.worst:4.2f}"


@dataclass(slots=True)
class Quality:
    """What was found of a filter at a size.

    Attributes:
        ours: Against float64.
        pillow: Likewise.
        rounded: What rounding float64 to uint8 alone costs: nobody can be better.
        apart: Ours against Pillow's.
    """

    ours: Errors = field(default_factory=Errors)
    pillow: Errors = field(default_factory=Errors)
    rounded: Errors = field(default_factory=Errors)
    apart: Errors = field(default_factory=Errors)


def measure_filter(photos: Sequence[Pixels], side: int, resample: Resample) -> Quality:
    """Bring photos to a square by one filter."""
    found, size = Quality(), (side, side)
    for photo in photos:
        left, top, right, bottom = fit_geometry(photo.shape[1], photo.shape[0], size, "crop").source
        part = np.ascontiguousarray(photo[top:bottom, left:right])
        exact = resize_exactly(part, size, resample)
        (ours,) = fit_sizes(photo, [size], fit="crop", resample=resample)
        pillow = resize_by_pillow(part, size, resample)
        found.ours.add(ours, exact)
        found.pillow.add(pillow, exact)
        found.rounded.add(np.rint(exact), exact)
        found.apart.add(ours, pillow.astype(np.float64))
    return found


def measure_fit(photos: Sequence[Pixels], side: int, fit: Fitted) -> Errors:
    """Compare one fit with Pillow's resize of the same part, by every filter."""
    options, errors = ImageOptions(sizes=((side, side),), fit=fit), Errors()
    for photo in photos:
        height, width = photo.shape[:2]
        targets, way = options.targets(width, height)
        place = fit_geometry(width, height, targets[0], way)
        left, top, right, bottom = place.source
        part = np.ascontiguousarray(photo[top:bottom, left:right])
        left, top, right, bottom = place.target
        for resample in FILTERS:
            (ours,) = fit_sizes(photo, targets, fit=way, resample=resample)
            wanted = resize_by_pillow(part, (right - left, bottom - top), resample)
            errors.add(ours[top:bottom, left:right], wanted.astype(np.float64))
    return errors


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, help="real photos; painted ones without")
    parser.add_argument("--count", type=int, default=6)
    parser.add_argument("--size", type=int, nargs=2, default=[2048, 1536], help="of painted ones")
    parser.add_argument("--sides", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--fit-side", type=int, default=512, help="a multiple of 64")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        size = (chosen.size[0], chosen.size[1])
        folder = usable_photos(chosen.photos, Path(scratch), chosen.count, size)
        photos = [np.asarray(Image.open(p).convert("RGB")) for p in sorted(folder.iterdir())]
    for side in chosen.sides:
        show([f"{len(photos)} photos cropped to {side} x {side}, levels apart from float64"])
        for resample in FILTERS:
            found = measure_filter(photos, side, resample)
            rounded, apart = found.rounded.decibels, found.apart.worst
            line = f"  {resample:9} ours {found.ours}   Pillow {found.pillow}   "
            show([f"{line}rounded {rounded:6.2f} dB   ours from Pillow at most {apart:.0f}"])
    show(
        [f"every filter, to {chosen.fit_side}, levels apart from Pillow's resize of the same part"]
    )
    for fit in get_args(Fitted):
        apart = measure_fit(photos, chosen.fit_side, fit)
        share = apart.above / apart.count
        show([f"  {fit:9} at most {apart.worst:.0f}; more than 1: {share:.1e} of the values"])


if __name__ == "__main__":
    main()
