"""Columns whose type differs from file to file, and types that are no numbers: exact, or named."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.feather  # noqa: TID253
import pyarrow.parquet as pq  # noqa: TID253
import pytest

from loaders import TableEncoder
from loaders.format.spec import read_manifest
from loaders.format.table_schema import ColumnSpec, read_table_schema
from preprocess.errors import SourceError
from preprocess.tables.options import TableOptions
from preprocess.tables.prepare import table_to_shards
from tests.token_commands import call

LONG = Decimal("12345678901234567890.12")
NOON = datetime(2024, 1, 2, 12)


def write_files(tmp_path: Path, **columns: Any) -> Path:
    """Write a Parquet file for each of some arrays of the column 'id'."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name, column in columns.items():
        pq.write_table(
            pa.table({"id": column, "x": range(len(column))}), folder / f"{name}.parquet"
        )
    return folder


def vocabulary_of(out: Path) -> list[str]:
    found: list[str] = json.loads((out / "table/vocabulary/0000.json").read_text())["values"]
    return found


def column_of(out: Path, name: str) -> ColumnSpec:
    schema = read_table_schema(out, read_manifest(out))
    assert schema is not None
    return schema.column(name)


def decimals(*values: str, places: int = 2) -> pa.Array:
    return pa.array(list(map(Decimal, values)), pa.decimal128(38, places))


@pytest.mark.parametrize("asked", ['dtype = "float64"', 'kind = "float"'])
def test_decimals_that_become_floats_list_what_is_lost(tmp_path: Path, asked: str) -> None:
    values = [LONG, Decimal("1.50"), LONG, Decimal("965741.19"), None]
    source = write_files(tmp_path, a=pa.array(values, pa.decimal128(38, 2)))
    (tmp_path / "schema.toml").write_text(f"[columns.id]\n{asked}\n")

    result = call("table", source, tmp_path / "out", "--schema", tmp_path / "schema.toml")

    assert result.exit_code == 0, result.output
    spec = column_of(tmp_path / "out", "id")
    (loss,) = spec.losses
    assert (loss.what, loss.values) == ("decimals rounded to float64", 3)
    assert loss.worst == float(abs(Decimal(float(LONG)) - LONG))
    stored = np.load(tmp_path / "out/train/00000.record.npy")["id"]
    assert stored[:4].tolist() == [float(value) for value in values[:4] if value is not None]
    encoded = TableEncoder(tmp_path / "out").encode({"id": values, "x": range(5)})["id"]
    assert encoded.tobytes() == stored.tobytes()

    again = call("table", source, tmp_path / "new", "--like", tmp_path / "out")
    assert "column 'id': 3 values: decimals rounded to float64, the worst by" in again.stdout


def test_decimals_that_floats_hold_list_no_loss(tmp_path: Path) -> None:
    source = write_files(tmp_path, a=decimals("1.50", "-0.25"))
    (tmp_path / "schema.toml").write_text('[columns.id]\ndtype = "float64"\n')

    assert (
        call("table", source, tmp_path / "out", "--schema", tmp_path / "schema.toml").exit_code == 0
    )

    assert column_of(tmp_path / "out", "id").losses == ()


