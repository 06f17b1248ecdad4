"""What the columns of a table became: `table/schema.json`, the same for training and serving.

A column is stored as numbers of one dtype in a record (see `records`). The schema says how a value
is written as such a number and back, and what was found over the training rows.
"""

from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import numpy as np

from loaders.errors import FormatError
from loaders.format.fields import FieldSpec
from loaders.format.files import checksum, expect_inside, read_json, to_json
from loaders.format.promised import REMEDY
from loaders.format.records import (
    MAX_PARTS,
    RecordPart,
    check_record,
    pack_record,
    record_dtype,
)
from loaders.format.spec import Manifest
from loaders.format.strict import Place, parsing
from loaders.format.table_column import (
    ColumnDtype,
    ColumnKind,
    ColumnRole,
    ColumnSpec,
    ListLayout,
)
from loaders.format.table_lists import LIST_ROLE, length_names, list_fields, parts_of
from loaders.format.table_statistics import QUANTILES, ColumnStatistics, Loss

__all__ = [
    "QUANTILES",
    "TABLE_SCHEMA",
    "ColumnDtype",
    "ColumnKind",
    "ColumnRole",
    "ColumnSpec",
    "ColumnStatistics",
    "ListLayout",
    "Loss",
    "TableSchema",
    "read_table_schema",
]

TABLE_SCHEMA: Final = "table/schema.json"
"""Its place in the dataset; an extra of the manifest."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """All columns of a table, in the order of the source; ignored ones are not among them."""

    columns: tuple[ColumnSpec, ...]

    def __post_init__(self) -> None:
        """Refuse columns that are no record together."""
        check_record(Place("table schema"), self.record)

    @property
    def record(self) -> tuple[RecordPart, ...]:
        """The parts of a sample as they are stored, for `FieldSpec`; the padding is the last.

        Among those of one dtype, what a batch holds together stands together: a loader then casts
        one run of each. What is stored in another order is described by its field.
        """
        together = sorted(self.columns, key=_entry)
        lengths = self.length_names
        return pack_record(part for spec in together for part in parts_of(spec, lengths))

    @property
    def record_dtype(self) -> np.dtype[Any]:
        """The structured dtype of a sample."""
        return record_dtype(self.record)

    @property
    def length_names(self) -> dict[str, str]:
        """The part of the record that says how many values a list has, of each that varies."""
        return length_names(self.columns)

    @property
    def list_fields(self) -> dict[str, FieldSpec]:
        """The field beside the record that holds the values of a column of ragged lists."""
        return list_fields(self.columns)

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


def _entry(spec: ColumnSpec) -> int:
    """Return a number of what a batch holds a column in: numbers, codes, itself, or the target."""
    if spec.role == "target":
        return 3
    if spec.kind == "vector":
        return 2
    return int(spec.kind == "categorical")


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
    expect_inside(root, path)
    with parsing(path, REMEDY):
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
    lists = sorted(schema.list_fields.values(), key=attrgetter("name"))
    for split in manifest.splits.values():
        found_lists = [field for field in split.fields if field.role == LIST_ROLE]
        Place(str(path)).expect(
            sorted(found_lists, key=attrgetter("name")) == lists,
            [field.name for field in lists],
            "the ragged lists of the manifest",
        )
        for field in split.fields:
            if field.record is not None:
                Place(str(path)).expect(
                    sorted(field.record) == sorted(schema.record),
                    schema.record,
                    "the records of the manifest, in any order",
                )
    return schema
