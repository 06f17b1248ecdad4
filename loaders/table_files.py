"""The files of a table beside its shards, read as the manifest names them: schema, vocabularies."""

from pathlib import Path
from typing import Final

from loaders.errors import FormatError, SelectionError
from loaders.format.files import checksum, expect_inside, read_json
from loaders.format.promised import REMEDY
from loaders.format.records import RECORD, RecordPart
from loaders.format.spec import Manifest, read_manifest
from loaders.format.strict import Place, parsing
from loaders.format.table_schema import (
    TABLE_SCHEMA,
    ColumnSpec,
    TableSchema,
    read_table_schema,
)

TABLE: Final = "table"
"""Kind of dataset."""


def read_table(root: Path) -> tuple[Manifest, TableSchema]:
    """Read the description of a table.

    Raises:
        IncompleteError: There is no finished dataset in the folder.
        SelectionError: The dataset is none of a table.
        MissingShardError: The schema is not there.
        FormatError: Manifest or schema is damaged.
        VersionError: A newer format wrote it.
    """
    manifest = read_manifest(root)
    if manifest.kind != TABLE:
        remedy = "open_tokens" if manifest.kind == "tokens" else "open_dataset"
        raise SelectionError(
            f"{root}: a dataset of kind {manifest.kind!r} is no table: open it with "
            f"loaders.{remedy}"
        )
    schema = read_table_schema(root, manifest)
    if schema is None:
        raise FormatError(f"{root}: the manifest names no {TABLE_SCHEMA}; prepare the table again")
    return manifest, schema


def checked_record(
    root: Path, split: str, manifest: Manifest, schema: TableSchema
) -> tuple[RecordPart, ...]:
    """Return the parts of the records of a split, as they are stored.

    Raises:
        FormatError: They are not those of the schema.
    """
    fields = {field.name: field for field in manifest.splits[split].fields}
    record = fields[RECORD].record if RECORD in fields else None
    if record is None or sorted(record) != sorted(schema.record):
        raise FormatError(
            f"{root}: {split} has no field {RECORD!r} of the columns in the schema; "
            'run "prep check" or prepare it again'
        )
    return record


def read_vocabulary(root: Path, manifest: Manifest, spec: ColumnSpec) -> tuple[str, ...]:
    """Read the values of a column, in the order of their codes; () for one without a vocabulary.

    Raises:
        MissingShardError: The file is not there.
        FormatError: It is not what manifest and schema promise.
    """
    if spec.vocabulary is None:
        return ()
    path = root / spec.vocabulary
    expect_inside(root, path)
    with parsing(path, REMEDY):
        place = Place(str(path))
        entry = place.mapping(read_json(path), {"values", "counts"})
        found = (path.stat().st_size, checksum(path))
        promised = manifest.extras.get(spec.vocabulary)
        place.expect(found == promised, found, f"size and CRC-32C {promised}")
        values = place.at("values").sequence(entry["values"])
        place.at("values").expect(
            all(isinstance(value, str) for value in values)
            and len(set(values)) == len(values) == spec.values,
            values,
            f"{spec.values} different strings",
        )
    return tuple(values)


def read_classes(root: Path, manifest: Manifest, target: ColumnSpec | None) -> tuple[str, ...]:
    """Read the classes of a target; () where it has none, or there is none.

    Raises:
        MissingShardError: The file is not there.
        FormatError: It is not what manifest and schema promise.
    """
    if target is None:
        return ()
    if target.kind == "boolean":
        return ("false", "true")
    return read_vocabulary(root, manifest, target)
