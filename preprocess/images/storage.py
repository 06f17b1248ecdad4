"""How resized pictures are stored: as pixels, as JPEGs, or compressed without loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from loaders.format.encoding import Chroma, Encoding
from preprocess.spelling import Option, OptionError

Store = Literal["raw", "jpeg"]
Compression = Literal["zstd", "blosc-lz4"]

QUALITY: Final = 95
"""Of JPEGs, unless asked for another: 45 dB from the raw pixels of photos of 512 x 512."""

CHROMA: Final[Chroma] = "420"
"""As in most photos: decoded in 0.73 of the time of "444", 0.89 of its bytes, 0.7 dB further off
(photos of 512 x 512, quality 95)."""

LEVELS: Final[Mapping[Compression, int]] = {"zstd": 1, "blosc-lz4": 5}
"""How hard each tries: more takes longer to write and makes photos hardly smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How pictures and masks are stored.

    Attributes:
        store: "raw" or "jpeg".
        quality: Of the JPEGs; None for `QUALITY`.
        compress: How what is raw is compressed; None for not at all.
        grey: Pictures have one channel.
    """

    store: Store
    quality: int | None
    compress: Compression | None
    grey: bool

    def check(self, *, depth: int, alpha: bool, fit: str, one_size: bool) -> None:
        """Refuse what an encoding cannot hold.

        Args:
            depth: Bits of a sample.
            alpha: Transparency is stored.
            fit: Names the fit in errors.
            one_size: Whether all pictures have the same.

        Raises:
            OptionError: Says what excludes what.
        """
        jpeg = Option("store", "jpeg")
        if self.store == "jpeg":
            if self.compress is not None:
                raise OptionError(jpeg, " and ", Option("compress"), ": give one of them")
            if depth != 8:
                raise OptionError(
                    jpeg, " and ", Option("depth", depth), ": JPEG has 8 bits a sample"
                )
            if alpha:
                kept = Option("alpha", "keep")
                raise OptionError(jpeg, " and ", kept, ": JPEG has no transparency")
        elif self.quality is not None:
            raise OptionError(Option("quality"), ": only with ", jpeg)
        if self.quality is not None and not 1 <= self.quality <= 100:
            raise OptionError(Option("quality", self.quality), ": expected 1 to 100")
        if self.compress is not None and not one_size:
            raise OptionError(
                *(Option("compress"), " and ", Option("fit", fit)),
                *(": zarr's chunks hold pictures of one size; use ", jpeg),
                ", or crop, pad or stretch",
            )

    @property
    def pictures(self) -> Encoding | None:
        """How pictures are encoded; None for raw pixels."""
        if self.store == "jpeg":
            chroma: Chroma | None = None if self.grey else CHROMA
            return Encoding(codec="jpeg", level=self.quality or QUALITY, chroma=chroma)
        return self.masks

    @property
    def masks(self) -> Encoding | None:
        """How masks are encoded, which must not lose a value; None for values as they are."""
        if self.compress is None:
            return None
        return Encoding(codec=self.compress, level=LEVELS[self.compress])

    def recorded(self) -> dict[str, Any]:
        """Return what the recipe records of it: nothing of raw pixels, as before there was more."""
        if self.store == "jpeg":
            return {"store": self.store, "quality": self.quality or QUALITY}
        return {} if self.compress is None else {"compress": self.compress}