@pytest.mark.parametrize("options", [("--categorical", "id"), ("--hash-buckets", "id=100")])
def test_whole_numbers_and_text_in_different_files_are_categories_with_a_note(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    source = write_files(tmp_path, a=pa.array([7, 8]), b=pa.array(["7", "x"]))

    result = call("table", source, tmp_path / "out", *options)

    assert result.exit_code == 0, result.output
    assert (
        "column 'id': values of different types are one where their texts are: whole numbers "
        "(a.parquet:1) as 7; text (b.parquet:1) as it is" in result.stdout
    )


def test_groups_of_different_types_get_the_same_note_once(tmp_path: Path) -> None:
    source = write_files(tmp_path, a=pa.array([7, 8] * 20), b=pa.array(["7", "x"] * 20))
    options = ("--group-by", "id", "--categorical", "id", "--validation", "0.4")

    result = call("table", source, tmp_path / "out", *options)

    assert result.exit_code == 0, result.output
    assert result.stdout.count("values of different types are one where their texts are") == 1

    result = call("table", source, tmp_path / "new", *options[:2], "--ignore", "id", *options[4:])
    assert "values of different types are one where their texts are" in result.stdout


@pytest.mark.parametrize("other", [[7], ["x"], [date(2024, 1, 2)]])
def test_lists_beside_other_types_are_neither_categories_nor_groups(
    tmp_path: Path, other: list[Any]
) -> None:
    source = write_files(tmp_path, a=pa.array(other), b=pa.array([[1]]))

    for options in (("--categorical", "id"), ("--group-by", "id", "--validation", "0.5")):
        result = call("table", source, tmp_path / "out", *options)

        assert result.exit_code == 1
        assert "column 'id': " in result.stderr
        if "--categorical" in options:
            assert "holds lists (b.parquet:1) beside other values" in result.stderr


def test_a_decimal_is_one_category_whatever_places_its_file_has(tmp_path: Path) -> None:
    source = write_files(
        tmp_path,
        a=decimals("1", "10", "0.5", places=1),
        b=decimals("1.00", "12345678901234567890123456789.25", "-0.50", "0"),
    )

    result = call("table", source, tmp_path / "out", "--categorical", "id")

    assert result.exit_code == 0, result.output
    known = vocabulary_of(tmp_path / "out")
    assert known[0] == "1"
    assert sorted(known) == sorted(
        ["1", "10", "0.5", "12345678901234567890123456789.25", "-0.5", "0"]
    )
    encoder = TableEncoder(tmp_path / "out")
    for value in ("1", "1.0", "1.000", "1E+0"):
        assert encoder.encode({"id": [Decimal(value)], "x": [1]})["id"].tolist() == [2]
    codes = encoder.encode({"id": [Decimal("1E+1"), Decimal("-0.00")], "x": [1, 2]})["id"]
    assert [known[code - 2] for code in codes.tolist()] == ["10", "0"]


def test_a_decimal_is_one_group_whatever_places_its_file_has(tmp_path: Path) -> None:
    texts = [str(number) for number in range(60)]
    source = write_files(tmp_path, a=decimals(*texts, places=0), b=decimals(*texts, places=3))
    options = ("--group-by", "id", "--validation", "0.3")

    assert call("table", source, tmp_path / "out", *options).exit_code == 0

    train, validation = (
        set(np.load(tmp_path / f"out/{split}/00000.record.npy")["x"].tolist())
        for split in ("train", "validation")
    )
    assert validation
    assert not train & validation


def test_instants_with_and_without_a_zone_are_no_categories_together(tmp_path: Path) -> None:
    source = write_files(
        tmp_path,
        a=pa.array([NOON], pa.timestamp("us")),
        b=pa.array([NOON.replace(tzinfo=UTC)], pa.timestamp("ms", "Europe/Berlin")),
    )

    for options in (("--categorical", "id"), ("--group-by", "id", "--validation", "0.5")):
        result = call("table", source, tmp_path / "out", *options)
        assert result.exit_code == 1
        assert (
            "column 'id': holds times with a time zone (b.parquet:1) and times without one "
            "(a.parquet:1) together" in result.stderr
        )

    assert call("table", source, tmp_path / "out").exit_code == 0  # as numbers both are UTC


def test_instants_of_several_zones_are_one_category(tmp_path: Path) -> None:
    moment = [NOON.replace(tzinfo=UTC)]
    source = write_files(
        tmp_path,
        a=pa.array(moment, pa.timestamp("us", "UTC")),
        b=pa.array(moment, pa.timestamp("ms", "Europe/Berlin")),
    )

    result = call("table", source, tmp_path / "out", "--categorical", "id")

    assert result.exit_code == 0, result.output
    assert vocabulary_of(tmp_path / "out") == ["2024-01-02T12:00:00+00:00"]


def test_periods_and_intervals_of_pandas_are_refused_by_name(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frames = {
        "periods": pandas.period_range("2024-01", periods=3, freq="M"),
        "intervals": pandas.interval_range(0, 3),
    }
    remedies = {"periods": r"\.dt\.to_timestamp\(\)", "intervals": "its two ends"}
    for what, values in frames.items():
        frame = pandas.DataFrame({"p": values, "x": [1, 2, 3]})
        said = f"column 'p': holds {what} of pandas.*{remedies[what]}.*`ignore` p"
        with pytest.raises(SourceError, match=said):
            table_to_shards(frame, tmp_path / "out")
        table_to_shards(frame, tmp_path / what, TableOptions(ignore=("p",)))

        frame.to_parquet(tmp_path / f"{what}.parquet")
        pa.feather.write_feather(pa.Table.from_pandas(frame), tmp_path / f"{what}.arrow")
        for ending in ("parquet", "arrow"):
            with pytest.raises(SourceError, match=f"{what}.{ending}: {said}"):
                table_to_shards(tmp_path / f"{what}.{ending}", tmp_path / "out")


def test_periods_are_refused_in_files_where_pandas_is_not_loaded(tmp_path: Path) -> None:
    marks = {
        b"ARROW:extension:name": b"pandas.period",
        b"ARROW:extension:metadata": b'{"freq":"M"}',
    }
    schema = pa.schema([pa.field("p", pa.int64(), metadata=marks), pa.field("x", pa.int64())])
    pq.write_table(pa.table([[648], [1]], schema=schema), tmp_path / "a.parquet")

    result = call("table", tmp_path / "a.parquet", tmp_path / "out")

    assert result.exit_code == 1
    assert "a.parquet: column 'p': holds periods of pandas" in result.stderr
