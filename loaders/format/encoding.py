"""How the samples of a field are encoded one by one: JPEG, or compressed without loss."""

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from loaders.format.strict import Place

Codec = Literal["jpeg", "zstd", "blosc-lz4"]
Chroma = Literal["444", "420"]

MAX_SIDE: Final = 16_384
"""Pixels of a side of an encoded picture: what a few bytes can claim to decode to is bounded."""

MAX_NBYTES: Final = (1 << 31) - 17
"""Bytes of a compressed sample before it: what Blosc can hold."""

_LEVELS: Final = {"jpeg": (1, 100), "zstd": (1, 22), "blosc-lz4": (1, 9)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """What each sample of a field was encoded with.

    Attributes:
        codec: "jpeg"; "zstd" or "blosc-lz4", both without loss and with a CRC-32C behind them.
        level: JPEG's quality, 1 to 100; of the others how hard they try.
        chroma: JPEG's colours as fine as its luma, "444", or of half the width and height, "420";
            None where there are none.
    """

    codec: Codec
    level: int
    chroma: Chroma | None = None

    @property
    def in_chunks(self) -> bool:
        """Whether encoded samples are inner chunks of a zarr shard, not a column of bytes."""
        return self.codec != "jpeg"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"codec": self.codec, "level": self.level, "chroma": self.chroma}

    @classmethod
    def from_json(cls, place: Place, value: Any) -> "Encoding":
        """Parse the JSON form; `place` names it in errors."""
        entry = place.mapping(value, {"codec", "level", "chroma"})
        codec = place.at("codec").text(entry["codec"])
        for known in get_args(Codec):
            if codec == known:
                low, high = _LEVELS[known]
                level = place.at("level").integer(entry["level"], low=low, high=high)
                found: Chroma | None = None
                for chroma in get_args(Chroma):
                    found = chroma if entry["chroma"] == chroma else found
                place.at("chroma").expect(
                    entry["chroma"] == found, entry["chroma"], f"one of {get_args(Chroma)} or null"
                )
                return cls(codec=known, level=level, chroma=found)
        raise place.at("codec").wrong(codec, f"one of {get_args(Codec)}")

    def check(self, place: Place, shape: tuple[int, ...], *, ragged: bool, nbytes: int) -> None:
        """Refuse pictures and masks that this cannot hold.

        Args:
            place: Names the field in errors.
            shape: Of a sample; of a pixel, if `ragged`.
            ragged: Whether samples have sizes of their own.
            nbytes: Of a sample.

        Raises:
            FormatError: Says what is wrong.
        """
        sides = () if ragged else shape[:2]
        place.expect(all(side <= MAX_SIDE for side in sides), shape, f"sides up to {MAX_SIDE}")
        if self.codec == "jpeg":
            place.expect(len(shape) == 3 - 2 * ragged, shape, "pictures of two sides")
            place.expect(shape[-1] in {1, 3}, shape, "1 or 3 channels, as JPEG has them")
            has_colours = shape[-1] == 3
        else:
            place.expect(not ragged, shape, "samples of one size, as zarr's chunks are")
            place.expect(nbytes <= MAX_NBYTES, nbytes, f"up to {MAX_NBYTES} bytes")
            has_colours = False
        place.expect(
            (self.chroma is not None) == has_colours,
            self.chroma,
            "a sampling of colours exactly where JPEG has any",
        )
