"""`prep info` and `prep check` on datasets of records, with and without a schema."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from loaders.format.table_schema import TABLE_SCHEMA, ColumnSpec, ColumnStatistics, TableSchema
from preprocess import check_dataset
from preprocess.cli import prep
from preprocess.plan import RunOptions
from preprocess.tables.info import table_text
from tests.recipes import numbered_items
from tests.record_recipes import SCHEMA, RecordRecipe, prepare_records


@pytest.fixture
def table(tmp_path: Path) -> Path:
    options = RunOptions(shard_nbytes=64, workers=1)
    return prepare_records(tmp_path, numbered_items(5), options, RecordRecipe(), SCHEMA)


def test_info_shows_every_column_with_what_is_known_of_it(table: Path) -> None:
    result = CliRunner().invoke(prep, ["info", str(table)])

    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert "record record of 7 parts 928 B" in lines
    start = lines.index(
        "columns: 6 (2 categorical, 1 integer, 1 float, 1 vector, 1 datetime), 32 bytes a row"
    )
    assert lines[start + 1 :] == [
        "age uint8 integer 1 missing, 18 to 90, mean 38.5",
        "größe in m float32 float",
        "城市 uint16 categorical 302 codes",
        "embedding float32 vector 3 values a row",
        "seen int64 datetime",
        "y uint8 categorical target, 2 codes",
        "lossy: größe in m: rounded to float32: 2 values, the worst by 0.001",
    ]


def test_info_as_json_has_the_schema_and_the_parts_of_the_record(table: Path) -> None:
    found = json.loads(CliRunner().invoke(prep, ["info", str(table), "--json"]).output)

    columns = found["table"]["columns"]
    assert [{k: v for k, v in c.items() if k != "cardinality"} for c in columns] == (
        SCHEMA.to_json()["columns"]
    )
    assert columns[2]["cardinality"] == 302
    record = found["splits"]["train"]["fields"]["record"]["record"]
    assert record == [list(part) for part in SCHEMA.record]


def test_records_without_a_schema_are_shown_as_a_field(tmp_path: Path) -> None:
    out = prepare_records(tmp_path, numbered_items(2), RunOptions(workers=1), RecordRecipe())

    result = CliRunner().invoke(prep, ["info", str(out)])

    assert result.exit_code == 0
    assert "of 7 parts" in result.output
    assert "columns:" not in result.output
    assert check_dataset(out, full=True).problems == ()


def column_of(kind: str, minimum: float, maximum: float) -> ColumnSpec:
    found = ColumnStatistics(
        count=2,
        missing=0,
        mean=(minimum + maximum) / 2,
        std=(maximum - minimum) / 2,
        minimum=minimum,
        maximum=maximum,
        quantiles=(minimum,) * 5 + (maximum,) * 4,
    )
    return ColumnSpec(name="c", kind=kind, role="feature", dtype="int64", statistics=found)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "minimum", "maximum", "text"),
    [
        ("integer", 0, 2**60, "0 to 1,152,921,504,606,846,976, mean 5.76461e+17"),
        ("date", -1, 365, "1969-12-31 to 1971-01-01, mean 1970-07-02"),
        ("datetime", 0, 86_400_000_001, "1970-01-01 00:00:00 to 1970-01-02 00:00:00"),
        ("date", 0, 10_000_000, "1970-01-01 to 10,000,000, mean 5e+06"),
    ],
)
def test_extremes_are_shown_as_what_they_are(
    kind: str, minimum: float, maximum: float, text: str
) -> None:
    column = column_of(kind, minimum, maximum)
    described = {"columns": [{**column.to_json(), "cardinality": None}], "record_nbytes": 8}

    assert text in table_text(described)


def test_of_many_columns_the_first_40_are_shown_and_names_stay_short() -> None:
    schema = TableSchema(
        tuple(
            ColumnSpec(name=f"{i}\x1b{'n' * 99}", kind="integer", role="feature", dtype="uint8")
            for i in range(1041)
        )
    )
    columns = [{**spec.to_json(), "cardinality": None} for spec in schema.columns]

    lines = table_text({"columns": columns, "record_nbytes": 1041}).splitlines()

    assert len(lines) == 42
    assert lines[-1] == "  ... and 1,001 more"
    assert max(map(len, lines)) < 80
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("damage", ["changed", "missing", "no JSON"])
def test_check_names_a_schema_that_is_not_that_of_the_records(table: Path, damage: str) -> None:
    path = table / TABLE_SCHEMA
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"x" * len(data) if damage == "no JSON" else data.replace(b"age", b"Age"))

    found = check_dataset(table)

    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"{path}: ")
    assert len(check_dataset(table, full=True).problems) == 1
