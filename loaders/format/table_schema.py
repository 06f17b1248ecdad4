"""What the columns of a table became: `table/schema.json`, the same for training and serving.

A column is stored as numbers of one dtype in a record (see `records`). The schema says how a value
is written as such a number and back, and what was found over the training rows.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np

from loaders.errors import FormatError
from loaders.format.files import checksum, read_json, to_json
from loaders.format.records import (
    MAX_PARTS,
    MAX_RECORD_NBYTES,
    RecordPart,
    check_name,
    check_record,
    pack_record,
    record_dtype,
)
from loaders.format.spec import Manifest
from loaders.format.strict import Place
from loaders.format.table_statistics import QUANTILES, ColumnStatistics, Loss

__all__ = [
    "QUANTILES",
    "TABLE_SCHEMA",
    "ColumnDtype",
    "ColumnKind",
    "ColumnRole",
    "ColumnSpec",
    "ColumnStatistics",
    "Loss",
    "TableSchema",
    "read_table_schema",
]

TABLE_SCHEMA: Final = "table/schema.json"
"""Its place in the dataset; an extra of the manifest."""

ColumnKind = Literal[
    "categorical", "integer", "float", "boolean", "date", "datetime", "decimal", "vector"
]
ColumnRole = Literal["feature", "target"]
ColumnDtype = Literal["uint8", "uint16", "int32", "int64", "float32", "float64"]

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
_MAX_EXPONENT: Final = 400

_VOCABULARY = re.compile(r"table/vocabulary/[0-9]{4,8}\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSpec:
    """One column of the table, and how its values are numbers.

    Integers, decimals, dates (days) and datetimes (microseconds, UTC), both since 1970, are
    `(code - 1 + offset) * 10**exponent`, 0 is a missing value. Booleans are 1 for false and 2 for
    true, 0 is missing. A missing float is NaN.

    Attributes:
        name: The user's own.
        kind: What its values are.
        role: What they are for.
        dtype: Stored type.
        length: Values of a vector; 1 for all others.
        offset: See above.
        exponent: See above.
        vocabulary: File below the dataset, JSON {"values": [...], "counts": [...]}, of a
            categorical column: 0 is missing, 1 unknown, 2 on are the values by falling count in
            the training rows. Of a categorical target: 0 on are the classes in ascending order.
        values: Entries of the vocabulary; None without one.
        buckets: Of a hashed column: 0 is missing, others 1 + CRC-32C of the UTF-8 % buckets.
        statistics: Of a numeric column.
        losses: What was lost on the way.
    """

    name: str
    kind: ColumnKind
    role: ColumnRole
    dtype: ColumnDtype
    length: int = 1
    offset: int = 0
    exponent: int = 0
    vocabulary: str | None = None
    values: int | None = None
    buckets: int | None = None
    statistics: ColumnStatistics | None = None
    losses: tuple[Loss, ...] = ()

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
        place.at("offset").integer(self.offset, low=-_MAX_OFFSET, high=_MAX_OFFSET)
        place.at("exponent").integer(self.exponent, low=-_MAX_EXPONENT, high=_MAX_EXPONENT)
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
            "vocabulary": self.vocabulary,
            "values": self.values,
            "buckets": self.buckets,
            "statistics": None if self.statistics is None else self.statistics.to_json(),
            "losses": [loss.to_json() for loss in self.losses],
        }

    @classmethod
    def from_json(cls, place: Place, value: Any) -> "ColumnSpec":
        """Parse the JSON form; `place` names it in errors."""
        numbers = {"length", "offset", "exponent"}
        texts = {"name", "kind", "role", "dtype"}
        own = {"vocabulary", "values", "buckets", "statistics", "losses"}
        entry = place.mapping(value, numbers | texts | own)
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
            vocabulary=None if vocabulary is None else place.at("vocabulary").text(vocabulary),
            values=_count(place.at("values"), entry["values"], low=0),
            buckets=_count(place.at("buckets"), entry["buckets"], low=1),
            statistics=None
            if statistics is None
            else ColumnStatistics.from_json(place.at("statistics"), statistics),
            losses=tuple(Loss.from_json(at, item) for item in at.sequence(entry["losses"])),
        )


@dataclass(frozen=True, slots=True)
class TableSchema:
    """All columns of a table, in the order of the source; ignored ones are not among them."""

    columns: tuple[ColumnSpec, ...]

    def __post_init__(self) -> None:
        """Refuse columns that are no record together."""
        check_record(Place("table schema"), self.record)

    @property
    def record(self) -> tuple[RecordPart, ...]:
        """The parts of a sample as they are stored, for `FieldSpec`; the padding is the last."""
        return pack_record((spec.name, spec.dtype, spec.length) for spec in self.columns)

    @property
    def record_dtype(self) -> np.dtype[Any]:
        """The structured dtype of a sample."""
        return record_dtype(self.record)

    def column(self, name: str) -> ColumnSpec:
        """Return a column by its name.

        Raises:
            FormatError: There is none of that name.
        """
        for spec in self.columns:
            if spec.name == name:
                return spec
        raise FormatError(f"table schema: no column {name!r}")

    def cardinality(self, name: str) -> int:
        """Return how many codes a column may hold: the rows that its embedding needs.

        Raises:
            FormatError: There is no such column, or its values are no codes.
        """
        found = self.column(name).cardinality
        if found is None:
            raise FormatError(f"column {name!r}: its values are no codes")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"columns": [spec.to_json() for spec in self.columns]}

    def to_bytes(self) -> bytes:
        """Return the file's bytes: the same for the same schema."""
        return to_json(self.to_json())

    @classmethod
    def from_json(cls, value: Any, where: str) -> "TableSchema":
        """Parse the JSON form.

        Args:
            value: What `read_json` returned.
            where: Names the file in errors.

        Raises:
            FormatError: It is not a schema.
        """
        place = Place(where).at("columns")
        columns = place.sequence(Place(where).mapping(value, {"columns"})["columns"])
        place.expect(0 < len(columns) <= MAX_PARTS, len(columns), f"1 to {MAX_PARTS} columns")
        return cls(
            tuple(
                ColumnSpec.from_json(place.at(str(index)), entry)
                for index, entry in enumerate(columns)
            )
        )


def read_table_schema(root: Path, manifest: Manifest) -> TableSchema | None:
    """Read the schema of the dataset in `root`; None if it has none, being no table.

    Raises:
        MissingShardError: The file is not there.
        FormatError: It is damaged, or describes other records than the manifest does.
    """
    promised = manifest.extras.get(TABLE_SCHEMA)
    if promised is None:
        return None
    path = root / TABLE_SCHEMA
    schema = TableSchema.from_json(read_json(path), str(path))
    found = (path.stat().st_size, checksum(path))
    Place(str(path)).expect(found == promised, found, f"size and CRC-32C {promised}")
    for spec in schema.columns:
        if spec.vocabulary is not None:
            Place(str(path)).at(repr(spec.name)).expect(
                spec.vocabulary in manifest.extras,
                spec.vocabulary,
                "a file that the manifest names",
            )
    for split in manifest.splits.values():
        for field in split.fields:
            if field.record is not None:
                Place(str(path)).expect(
                    field.record == schema.record, schema.record, "the records of the manifest"
                )
    return schema


def _count(place: Place, value: Any, *, low: int) -> int | None:
    return None if value is None else place.integer(value, low=low, high=1 << 32)


def _one_of(place: Place, value: str, known: tuple[Any, ...]) -> Any:
    place.expect(value in known, value, f"one of {known}")
    return value
