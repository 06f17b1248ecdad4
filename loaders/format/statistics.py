"""Exact, mergeable statistics of an image field, as the manifest keeps them."""

import math
from dataclasses import dataclass
from typing import Any

from loaders.format.strict import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatistics:
    """Exact sums over all values of an image field, channel by channel.

    Attributes:
        pixels: Values summed per channel.
        sums: Sum of the stored integers, per channel.
        squares: Sum of their squares, per channel.
        levels: The value that stands for 1.0: 255 for uint8, 65535 for uint16.
    """

    pixels: int
    sums: tuple[int, ...]
    squares: tuple[int, ...]
    levels: int

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean per channel, in 0..1."""
        return tuple(total / (self.pixels * self.levels) for total in self.sums)

    @property
    def std(self) -> tuple[float, ...]:
        """Population standard deviation per channel, in 0..1."""
        # Integers until the last step: no cancellation.
        return tuple(
            math.sqrt(self.pixels * square - total * total) / (self.pixels * self.levels)
            for total, square in zip(self.sums, self.squares, strict=True)
        )

    def __add__(self, other: "ChannelStatistics") -> "ChannelStatistics":
        """Merge with the statistics of other samples of the same field."""
        if self.levels != other.levels or len(self.sums) != len(other.sums):
            raise ValueError(f"statistics of different fields: {self} and {other}")
        return ChannelStatistics(
            pixels=self.pixels + other.pixels,
            sums=tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)),
            squares=tuple(a + b for a, b in zip(self.squares, other.squares, strict=True)),
            levels=self.levels,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; mean and std stand there for human readers."""
        empty = self.pixels == 0
        return {
            "pixels": self.pixels,
            "sums": list(self.sums),
            "squares": list(self.squares),
            "levels": self.levels,
            "mean": None if empty else list(self.mean),
            "std": None if empty else list(self.std),
        }

    @classmethod
    def from_json(cls, place: Place, value: Any) -> "ChannelStatistics":
        """Parse the JSON form and check it against itself."""
        entry = place.mapping(value, {"pixels", "sums", "squares", "levels", "mean", "std"})
        found = cls(
            pixels=place.at("pixels").integer(entry["pixels"], low=0, high=1 << 62),
            sums=place.at("sums").integers(entry["sums"], low=0, high=1 << 80),
            squares=place.at("squares").integers(entry["squares"], low=0, high=1 << 96),
            levels=place.at("levels").integer(entry["levels"], low=1, high=65535),
        )
        place.expect(len(found.sums) == len(found.squares), entry, "one sum and square a channel")
        possible = all(
            # v <= v * v <= v * levels for every stored value v.
            total <= square <= total * found.levels <= found.pixels * found.levels**2
            and total * total <= found.pixels * square
            for total, square in zip(found.sums, found.squares, strict=True)
        )
        place.expect(possible and found.to_json() == entry, entry, "sums, mean and std that agree")
        return found
