"""One column of a table: how its values are written as numbers of one dtype, and back."""

import re
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

import numpy as np

from loaders.format.records import MAX_RECORD_NBYTES, check_name
from loaders.format.strict import Place
from loaders.format.table_statistics import ColumnStatistics, Loss

ColumnKind = Literal[
    "categorical", "integer", "float", "boolean", "date", "datetime", "decimal", "vector"
]
ColumnRole = Literal["feature", "target"]
ColumnDtype = Literal["uint8", "uint16", "int32", "int64", "float32", "float64"]
ListLayout = Literal["fixed", "padded", "ragged"]
ListItems = Literal["boolean", "date", "datetime"]
Wrapping = Literal["int64", "uint64"]

_FLOATS: Final = ("float32", "float64")
_CODES: Final = ("uint8", "uint16", "int32", "int64")
_DTYPES: Final[dict[ColumnKind, tuple[str, ...]]] = {
    "categorical": _CODES,
    "integer": _CODES,
    "decimal": _CODES,
    "date": _CODES,
    "datetime": _CODES,
    "boolean": ("uint8",),
    "float": _FLOATS,
    "vector": (*_CODES, *_FLOATS),
}
_MAX_OFFSET: Final = 1 << 64
_UNSIGNED: Final = 1 << 63
"""Offset of unsigned numbers of 64 bits, as int64."""
_MAX_EXPONENT: Final = 400

ENTRIES: Final = ("numeric", "categorical", "target")
"""Entries of batches, beside which vectors have their own names."""

