"""What is known of a table's column beside its type: statistics, and what it lost on the way."""

import math
from dataclasses import dataclass
from typing import Any, Final

from loaders.format.strict import Place

QUANTILES: Final = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)

_MAX_COUNT: Final = 1 << 40
_MAX_VALUE: Final = 1 << 1024
"""Beyond every float64; an integer below it becomes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """What the training rows hold in a numeric column, in values, not in codes.

    Attributes:
        count: Training rows, missing ones among them.
        missing: Rows without a value.
        mean: Over the finite values; None where there are none, like all that follow.
        std: Population standard deviation; 0 for a constant.
        minimum: Smallest value.
        maximum: Largest value.
        quantiles: At `QUANTILES`; empty where there are no values.
    """

    count: int
    missing: int
    mean: float | None
    std: float | None
    minimum: float | None
    maximum: float | None
    quantiles: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what no rows could give."""
        place = Place("statistics")
        place.expect(0 <= self.missing <= self.count, self.missing, f"0..{self.count} missing")
        values = [self.mean, self.std, self.minimum, self.maximum]
        known = [value for value in values if value is not None]
        place.expect(len(known) in {0, len(values)}, values, "all of them or none")
        place.expect(
            len(self.quantiles) == (len(QUANTILES) if known else 0),
            self.quantiles,
            f"values at the quantiles {QUANTILES}",
        )
        for value in (*known, *self.quantiles):
            place.expect(_is_finite(value), value, "a finite number")
        if self.std is not None and self.minimum is not None and self.maximum is not None:
            place.expect(self.std >= 0, self.std, "a standard deviation from 0 on")
            place.expect(self.minimum <= self.maximum, values, "a minimum up to the maximum")
        falls = any(a > b for a, b in zip(self.quantiles, self.quantiles[1:], strict=False))
        place.expect(not falls, self.quantiles, "quantiles that do not fall")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "count": self.count,
            "missing": self.missing,
            "mean": self.mean,
            "std": self.std,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "quantiles": list(self.quantiles),
        }

    @classmethod
    def from_json(cls, place: Place, value: Any) -> "ColumnStatistics":
        """Parse the JSON form."""
        names = {"mean", "std", "minimum", "maximum"}
        entry = place.mapping(value, names | {"count", "missing", "quantiles"})
        found = {n: None if entry[n] is None else _number(place.at(n), entry[n]) for n in names}
        at = place.at("quantiles")
        return cls(
            count=place.at("count").integer(entry["count"], low=0, high=_MAX_COUNT),
            missing=place.at("missing").integer(entry["missing"], low=0, high=_MAX_COUNT),
            mean=found["mean"],
            std=found["std"],
            minimum=found["minimum"],
            maximum=found["maximum"],
            quantiles=tuple(_number(at, item) for item in at.sequence(entry["quantiles"])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A step in which a column lost something, listed so that nothing is lost silently.

    Attributes:
        what: The step, in words.
        values: How many values it changed.
        worst: The largest difference that it made; 0 where that says nothing.
    """

    what: str
    values: int
    worst: float

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"what": self.what, "values": self.values, "worst": self.worst}

    @classmethod
    def from_json(cls, place: Place, value: Any) -> "Loss":
        """Parse the JSON form."""
        entry = place.mapping(value, {"what", "values", "worst"})
        return cls(
            what=place.at("what").text(entry["what"]),
            values=place.at("values").integer(entry["values"], low=0, high=_MAX_COUNT),
            worst=_number(place.at("worst"), entry["worst"]),
        )


def _is_finite(value: object) -> bool:
    if type(value) is int:
        return abs(value) < _MAX_VALUE
    return type(value) is float and math.isfinite(value)


def _number(place: Place, value: Any) -> float:
    place.expect(_is_finite(value), value, "a finite number")
    found: float = value
    return found
