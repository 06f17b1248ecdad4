"""What decoding makes of what pictures carry beside plain 8-bit colours; see IMAGES.md."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from preprocess.spelling import Option, OptionError

Icc = Literal["srgb", "ignore"]
Alpha = Literal["over", "keep", "drop"]
Depth = Literal[8, 16]
Pages = Literal["first", "all"]

MAX_ITEM_NBYTES: Final = 2_000_000_000
"""Default: each file is in memory whole. RGBA of 16 bits and `MAX_PIXELS`, raw, has 1.4 GB."""

MAX_PIXELS: Final = 178_956_970
"""Pixels beyond which a header is taken for a decompression bomb: where Pillow raises by default
(twice its warning limit of 1 GiB / 4 / 3): 512 MiB of RGB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodePolicy:
    """What decoding makes of colour profiles, transparency, deep samples, pages and large sizes.

    Attributes:
        icc: "srgb" converts the colours of an embedded profile to sRGB; "ignore" takes the samples
            as they are.
        alpha: "over" composites over `background`, "keep" gives RGBA, "drop" the colours that lie
            hidden under transparency.
        background: RGB in 0..255 that shows where the picture is transparent.
        depth: 8 gives uint8, a sample of 16 bits as v / 257, rounded; 16 gives uint16, a sample of
            8 bits as v * 257.
        pages: "first" page of a TIFF, or "all", but those that are another page's thumbnail or
            mask. Of all that is animated the first frame is taken.
        max_pixels: Width times height beyond which nothing is decoded.
        floats: Take samples of floating point too, 0 as black to 1 as white, as depth 16 always
            does.
    """

    icc: Icc = "srgb"
    alpha: Alpha = "over"
    background: tuple[int, int, int] = (255, 255, 255)
    depth: Depth = 8
    pages: Pages = "first"
    max_pixels: int = MAX_PIXELS
    floats: bool = False

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        choices = {
            "icc": get_args(Icc),
            "alpha": get_args(Alpha),
            "depth": get_args(Depth),
            "pages": get_args(Pages),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                given = Option(name, getattr(self, name))
                raise OptionError(given, f": expected one of {allowed}")
        if self.max_pixels < 1:
            raise OptionError(Option("max_pixels", self.max_pixels), ": expected at least 1")

    @property
    def takes_floats(self) -> bool:
        """Whether samples of floating point are taken: where somebody has chosen a depth."""
        return self.floats or self.depth == 16


def check_pixels(width: int, height: int, max_pixels: int) -> None:
    """Refuse a size that a header states, before anything is decoded.

    Raises:
        ValueError: It is nothing, or more than `max_pixels`.
    """
    if width < 1 or height < 1:
        raise ValueError(f"its header says {width} x {height} pixels")
    if width * height > max_pixels:
        raise ValueError(
            f"{width} x {height} is {width * height:,} pixels, more than {max_pixels:,} "
            "(--max-pixels)"
        )
