"""Painted landscapes for the demo: coasts, forests and mountains.

All classes share the lights, so the mean colour does not tell the class; the shapes do.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from preprocess.demo.canvas import RGB, Canvas, Floats, clip, paint_tiles, rgb

__all__ = ["PAINTERS", "paint_photo", "paint_tiles"]


def _paint_sky(canvas: Canvas, bottom: int) -> None:
    """Gradient, sun or moon with its glow, clouds that flatten towards the horizon."""
    light, up = canvas.light, 1.0 - canvas.y[:bottom] / bottom  # 1 at the top, 0 at the horizon
    rise = up * (1.6 - 0.6 * up)
    canvas.image[:, :bottom] = canvas.horizon + (canvas.zenith - canvas.horizon) * rise
    sun_y = bottom * (1.0 - light.sun_height * canvas.between(0.5, 1.1))
    far = ((canvas.x - canvas.sun_x) ** 2 + (canvas.y[:bottom] - sun_y) ** 2) / np.float32(
        canvas.height**2
    )
    glow = 0.55 * light.exposure / (1.0 + far * 45.0)
    canvas.blend(0, glow, canvas.sun)
    if light.overexposed:
        canvas.blend(0, 1.0 / (1.0 + far * far * 90_000.0), 0.2 * canvas.sun + 0.8)
    if light.starry:
        stars = clip((canvas.patch("grain", bottom, canvas.width) - 3.6) * up)
        canvas.blend(0, stars, rgb((1.0, 1.0, 1.0)))
    distance = 0.55 / (up[:, 0] + 0.12)
    noise = canvas.plane("soft", distance, stretch=0.75) + 0.28 * canvas.plane(
        "rough", distance, stretch=0.75
    )
    cover = clip((noise + canvas.between(-1.1, 0.5)) * 0.9)
    # The side of a cloud towards the light is bright: the slope of the noise stands for it.
    slope = np.zeros_like(noise)
    slope[6:] = noise[6:] - noise[:-6]
    lit = clip(0.8 - 0.4 * cover + slope * 0.3)
    shadow = rgb(light.cloud_shadow)
    colour = (
        shadow
        + (0.25 * canvas.horizon + 0.75 * canvas.sun * (0.35 + 0.65 * light.exposure) - shadow)
        * lit
    )
    canvas.blend(0, cover * clip(up * 5.0 + 0.15) * 0.9, np.asarray(colour, np.float32))


def _paint_ridge(canvas: Canvas, skyline: Floats, haze: float, snow: float, rock: RGB) -> None:
    """One mountain range below a skyline ([W], pixels from the top), lit from the sun's side."""
    top = max(0, int(skyline.min()) - 1)
    height = canvas.height - top
    depth = canvas.y[top:] - skyline  # how far below the skyline, [h, W]
    noise = canvas.tiles["rough"]
    mask = len(noise) - 1
    offset = canvas.rng.integers(len(noise), size=2)
    # The relief hangs from the skyline, so that gullies run down from the peaks.
    rows = (depth * 0.8 - skyline * 0.5).astype(np.int32) + offset[0]
    columns = (canvas.x + offset[1] + depth * canvas.between(-0.7, 0.7)).astype(np.int32)
    relief = np.abs(noise[rows & mask, columns & mask])
    side = 1.0 if canvas.sun_x > canvas.width / 2 else -1.0
    slope = (np.roll(relief, 2, axis=1) - np.roll(relief, -2, axis=1)) * side
    shade = np.clip(0.62 + slope * 0.55, 0.12, 1.15)
    ground = canvas.hazy(rock, 0.0) * shade
    if snow > 0:
        white = clip(
            (snow * canvas.height - depth - relief * canvas.height * 0.12) * (9.0 / canvas.height)
        )
        bright = canvas.hazy((0.95, 0.97, 1.0), 0.0) * (0.45 + 0.6 * shade)
        ground = ground + (bright - ground) * white
    mist = np.minimum(haze + clip(depth / height) * haze * 0.6, 0.96)
    colour = ground + (canvas.horizon - ground) * mist
    canvas.blend(top, clip(depth + 0.5), np.asarray(colour, np.float32))


def _paint_ground(canvas: Canvas, top: int, colours: tuple[Floats, Floats], tile: str) -> None:
    """A plane from row `top` to the bottom: meadow or water, from a far to a near colour."""
    near = (canvas.y[top:, 0] - top + 1.0) / (canvas.height - top)
    noise = canvas.plane(tile, 0.8 / (near + 0.06), stretch=0.5)
    tone = 1.0 + noise * (0.05 + 0.14 * near[:, None])
    far_colour, near_colour = colours
    base = far_colour + (near_colour - far_colour) * near[:, None]
    canvas.image[:, top:] = base * tone


