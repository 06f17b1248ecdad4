"""Rows of a table on their way: a block of them, and what is known of its columns."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from preprocess.errors import SampleError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

TEXT_KINDS: Final = frozenset({"integer", "float", "boolean", "date", "datetime", "string"})
"""What values that are written as text can be; a column without values can be all of them."""

NULL: Final = frozenset({"null"})

FRAME: Final = "DataFrame"
"""Names a table in memory, where files have their paths."""

ZONED: Final = "times with a time zone"
NAIVE: Final = "times without one"

MIXED_TEXT: Final[dict[str, str]] = {
    "whole numbers": "7",
    "floats": "0.5, whole ones as 7",
    "decimals": "0.5, without zeros at their ends",
    "truth values": "true or false",
    "dates": "2024-02-29",
    NAIVE: "2024-02-29T12:00:00",
    ZONED: "2024-02-29T12:00:00+00:00",
    "times of day": "12:00:00",
    "lists": "nothing",
    "text": "it is",
}
"""What the columns of files hold -> how it is written as a category."""

_DAY: Final = 86_400_000_000
"""Microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the values of one column are, in one block or in many.

    Attributes:
        count: Rows.
        missing: Rows without a value.
        kinds: What all values could be. Text can be several of `TEXT_KINDS`; a column that has a
            type is of one kind: one of these, "decimal", "time" (of day), "list", "null",
            or "other:<type>" for what no table of numbers can hold. Numbers of JSON can be text
            too. None of them: the types of two files or blocks exclude each other.
        minimum: The smallest value: a whole number exactly, of dates in days and of times in
            microseconds since 1970, of decimals as Decimal; None where the values are not all
            numbers or times. NaN is left out.
        maximum: The largest, alike.
        exponent: Decimal places that the values need, as they are written; None where not all of
            them are written as decimals.
        not_kind: For kinds of text that the column cannot be: the first value that is not of the
            kind, and its place as "file:line".
        leading_zeros: Some value is written like 007 or +5, so that a number would lose it.
        float32_exact: All numbers, as float64 has them, are the same in float32; says nothing where
            not all values are numbers.
        list_lengths: The shortest and the longest list; None where there is none.
        is_typed: Some values are strings by their type, whatever they look like.
        from_bytes: Some of them are bytes by their type, and valid UTF-8.
        as_json: The place of the first list or object that is its JSON as text; None without.
        unnamed: The file whose header gives the column no name; None where there is none.
        types: What the files have, as `MIXED_TEXT` names it, and the place of the first value.
    """

    count: int
    missing: int
    kinds: frozenset[str]
    minimum: int | float | Decimal | None = None
    maximum: int | float | Decimal | None = None
    exponent: int | None = None
    not_kind: dict[str, tuple[str, str]] = field(default_factory=dict)
    leading_zeros: bool = False
    float32_exact: bool = True
    list_lengths: tuple[int, int] | None = None
    is_typed: bool = False
    from_bytes: bool = False
    as_json: str | None = None
    unnamed: str | None = None
    types: dict[str, str] = field(default_factory=dict)

    def merged(self, other: "Evidence") -> "Evidence":
        """Return what is known of both: this one's rows, then the other's."""
        kinds = self._common(other)
        ours, theirs = self.range_as(kinds), other.range_as(kinds)
        # Without values there is nothing that is not a decimal.
        places = [part.exponent for part in (self, other) if part.count > part.missing]
        known = [place for place in places if place is not None]
        lengths = [part.list_lengths for part in (self, other) if part.list_lengths is not None]
        return Evidence(
            count=self.count + other.count,
            missing=self.missing + other.missing,
            kinds=kinds,
            minimum=min((part[0] for part in (*ours, *theirs)), default=None),
            maximum=max((part[1] for part in (*ours, *theirs)), default=None),
            exponent=max(known, default=None) if len(known) == len(places) else None,
            not_kind={**other.not_kind, **self.not_kind},
            leading_zeros=self.leading_zeros or other.leading_zeros,
            float32_exact=self.float32_exact and other.float32_exact,
            list_lengths=(
                (min(part[0] for part in lengths), max(part[1] for part in lengths))
                if lengths
                else None
            ),
            is_typed=self.is_typed or other.is_typed,
            from_bytes=self.from_bytes or other.from_bytes,
            as_json=self.as_json or other.as_json,
            unnamed=self.unnamed or other.unnamed,
            types={**self.types, **{t: p for t, p in other.types.items() if t not in self.types}},
        )

    def _common(self, other: "Evidence") -> frozenset[str]:
        """Return the kinds of both; a column without values says nothing, a strange one all."""
        strange = {kind for kind in self.kinds | other.kinds if kind.startswith("other:")}
        if strange:
            return frozenset(strange)
        for ours, theirs in ((self.kinds, other.kinds), (other.kinds, self.kinds)):
            if ours == NULL:
                return theirs
        for ours, theirs in ((self.kinds, other.kinds), (other.kinds, self.kinds)):
            if ours == TEXT_KINDS:
                return theirs
        return self.kinds & other.kinds

    def range_as(self, kinds: frozenset[str]) -> list[tuple[Any, Any]]:
        """Return the range in the unit of these kinds; nothing where there is none."""
        if self.minimum is None or self.maximum is None or not kinds & RANGED:
            return []
        low, high = self.minimum, self.maximum
        if "date" in self.kinds and "date" not in kinds:
            return [(low * _DAY, high * _DAY)]
        if "integer" in self.kinds and "integer" not in kinds:
            return [(_as_float(low), _as_float(high))]
        return [(low, high)]


def _as_float(value: float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


RANGED: Final = frozenset({"integer", "float", "decimal", "date", "datetime", "time"})
"""Kinds that have a smallest and a largest value."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of one file.

    Attributes:
        key: The file, as the listing has it.
        table: The columns in the order of the file, names unique. Text is dictionary<int32,
            large_string> in the order of its first appearance; columns of CSV whose every value
            in the block is a canonical whole number within int64 are of the narrowest signed type,
            and `str` gives the text back. Others have the type of their file: whole numbers,
            floats, bool, date32, timestamp[us] with UTC or none, time64[us], decimals, lists of
            numbers or strings, null. What no table can hold is all null, in its type. Of a block
            that was written and opened again, whole numbers and indices have the narrowest signed
            type that holds those of the block.
        rows: [N] int64: the line where each record begins in CSV and JSON lines, the row in
            Parquet and Arrow; from 1.
        evidence: Of every column.
        errors: Records of the block that are no rows; keys are "file:line".
    """

    key: str
    table: "pa.Table"
    rows: "NDArray[np.int64]"
    evidence: dict[str, Evidence]
    errors: tuple[SampleError, ...] = ()
