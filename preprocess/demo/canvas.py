"""What painted photos are made of: a light, a canvas, and fractal noise to cut textures from.

The arithmetic is +, -, *, / and sqrt, which IEEE 754 fixes to the bit, so that the same seed gives
the same picture everywhere.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]  # float32; the stubs widen float32 * float
RGB = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Light:
    """Colours in 0..1 at one time of day."""

    zenith: RGB
    horizon: RGB
    sun: RGB
    cloud_shadow: RGB
    exposure: float
    sun_height: float  # of the sky, 0 is the horizon
    overexposed: bool = False  # the sun or moon itself is seen
    starry: bool = False


LIGHTS = (
    Light(  # noon
        zenith=(0.20, 0.40, 0.72),
        horizon=(0.70, 0.82, 0.92),
        sun=(1.00, 0.97, 0.90),
        cloud_shadow=(0.62, 0.68, 0.77),
        exposure=1.00,
        sun_height=0.95,
        overexposed=True,
    ),
    Light(  # evening
        zenith=(0.25, 0.32, 0.52),
        horizon=(0.98, 0.66, 0.40),
        sun=(1.00, 0.76, 0.45),
        cloud_shadow=(0.50, 0.38, 0.42),
        exposure=0.85,
        sun_height=0.14,
        overexposed=True,
    ),
    Light(  # overcast
        zenith=(0.52, 0.56, 0.61),
        horizon=(0.78, 0.80, 0.81),
        sun=(0.84, 0.85, 0.85),
        cloud_shadow=(0.50, 0.53, 0.57),
        exposure=0.80,
        sun_height=0.70,
    ),
    Light(  # dusk
        zenith=(0.12, 0.17, 0.34),
        horizon=(0.62, 0.50, 0.55),
        sun=(0.80, 0.72, 0.78),
        cloud_shadow=(0.24, 0.24, 0.37),
        exposure=0.55,
        sun_height=0.55,
        starry=True,
    ),
)


class Canvas:
    """One picture while it is painted, and what is random about it.

    Attributes:
        image: [3, H, W] float32 in 0..1, painted from the back to the front. Planes, because NumPy
            is three times slower along a last axis of 3.
        light: The time of day.
        horizon: [3, 1, 1] float32, the light's colour there, tinted for this picture; `zenith` too.
        sun: [3, 1, 1] float32.
        sun_x: Where the sun stands, in pixels.
        x: [W] float32 columns; `y` is [H, 1].
    """

    def __init__(
        self, rng: np.random.Generator, tiles: dict[str, Floats], size: tuple[int, int]
    ) -> None:
        self.rng, self.tiles = rng, tiles
        self.width, self.height = size
        self.light = LIGHTS[int(rng.integers(len(LIGHTS)))]
        self.image = np.zeros((3, self.height, self.width), np.float32)
        self.x = np.arange(self.width, dtype=np.float32)
        self.y = np.arange(self.height, dtype=np.float32)[:, None]
        self.sun_x = self.width * self.between(0.1, 0.9)
        tint = np.array([self.between(0.96, 1.04) for _ in range(3)], np.float32).reshape(3, 1, 1)
        self.horizon = rgb(self.light.horizon) * tint
        self.zenith = rgb(self.light.zenith) * tint
        self.sun = rgb(self.light.sun)

    def between(self, low: float, high: float) -> float:
        """Draw a number."""
        return low + (high - low) * float(self.rng.random())

    def patch(self, tile: str, height: int, width: int) -> Floats:
        """Cut [height, width] noise anywhere from a tile, which wraps around."""
        noise = self.tiles[tile]
        rows = (np.arange(height) + self.rng.integers(len(noise))) % len(noise)
        columns = (np.arange(width) + self.rng.integers(len(noise))) % len(noise)
        cut: Floats = noise[rows[:, None], columns]
        return cut

    def plane(self, tile: str, distance: Floats, stretch: float = 1.0) -> Floats:
        """Look along a flat plane of noise, row i being `distance[i]` away (at 1, unscaled)."""
        noise = self.tiles[tile]
        side, far = len(noise), np.minimum(distance, 40.0)[:, None]
        offset = self.rng.integers(side, size=2)
        rows = (self.height * far / stretch).astype(np.int32) + offset[0]
        columns = ((self.x - self.width / 2) * far).astype(np.int32) + offset[1]
        seen: Floats = noise[rows & (side - 1), columns & (side - 1)]
        return seen

    def line(self, roughness: float) -> Floats:
        """[W] fractal line in about -1..1, for skylines."""
        value = self.rng.random(4, dtype=np.float32) - 0.5
        amplitude = 1.0
        while len(value) < self.width * 1.5:
            before, after = (
                value[:-1] * 0.75 + value[1:] * 0.25,
                value[:-1] * 0.25 + value[1:] * 0.75,
            )
            value = np.stack((before, after), axis=1).ravel()
            amplitude *= roughness
            value += (self.rng.random(len(value), dtype=np.float32) - 0.5) * amplitude
        start = int(self.rng.integers(len(value) - self.width + 1))
        return value[start : start + self.width]

    def blend(self, top: int, cover: Floats, colour: Floats) -> None:
        """Lay a colour over the rows from `top`.

        Args:
            top: First row.
            cover: [h, W] in 0..1, how much of the colour is laid.
            colour: [3, 1, 1] or [3, h, W].
        """
        rows = self.image[:, top : top + len(cover)]
        difference = colour - rows
        difference *= cover
        rows += difference

    def hazy(self, colour: RGB | Floats, haze: float) -> Floats:
        """A ground colour under this light, seen through the air."""
        lit = rgb(colour) * self.light.exposure * (0.4 + 0.6 * self.sun)
        return np.asarray(lit * (1 - haze) + self.horizon * haze, np.float32)


def rgb(colour: RGB | Floats) -> Floats:
    """Shape a colour as [3, 1, 1], to lay over planes."""
    return np.asarray(colour, np.float32).reshape(3, 1, 1)


def clip(values: Floats) -> Floats:
    """Clip to 0..1 in place."""
    return np.clip(values, 0.0, 1.0, out=values)


def _fractal_tile(rng: np.random.Generator, side: int, roughness: float) -> Floats:
    """Sum octaves of noise, each doubled with a quadratic spline, to [side, side] that wraps."""
    value = rng.random((4, 4), dtype=np.float32) - 0.5
    amplitude = 1.0
    while len(value) < side:
        for axis in (0, 1):
            near = value * 0.75
            pair = (near + 0.25 * np.roll(value, 1, axis), near + 0.25 * np.roll(value, -1, axis))
            shape = tuple(n * 2 if i == axis else n for i, n in enumerate(value.shape))
            value = np.stack(pair, axis=axis + 1).reshape(shape)
        amplitude *= roughness
        value += (rng.random(value.shape, dtype=np.float32) - 0.5) * np.float32(amplitude)
    value -= value.mean()
    return np.asarray(value / value.std(), np.float32)


def paint_tiles(seed: int, size: tuple[int, int]) -> dict[str, Floats]:
    """Make the noise that a set of photos is cut from.

    Args:
        seed: Names the set.
        size: Width and height of the largest photo, in pixels.

    Returns:
        [S, S] float32 tiles by name, S a power of two, mean 0 and standard deviation 1.
    """
    side = 1 << (max(size) - 1).bit_length()
    rng = np.random.default_rng([seed, 0])
    return {
        name: _fractal_tile(rng, side, roughness)
        for name, roughness in (("soft", 0.52), ("rough", 0.68), ("grain", 1.9))
    }