def _paint_conifer(canvas: Canvas, centre: float, foot: int, height: int, colour: Floats) -> None:
    """One spruce: tiers of branches that widen downwards, with a ragged edge."""
    half = max(2, int(height * canvas.between(0.13, 0.21)))
    left, right = max(0, int(centre) - half - 2), min(canvas.width, int(centre) + half + 2)
    top, bottom = max(0, foot - height), min(canvas.height, foot)
    if left >= right or top >= bottom:
        return
    down = (np.arange(top, bottom, dtype=np.float32)[:, None] - (foot - height)) / height
    noise = canvas.patch("rough", bottom - top, right - left)
    noise = noise - noise.mean()
    needles = canvas.patch("grain", bottom - top, right - left)
    away = (canvas.x[left:right] - centre) / half
    # Branches hang: a tier is lower at its ends than at the trunk.
    tiers = canvas.between(13.0, 22.0) * (1.3 - 0.6 * down)
    tier = ((down - 0.05 * np.abs(away)) * tiers + 0.4 * noise + 0.1 * needles) % 1.0
    spread = half * (down * (0.72 + 0.28 * tier) + 0.02 + (0.04 + 0.16 * down) * noise)
    spread = spread + needles * (1.0 + 0.05 * half)
    cover = clip(spread - half * np.abs(away) + 0.5) * clip((1.0 - down) * 5.0 + 0.3 * noise)
    sunny = away * (1.0 if canvas.sun_x > centre else -1.0)
    shade = np.clip(0.7 + 0.25 * noise + 0.17 * needles + 0.2 * sunny - 0.25 * tier, 0.15, 1.4)
    rows = canvas.image[:, top:bottom, left:right]
    rows += (colour * shade - rows) * cover


def _paint_coast(canvas: Canvas) -> None:
    """Sea to the horizon, glitter under the sun, a headland, a beach with foam."""
    horizon = int(canvas.height * canvas.between(0.36, 0.56))
    _paint_sky(canvas, horizon)
    if canvas.rng.random() < 0.6:
        fall = (canvas.x / canvas.width - canvas.between(0.3, 0.6)) * (
            1.0 if canvas.rng.random() < 0.5 else -1.0
        )
        rise = np.clip(fall, 0.0, 1.0) * (1.0 + 0.9 * canvas.line(0.5))
        skyline = (
            horizon + 2 - canvas.height * canvas.between(0.2, 0.5) * rise / (0.5 + np.abs(rise))
        )
        _paint_ridge(canvas, np.minimum(skyline, horizon + 2), 0.45, 0.0, (0.26, 0.29, 0.22))
    near_sea = canvas.hazy((0.05, 0.25, 0.34), 0.12) * 0.7 + canvas.zenith * 0.3
    _paint_ground(
        canvas, horizon, (near_sea * 0.45 + canvas.horizon * 0.5, near_sea * 0.9), "rough"
    )
    near = (canvas.y[horizon:] - horizon + 1.0) / (canvas.height - horizon)
    waves = canvas.plane("soft", 1.2 / (near[:, 0] + 0.05), stretch=0.16)
    canvas.blend(horizon, clip((waves - 0.6) * 0.35), canvas.horizon)
    away = (canvas.x - canvas.sun_x) / (canvas.width * (0.05 + 0.12 * near))
    sparkle = clip((waves + canvas.patch("grain", *waves.shape) * 0.8) * 0.7) / (1.0 + away * away)
    canvas.blend(horizon, clip(sparkle * canvas.light.exposure), 0.6 * canvas.sun + 0.35)
    shore = canvas.height * canvas.between(0.74, 0.95) + canvas.height * 0.12 * canvas.line(0.42)
    shore = shore + (canvas.x - canvas.width / 2) * np.float32(canvas.between(-0.25, 0.25))
    depth = canvas.y[horizon:] - shore
    sand = canvas.hazy((0.80, 0.70, 0.52), 0.05) * (
        1.0 + 0.05 * canvas.patch("grain", *waves.shape)
    )
    wet = np.clip(0.62 + depth / (0.12 * canvas.height), 0.62, 1.0)
    canvas.blend(horizon, clip(depth / 6.0), sand * wet)
    edge = np.abs(depth + 7.0 * canvas.patch("soft", *waves.shape)) / (0.022 * canvas.height)
    canvas.blend(horizon, clip(1.1 - edge) * 0.85, canvas.hazy((1.0, 1.0, 1.0), 0.1))


