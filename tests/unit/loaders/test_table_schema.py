"""table/schema.json: strict both ways, and in step with the records that it describes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loaders.errors import FormatError, MissingShardError
from loaders.format.files import crc32c_digits
from loaders.format.spec import read_manifest
from loaders.format.table_schema import (
    TABLE_SCHEMA,
    ColumnSpec,
    ColumnStatistics,
    TableSchema,
    read_table_schema,
)
from preprocess.plan import RunOptions
from tests.recipes import numbered_items
from tests.record_recipes import SCHEMA, RecordRecipe, prepare_records

STATISTICS: dict[str, Any] = {
    "count": 4, "missing": 1, "mean": 2.0, "std": 1.0, "minimum": 1, "maximum": 3,
    "quantiles": (1, 1, 1, 1.5, 2, 2.5, 3, 3, 3),
}  # fmt: skip
WORDS = {"vocabulary": "table/vocabulary/0000.json", "values": 3}


def test_columns_lie_by_falling_size_like_beside_like() -> None:
    assert SCHEMA.record == (
        ("seen", "int64", 1),
        ("größe in m", "float32", 1),
        ("embedding", "float32", 3),
        ("城市", "uint16", 1),
        ("age", "uint8", 1),
        ("y", "uint8", 1),
        ("_padding", "uint8", 4),
    )
    assert SCHEMA.record_dtype.itemsize == 32


def test_a_column_may_be_called_as_the_padding_is() -> None:
    columns = [("_padding", "float64"), ("_padding_", "uint8")]
    made = [
        ColumnSpec(name=name, kind="vector", role="feature", dtype=dtype)  # type: ignore[arg-type]
        for name, dtype in columns
    ]
    assert TableSchema(tuple(made)).record[-1] == ("_padding__", "uint8", 7)


def test_codes_count_missing_and_unknown_for_features_alone() -> None:
    assert SCHEMA.cardinality("城市") == 302
    assert SCHEMA.cardinality("y") == 2
    hashed = ColumnSpec(name="h", kind="categorical", role="feature", dtype="int32", buckets=1000)
    truth = ColumnSpec(name="b", kind="boolean", role="feature", dtype="uint8")
    assert TableSchema((hashed, truth)).cardinality("h") == 1001
    assert TableSchema((hashed, truth)).cardinality("b") == 3
    with pytest.raises(FormatError, match="'age': its values are no codes"):
        SCHEMA.cardinality("age")
    with pytest.raises(FormatError, match="no column 'Age'"):
        SCHEMA.cardinality("Age")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": ""}, "a name of 1 to"),
        ({"kind": "text"}, "one of"),
        ({"role": "label"}, "feature or target"),
        ({"dtype": "uint32"}, "a dtype of"),
        ({"dtype": "float32"}, "a dtype of .* for integer"),
        ({"kind": "boolean", "dtype": "uint16"}, "a dtype of"),
        ({"length": 2}, "an integer in 1..1"),
        ({"offset": 1 << 70}, "offset: got"),
        ({"offset": 0.5}, "offset: got"),
        ({"exponent": 1000}, "exponent: got"),
        ({**WORDS}, "a vocabulary or buckets exactly where"),
        ({"kind": "categorical"}, "a vocabulary or buckets exactly where"),
        ({"kind": "categorical", **WORDS, "buckets": 7}, "a vocabulary or buckets exactly where"),
        ({"kind": "categorical", **WORDS, "values": None}, "the number of values exactly where"),
        ({"kind": "categorical", **WORDS, "vocabulary": "../x"}, "vocabulary: got"),
        ({"kind": "categorical", **WORDS, "values": 255}, "got 257, expected codes that fit uint8"),
        ({"kind": "categorical", "buckets": 256}, "got 257, expected codes that fit uint8"),
    ],
)
def test_a_column_whose_attributes_do_not_go_together_is_refused(
    changed: dict[str, Any], message: str
) -> None:
    facts: dict[str, Any] = {"name": "a", "kind": "integer", "role": "feature", "dtype": "uint8"}

    with pytest.raises(FormatError, match=message):
        ColumnSpec(**{**facts, **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"missing": 5},
        {"missing": -1},
        {"mean": None},
        {"mean": float("nan")},
        {"maximum": float("inf")},
        {"std": -1.0},
        {"minimum": 4},
        {"quantiles": ()},
        {"quantiles": (3, 1, 1, 1, 1, 1, 1, 1, 1)},
        {"mean": True},
    ],
)
def test_statistics_that_no_rows_could_give_are_refused(changed: dict[str, Any]) -> None:
    ColumnStatistics(**STATISTICS)

    with pytest.raises(FormatError, match=r"^statistics: got"):
        ColumnStatistics(**{**STATISTICS, **changed})


def test_a_column_without_any_value_has_statistics_of_nothing() -> None:
    nothing = dict.fromkeys(("mean", "std", "minimum", "maximum"))
    found = ColumnStatistics(**{**STATISTICS, **nothing, "missing": 4, "quantiles": ()})
    column = ColumnSpec(name="a", kind="integer", role="feature", dtype="uint8", statistics=found)
    schema = TableSchema((column,))
    assert TableSchema.from_json(json.loads(schema.to_bytes()), "here") == schema


def members(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, member in inner:
        found.append((value, key))
        if isinstance(member, dict | list):
            found += members(member)
    return found


def test_any_value_of_another_type_and_any_other_key_is_refused() -> None:
    whole = json.loads(SCHEMA.to_bytes())
    for index in range(len(members(whole))):
        value = json.loads(SCHEMA.to_bytes())
        parent, key = members(value)[index]
        before = parent[key]
        for other in (True, "x", [1], {"unknown": 1}, -1.5, 1e300):
            if type(other) is type(before) or (
                type(before) in {int, float} and type(other) in {int, float}
            ):
                continue
            parent[key] = other
            with pytest.raises(FormatError):
                TableSchema.from_json(value, "here")
        if isinstance(parent, dict):
            del parent[key]
            with pytest.raises(FormatError):
                TableSchema.from_json(value, "here")
            parent[key] = before
            parent["another"] = 1
            with pytest.raises(FormatError):
                TableSchema.from_json(value, "here")


@pytest.mark.parametrize(
    "value", [None, [], {}, {"columns": []}, {"columns": {}}, {"columns": [1]}]
)
def test_what_is_no_schema_is_refused(value: Any) -> None:
    with pytest.raises(FormatError, match=r"^here: "):
        TableSchema.from_json(value, "here")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    options = RunOptions(shard_nbytes=128, workers=1)
    return prepare_records(tmp_path, numbered_items(3), options, RecordRecipe(), SCHEMA)


def test_the_schema_of_a_dataset_is_read_with_it(table: Path, tmp_path: Path) -> None:
    manifest = read_manifest(table)

    assert read_table_schema(table, manifest) == SCHEMA
    assert read_table_schema(table, replace(manifest, extras={})) is None


def test_a_schema_that_is_not_the_one_of_the_records_is_refused(table: Path) -> None:
    manifest = read_manifest(table)
    path = table / TABLE_SCHEMA
    path.write_bytes(SCHEMA.to_bytes().replace(b'"age"', b'"Age"'))
    with pytest.raises(FormatError, match="expected size and CRC-32C"):
        read_table_schema(table, manifest)

    data = path.read_bytes()
    changed = {**manifest.extras, TABLE_SCHEMA: (len(data), crc32c_digits(data))}
    with pytest.raises(FormatError, match="the records of the manifest"):
        read_table_schema(table, replace(manifest, extras=changed))

    path.write_bytes(SCHEMA.to_bytes())
    alone = {TABLE_SCHEMA: manifest.extras[TABLE_SCHEMA]}
    with pytest.raises(FormatError, match=r"vocabulary/0002\.json', expected a file that the man"):
        read_table_schema(table, replace(manifest, extras=alone))

    path.unlink()
    with pytest.raises(MissingShardError, match=r"schema\.json: not found"):
        read_table_schema(table, manifest)
