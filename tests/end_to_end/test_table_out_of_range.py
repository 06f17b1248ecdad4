"""New numbers outside of the training range: refused, clipped, made missing, or given room."""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest

from loaders import TableEncoder, open_table
from loaders.errors import SelectionError
from loaders.format.spec import read_manifest
from loaders.format.table_schema import TableSchema, read_table_schema
from tests.token_commands import call

KNOWN = {
    "age": [20, 60, 30],
    "born": [date(2000, 1, 1), date(2000, 1, 11), None],
    "seen": [datetime(2024, 1, 1), datetime(2024, 1, 2), datetime(2024, 1, 3)],
    "price": [Decimal("1.50"), Decimal("2.50"), None],
    "serial": [5_000_000_000, 9_000_000_000, 7],
    "vector": [[1, 2], [3, 4], [5, 6]],
    "small": [0.5, 1.5, None],
    "y": [0.25, 0.5, 0.75],
}
NEW = {
    "age": [19, 1000, None],
    "born": [date(1999, 12, 31), date(2000, 1, 2), date(2300, 1, 1)],
    "seen": [datetime(2023, 12, 31), datetime(2024, 1, 2), datetime(2024, 1, 3)],
    "price": [Decimal("1.40"), Decimal("2.00"), None],
    "serial": [-1, 8, 7],
    "vector": [[0, 2], [3, 1 << 40], [5, 6]],
    "small": [1e300, -1e300, 0.5],
    "y": [0.25, 0.5, 0.75],
}
OUTSIDE = {"age": 2, "born": 2, "seen": 1, "price": 1, "serial": 1, "vector": 2, "small": 2}


def write_tables(tmp_path: Path, **tables: dict[str, Any]) -> None:
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")


def schema_of(out: Path) -> TableSchema:
    schema = read_table_schema(out, read_manifest(out))
    assert schema is not None
    return schema


def records_of(out: Path) -> np.ndarray[Any, Any]:
    return np.load(out / "train" / "00000.record.npy")


@pytest.mark.parametrize("how", ["clip", "missing"])
def test_numbers_out_of_range_become_what_is_asked_and_are_counted(
    tmp_path: Path, how: Any
) -> None:
    write_tables(tmp_path, known=KNOWN, new=NEW)
    known, out = tmp_path / "known", tmp_path / "out"
    assert call("table", tmp_path / "known.parquet", known, "--target", "y").exit_code == 0

    done = call("table", tmp_path / "new.parquet", out, "--like", known, "--out-of-range", how)

    assert done.exit_code == 0, done.stderr
    records, schema = records_of(out), schema_of(out)
    for name, count in OUTSIDE.items():
        assert f"column {name!r}: {count} values outside" in done.stdout
    codes = {spec.name: records[spec.name] for spec in schema.columns}
    top = 255 if how == "clip" else 0
    assert codes["age"].tolist() == [1 if how == "clip" else 0, top, 0]
    assert codes["vector"].tolist() == [
        [1 if how == "clip" else 0, 2],
        [3, 255 if how == "clip" else 0],
        [5, 6],
    ]
    assert codes["serial"].tolist() == [1 if how == "clip" else 0, 2, 1]
    if how == "clip":
        largest = np.finfo(np.float32).max
        assert codes["small"].tolist() == [largest, -largest, 0.5]
    else:
        assert np.isnan(codes["small"][:2]).all()

    encoder = TableEncoder(known, out_of_range=how)
    assert encoder.encode(NEW).tobytes() == records.tobytes()
    assert encoder.outside(NEW) == OUTSIDE


def test_by_default_they_are_refused_by_place_with_the_remedies(tmp_path: Path) -> None:
    write_tables(tmp_path, known={"age": [20, 60]}, new={"age": [30, 19]})
    known = tmp_path / "known"
    assert call("table", tmp_path / "known.parquet", known).exit_code == 0

    done = call("table", tmp_path / "new.parquet", tmp_path / "out", "--like", known)

    assert done.exit_code == 1
    assert "new.parquet:2: column 'age': '19' is outside what uint8 holds: 20..274" in done.stderr
    assert "--out-of-range clip or missing" in done.stderr
    assert "--room" in done.stderr
    with pytest.raises(SelectionError, match=r"'age', row 1: 19 is outside .*out_of_range"):
        TableEncoder(known).encode({"age": [30, 19]})