def _paint_forest(canvas: Canvas) -> None:
    """Rows of spruces on misty slopes, the nearest dark and tall."""
    horizon = int(canvas.height * canvas.between(0.3, 0.5))
    _paint_sky(canvas, min(canvas.height, int(horizon * 1.5)))
    rows = int(canvas.rng.integers(4, 6))
    tint = (canvas.between(0.14, 0.24), canvas.between(0.25, 0.34), canvas.between(0.10, 0.18))
    fog = canvas.between(0.5, 0.95)
    for row in range(rows):
        near = row / (rows - 1)
        haze = fog * (1.0 - near) ** 2 + 0.04
        slope = canvas.line(0.4) * canvas.height * 0.14 + (
            canvas.x - canvas.width / 2
        ) * np.float32(canvas.between(-0.2, 0.2))
        foot = horizon + (canvas.height * 1.08 - horizon) * near * near + slope
        tall = canvas.height * (0.09 + 0.42 * near * near)
        colour = canvas.hazy(tint, haze)
        top = min(max(0, int(foot.min() - tall * 0.4)), canvas.height - 1)
        # The canopy behind the single trees is dark at its top and drowns in mist below.
        depth = canvas.y[top:] - foot + tall * 0.4
        noise = canvas.patch("rough", *depth.shape)
        mist = clip(depth / (0.3 * canvas.height)) * np.float32(fog * 0.9 * (1.0 - near))
        ground = colour * (0.5 + 0.2 * noise + 0.07 * canvas.patch("grain", *noise.shape))
        ground = ground + (canvas.horizon - ground) * mist
        canvas.blend(top, clip(depth / (tall * 0.1) + noise), np.asarray(ground, np.float32))
        for centre in np.sort(canvas.rng.random(int(canvas.width / tall * 6.5))) * canvas.width:
            height = int(tall * canvas.between(0.6, 1.15))
            base = int(foot[int(centre)] + tall * canvas.between(0.0, 0.25))
            _paint_conifer(
                canvas, float(centre), base, height, colour * np.float32(canvas.between(0.8, 1.05))
            )


def _paint_mountains(canvas: Canvas) -> None:
    """Ranges behind one another, snow on the high one, a meadow or a lake in front."""
    horizon = int(canvas.height * canvas.between(0.55, 0.75))
    _paint_sky(canvas, horizon)
    ranges = int(canvas.rng.integers(2, 5))
    snow = canvas.between(0.05, 0.3)
    for index in range(ranges):
        near = (index + 1) / ranges
        reach = canvas.height * (0.5 - 0.36 * near) * canvas.between(0.9, 1.2)
        skyline = horizon - reach * (0.7 + 1.1 * canvas.line(0.56))
        rock = (0.36 - 0.12 * near, 0.34 - 0.04 * near, 0.33 - 0.16 * near)
        _paint_ridge(
            canvas,
            np.asarray(skyline, np.float32),
            0.62 * (1.05 - near),
            snow * (1.0 - near * 0.8),
            rock,
        )
    lake = canvas.rng.random() < 0.5
    if lake:
        below = canvas.height - horizon
        rows = np.maximum(horizon - 1 - np.arange(below), 0)[:, None]
        ripple = (
            canvas.plane("soft", 1.0 / (canvas.y[:below, 0] / below + 0.08), stretch=0.15) * 3.0
        )
        columns = np.clip(canvas.x + ripple, 0, canvas.width - 1).astype(np.int32)
        canvas.image[:, horizon:] = canvas.image[:, rows, columns] * 0.78 + 0.1 * canvas.zenith
    else:
        grass = (canvas.between(0.25, 0.45), 0.40, canvas.between(0.12, 0.2))
        _paint_ground(
            canvas, horizon, (canvas.hazy(grass, 0.25), canvas.hazy(grass, 0.0) * 0.75), "rough"
        )
        down = clip((canvas.y[horizon:] - horizon) / (0.7 * (canvas.height - horizon)))
        shape = (canvas.height - horizon, canvas.width)
        blades = canvas.patch("rough", *shape) + 0.5 * canvas.patch("grain", *shape)
        canvas.image[:, horizon:] *= 1.0 + 0.13 * blades * down


PAINTERS: dict[str, Callable[[Canvas], None]] = {
    "coast": _paint_coast,
    "forest": _paint_forest,
    "mountains": _paint_mountains,
}


def _develop(canvas: Canvas) -> NDArray[np.uint8]:
    """What the camera adds: exposure, darker corners, contrast, grain."""
    across = (canvas.x / canvas.width - 0.5) ** 2 + (canvas.y / canvas.height - 0.5) ** 2
    image = canvas.image
    # Exposed by the mean, as cameras do: a forest at noon is then as bright as a beach at dusk.
    gain = canvas.between(0.36, 0.5) / max(float(image.mean()), 0.05)
    gain = min(max(gain, 0.95), 2.2)
    image *= gain * (1.06 - 0.42 * across)
    clip(image)
    curve = 3.0 - 2.0 * image
    curve *= image
    curve -= 1.0
    curve *= 0.45
    curve += 1.0
    image *= curve
    image += canvas.patch("grain", canvas.height, canvas.width) * np.float32(0.008)
    clip(image)
    image *= 255.0
    image += 0.5
    return np.ascontiguousarray(image.astype(np.uint8).transpose(1, 2, 0))  # [H, W, 3]


def paint_photo(
    tiles: dict[str, Floats], name: str, key: tuple[int, ...], size: tuple[int, int]
) -> NDArray[np.uint8]:
    """Paint one photo.

    Args:
        tiles: From `paint_tiles`.
        name: Class of the picture: `coast`, `forest` or `mountains`.
        key: Numbers that name the photo; the same key gives the same picture.
        size: Width and height in pixels.

    Returns:
        [H, W, 3] uint8 RGB.
    """
    canvas = Canvas(np.random.default_rng(list(key)), tiles, size)
    PAINTERS[name](canvas)
    return _develop(canvas)