_VOCABULARY = re.compile(r"table/vocabulary/[0-9]{4,8}\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSpec:
    """One column of the table, and how its values are numbers.

    Integers, decimals, dates (days) and datetimes (microseconds, UTC), both since 1970, are
    `(code - 1 + offset) * 10**exponent`, 0 is a missing value. Where the range of such a column
    leaves no code for missing ones, and none is missing, they are `(code + offset) * 10**exponent`.
    Where some are, `code - 1 + offset` is meant modulo 2**64, within the type that `wraps` names:
    code 0 takes the place of a number that no row has.
    Booleans are 1 for false and 2 for true, 0 is missing. A missing float is NaN.

    Attributes:
        name: The user's own.
        kind: What its values are.
        role: What they are for.
        dtype: Stored type.
        length: Values of a vector, of lists of several lengths those of the longest; 1 for all
            others.
        offset: See above.
        exponent: See above.
        nullable: Code 0 is a missing value; False for int64 alone, whose offset is then 0, or 2**63
            for unsigned numbers of 64 bits.
        vocabulary: File below the dataset, JSON {"values": [...], "counts": [...]}, of a
            categorical column: 0 is missing, 1 unknown, 2 on are the values by falling count in
            the training rows. Of a categorical target: 0 on are the classes in ascending order.
        values: Entries of the vocabulary; None without one.
        buckets: Of a hashed column: 0 is missing, others 1 + CRC-32C of the UTF-8 % buckets.
        statistics: Of a numeric column.
        losses: What was lost on the way.
        wraps: See above; None for all others.
        layout: Of lists: "fixed" where all have as many values; else "padded", filled up in the
            record to the longest, or "ragged", a field beside it. See `table_lists`.
        holds: What the values of lists are, as a kind; None where they are numbers or texts.
    """

    name: str
    kind: ColumnKind
    role: ColumnRole
    dtype: ColumnDtype
    length: int = 1
    offset: int = 0
    exponent: int = 0
    nullable: bool = True
    vocabulary: str | None = None
    values: int | None = None
    buckets: int | None = None
    statistics: ColumnStatistics | None = None
    losses: tuple[Loss, ...] = ()
    wraps: Wrapping | None = None
    layout: ListLayout = "fixed"
    holds: ListItems | None = None

    def __post_init__(self) -> None:
        """Refuse attributes that do not go together."""
        check_name(Place("column"), self.name)
        place = Place(f"column {self.name!r}")
        place.expect(self.kind in _DTYPES, self.kind, f"one of {get_args(ColumnKind)}")
        place.expect(self.role in get_args(ColumnRole), self.role, "feature or target")
        allowed = _DTYPES[self.kind]
        place.expect(self.dtype in allowed, self.dtype, f"a dtype of {allowed} for {self.kind}")
        most = MAX_RECORD_NBYTES if self.kind == "vector" else 1
        place.at("length").integer(self.length, low=1, high=most)
        self._check_layout(place.at("layout"))
        self._check_holds(place.at("holds"))
        place.at("offset").integer(self.offset, low=-_MAX_OFFSET, high=_MAX_OFFSET)
        place.at("exponent").integer(self.exponent, low=-_MAX_EXPONENT, high=_MAX_EXPONENT)
        self._check_whole(place)
        codes = self.kind == "categorical" or (self.kind == "vector" and self.dtype in _CODES)
        ways = (self.vocabulary is not None) + (self.buckets is not None)
        place.expect(
            ways <= codes and ways >= (self.kind == "categorical"),
            (self.vocabulary, self.buckets),
            f"a vocabulary or buckets exactly where they belong to {self.kind} of {self.dtype}",
        )
        place.expect(
            (self.values is None) == (self.vocabulary is None),
            self.values,
            "the number of values exactly where there is a vocabulary",
        )
        if self.vocabulary is not None:
            place.at("vocabulary").text(self.vocabulary, _VOCABULARY)
        if codes and self.cardinality is not None:
            top = np.iinfo(self.dtype).max
            place.expect(
                self.cardinality - 1 <= top, self.cardinality, f"codes that fit {self.dtype}"
            )

    def _check_layout(self, place: Place) -> None:
        """Refuse layouts of what is no list, and lists without anything to fill them up with."""
        place.expect(self.layout in get_args(ListLayout), self.layout, f"{get_args(ListLayout)}")
        if self.layout != "fixed":
            is_list = self.kind == "vector" and self.role == "feature"
            place.expect(is_list, self.layout, "fixed for what is no list of a feature")
            filled = self.nullable or self.layout == "ragged"
            place.expect(filled, self.layout, "ragged where no code is kept for missing values")

    def _check_holds(self, place: Place) -> None:
        """Refuse lists of truth values or times that are stored as something else."""
        if self.holds is None:
            return
        place.expect(self.holds in get_args(ListItems), self.holds, f"{get_args(ListItems)}")
        texts = self.vocabulary is not None or self.buckets is not None
        whole = self.kind == "vector" and self.dtype in _DTYPES[self.holds] and not texts
        place.expect(whole, (self.kind, self.dtype), f"a vector of {_DTYPES[self.holds]}")

    def _check_whole(self, place: Place) -> None:
        """Refuse codes of all 64 bits where the kind or the type has others."""
        nullable, wraps = place.at("nullable"), place.at("wraps")
        nullable.expect(type(self.nullable) is bool, self.nullable, "true or false")
        known = (None, *get_args(Wrapping))
        wraps.expect(self.wraps in known, self.wraps, f"one of {known}")
        if self.all_bits is None:
            return
        found = (self.kind, self.dtype, self.offset)
        whole = self.dtype == "int64" and self.kind not in {"categorical", "boolean", "float"}
        texts = self.vocabulary is not None or self.buckets is not None
        at = nullable if self.wraps is None else wraps
        at.expect(whole and not texts, found, "whole numbers of int64")
        if self.wraps is None:
            at.expect(self.offset in {0, _UNSIGNED}, found, f"an offset of 0 or {_UNSIGNED}")
            return
        low, high = self.bounds
        at.expect(self.nullable and low <= self.base <= high, found, f"an offset for {self.wraps}")

    @property
    def base(self) -> int:
        """What is added to the code of a whole number: the value is that times 10**exponent."""
        return self.offset - 1 if self.nullable else self.offset

    @property
    def all_bits(self) -> Wrapping | None:
        """The type whose numbers codes and base add up to, modulo 2**64; None where some have none.

        None of the numbers but `unused` is without a code.
        """
        if self.nullable:
            return self.wraps
        return "uint64" if self.offset else "int64"

    @property
    def unused(self) -> int | None:
        """The number within the bounds that has no code; None where all have."""
        return None if self.wraps is None else self.base

    @property
    def shown_range(self) -> str:
        """The numbers that have codes, in words, without the exponent."""
        low, high = self.bounds
        return f"{low}..{high}" + (f" without {self.base}" if self.wraps is not None else "")

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest whole number that has a code, without the exponent."""
        limits = np.iinfo(self.dtype if self.wraps is None else self.wraps)
        if self.wraps is not None:
            return int(limits.min), int(limits.max)
        return self.base + (1 if self.nullable else int(limits.min)), self.base + int(limits.max)

    @property
    def unsigned(self) -> bool:
        """Whether some of these are beyond int64; they are within uint64 then."""
        whole = self.kind in {"integer", "vector"} and self.dtype in _CODES and not self.holds
        return whole and self.bounds[1] >= _UNSIGNED

    @property
    def item(self) -> "ColumnSpec":
        """A column of what a list holds, one value in each row."""
        codes = self.vocabulary is not None or self.buckets is not None
        number: ColumnKind = "float" if self.dtype in _FLOATS else "integer"
        kind: ColumnKind = "categorical" if codes else self.holds or number
        return replace(self, kind=kind, length=1, layout="fixed", holds=None)

    @property
    def cardinality(self) -> int | None:
        """Codes that may occur: rows of an embedding; None where values are no codes."""
        if self.kind == "boolean":
            return 3
        if self.buckets is not None:
            return self.buckets + 1
        if self.values is not None:
            return self.values + (0 if self.role == "target" else 2)
        return None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "kind": self.kind,
            "role": self.role,
            "dtype": self.dtype,
            "length": self.length,
            "offset": self.offset,
            "exponent": self.exponent,
            "nullable": self.nullable,
            "vocabulary": self.vocabulary,
            "values": self.values,
            "buckets": self.buckets,
            "statistics": None if self.statistics is None else self.statistics.to_json(),
            "losses": [loss.to_json() for loss in self.losses],
            # Schemas without such columns are those of before there were any.
            **({} if self.layout == "fixed" else {"layout": self.layout}),
            **({} if self.wraps is None else {"wraps": self.wraps}),
            **({} if self.holds is None else {"holds": self.holds}),
        }

    @classmethod
    def from_json(cls, place: Place, value: Any) -> "ColumnSpec":
        """Parse the JSON form; `place` names it in errors."""
        numbers = {"length", "offset", "exponent"}
        texts = {"name", "kind", "role", "dtype"}
        own = {"nullable", "vocabulary", "values", "buckets", "statistics", "losses"}
        later = {"layout": "fixed", "wraps": None, "holds": None}
        keys = numbers | texts | own | later.keys()
        entry = place.mapping({**later, **place.partial_mapping(value, keys)}, keys)
        layout = place.at("layout").text(entry["layout"])
        wraps, holds = entry["wraps"], entry["holds"]
        kind, role, dtype = (place.at(n).text(entry[n]) for n in ("kind", "role", "dtype"))
        vocabulary, statistics = entry["vocabulary"], entry["statistics"]
        at = place.at("losses")
        return cls(
            name=place.at("name").text(entry["name"]),
            kind=_one_of(place.at("kind"), kind, get_args(ColumnKind)),
            role=_one_of(place.at("role"), role, get_args(ColumnRole)),
            dtype=_one_of(place.at("dtype"), dtype, get_args(ColumnDtype)),
            length=entry["length"],
            offset=entry["offset"],
            exponent=entry["exponent"],
            nullable=entry["nullable"],
            vocabulary=None if vocabulary is None else place.at("vocabulary").text(vocabulary),
            values=_count(place.at("values"), entry["values"], low=0),
            buckets=_count(place.at("buckets"), entry["buckets"], low=1),
            statistics=None
            if statistics is None
            else ColumnStatistics.from_json(place.at("statistics"), statistics),
            losses=tuple(Loss.from_json(at, item) for item in at.sequence(entry["losses"])),
            wraps=None if wraps is None else _one_of(place.at("wraps"), wraps, get_args(Wrapping)),
            layout=_one_of(place.at("layout"), layout, get_args(ListLayout)),
            holds=None if holds is None else _one_of(place.at("holds"), holds, get_args(ListItems)),
        )


def _count(place: Place, value: Any, *, low: int) -> int | None:
    return None if value is None else place.integer(value, low=low, high=1 << 32)


def _one_of(place: Place, value: str, known: tuple[Any, ...]) -> Any:
    place.expect(value in known, value, f"one of {known}")
    return value