def test_a_target_out_of_range_is_refused_whatever_is_asked(tmp_path: Path) -> None:
    write_tables(tmp_path, known={"x": [1, 2], "y": [20, 60]}, new={"x": [1], "y": [19]})
    known, words = tmp_path / "known", ("--target", "y", "--task", "regression")
    assert call("table", tmp_path / "known.parquet", known, *words).exit_code == 0

    out = tmp_path / "out"
    done = call("table", tmp_path / "new.parquet", out, "--like", known, "--out-of-range", "clip")

    assert done.exit_code == 1
    assert "new.parquet:1: column 'y': '19' is outside" in done.stderr
    with pytest.raises(SelectionError, match="'y', row 0: 19 is outside"):
        TableEncoder(known, out_of_range="clip").encode({"x": [1], "y": [19]})


def test_out_of_range_is_only_for_new_rows(tmp_path: Path) -> None:
    write_tables(tmp_path, known={"age": [20, 60]})

    done = call("table", tmp_path / "known.parquet", tmp_path / "out", "--out-of-range", "clip")

    assert done.exit_code == 2
    assert "--out-of-range clip: only with --like" in done.stderr


def test_room_keeps_codes_below_and_above_and_changes_no_value(tmp_path: Path) -> None:
    write_tables(tmp_path, known=KNOWN)
    plain, roomy = tmp_path / "plain", tmp_path / "roomy"
    source = tmp_path / "known.parquet"
    assert call("table", source, plain, "--target", "y").exit_code == 0

    assert call("table", source, roomy, "--target", "y", "--room", "50").exit_code == 0

    bounds = {spec.name: spec.bounds for spec in schema_of(roomy).columns if spec.kind != "float"}
    assert bounds["age"] == (0, 254)
    assert bounds["born"][0] == (date(1999, 12, 27) - date(1970, 1, 1)).days
    assert bounds["price"][0] == 10
    assert bounds["serial"][0] == 7 - 4_499_999_997
    assert bounds["vector"][0] == -2
    for name in ("numeric", "vector"):
        ours, theirs = (open_table(out).__getitems__([0, 1, 2])[name] for out in (roomy, plain))
        np.testing.assert_array_equal(ours, theirs)
    [before] = [s for s in schema_of(plain).columns if s.name == "age"]
    [after] = [s for s in schema_of(roomy).columns if s.name == "age"]
    assert after.statistics == before.statistics
    assert TableEncoder(roomy).encode({**KNOWN, "age": [0, 80, None]})["age"].tolist() == [1, 81, 0]


@pytest.mark.parametrize(
    ("values", "kind", "lowest"),
    [
        ([0, 255], pa.int64(), -255),
        ([-(1 << 61), 1 << 61], pa.int64(), -(1 << 61) - (1 << 61) + 1),
        ([-(1 << 63), (1 << 62)], pa.int64(), -(1 << 63)),
        ([0, (1 << 64) - 1], pa.uint64(), 0),
        ([1 << 63, (1 << 63) + 10], pa.uint64(), (1 << 63) - 10),
    ],
)
def test_room_ends_where_codes_or_numbers_of_64_bits_do(
    tmp_path: Path, values: list[int], kind: pa.DataType, lowest: int
) -> None:
    pq.write_table(pa.table({"x": pa.array(values, kind)}), tmp_path / "known.parquet")
    out = tmp_path / "out"

    assert call("table", tmp_path / "known.parquet", out, "--room", "100").exit_code == 0

    [spec] = schema_of(out).columns
    assert spec.bounds[0] == lowest
    assert max(values) <= spec.bounds[1]
    encoded = TableEncoder(out).encode({"x": np.array(values, kind.to_pandas_dtype())})
    assert encoded.tobytes() == records_of(out).tobytes()


def test_room_stays_within_the_type_that_is_asked_for(tmp_path: Path) -> None:
    write_tables(tmp_path, known={"age": [0, 250]})
    schema = tmp_path / "schema.toml"
    schema.write_text('[columns.age]\ndtype = "uint8"\n')
    out = tmp_path / "out"

    words = ("--schema", schema, "--room", "100")
    assert call("table", tmp_path / "known.parquet", out, *words).exit_code == 0

    [spec] = schema_of(out).columns
    assert (spec.dtype, spec.bounds) == ("uint8", (-2, 252))
