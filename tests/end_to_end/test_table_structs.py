"""Structs and objects are columns, one for each field in them: alike in every kind of source."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.feather as feather  # noqa: TID253
import pyarrow.parquet as pq  # noqa: TID253
import pytest

from loaders import TableEncoder
from loaders.format.spec import read_manifest
from loaders.format.table_schema import TableSchema, read_table_schema
from preprocess import TableOptions, table_to_shards
from preprocess.errors import SourceError
from tests.token_commands import call

SMALL = 2.0**-20
"""A float whose decimal places are too many for units of the last."""

ROWS: list[dict[str, Any]] = [
    {"id": 7, "a": {"x": 1, "in": {"s": "u", "f": SMALL}}, "v": [1, 2]},
    {"id": 8, "a": {"x": None, "in": {"s": "w", "f": 1.5}}, "v": [3, 4]},
    {"id": 9, "a": None, "v": [5, 6]},
    {"id": 9, "a": {"x": 3, "in": None}, "v": [5, 7]},
]


def write_source(tmp_path: Path, kind: str) -> Any:
    table = pa.Table.from_pylist(ROWS)
    path = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "arrow":
        feather.write_feather(table, path)
    elif kind == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    elif kind == "doubtful.jsonl":  # read record by record, since Arrow does not take NaN for null
        lines = [json.dumps(row) for row in ROWS]
        path.write_text("\n".join(lines).replace('"id": 7', '"id": 7, "big": 18446744073709551615'))
    elif kind == "arrow table":
        return table
    elif kind == "polars":
        return pytest.importorskip("polars").DataFrame(ROWS)
    elif kind == "pandas":
        return pytest.importorskip("pandas").DataFrame(ROWS)
    else:
        return {name: [row[name] for row in ROWS] for name in ROWS[0]}
    return path


def schema_of(out: Path) -> TableSchema:
    schema = read_table_schema(out, read_manifest(out))
    assert schema is not None
    return schema


KINDS = ["parquet", "arrow", "jsonl", "doubtful.jsonl", "arrow table", "polars", "pandas", "dict"]


@pytest.mark.parametrize("kind", KINDS)
def test_fields_of_structs_are_columns_of_every_source(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    options = TableOptions(ignore=("big",) if kind == "doubtful.jsonl" else ())
    table_to_shards(write_source(tmp_path, kind), out, options)

    kinds = {spec.name: spec.kind for spec in schema_of(out).columns}
    assert kinds == {
        "id": "integer",
        "a.x": "integer",
        "a.in.s": "categorical",
        "a.in.f": "float",
        "v": "vector",
    }
    records = np.load(out / "train" / "00000.record.npy")
    assert records["a.x"].tolist() == [1, 0, 0, 3]
    assert records["a.in.s"].tolist() == [2, 3, 0, 0]
    np.testing.assert_array_equal(records["a.in.f"], [SMALL, 1.5, np.nan, np.nan])
    encoder = TableEncoder(out)
    nested = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    flat = {
        "id": nested["id"],
        "v": nested["v"],
        "a.x": [1, None, None, 3],
        "a.in.s": ["u", "w", None, None],
        "a.in.f": [SMALL, 1.5, None, None],
    }
    assert encoder.encode(nested).tobytes() == encoder.encode(flat).tobytes() == records.tobytes()


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "doubtful.jsonl"])
@pytest.mark.parametrize(
    ("ignored", "left"),
    [
        ("a", ["id", "v"]),
        ("a.in", ["id", "a.x", "v"]),
        ("a.in.s,a.x", ["id", "a.in.f", "v"]),
    ],
)
def test_a_struct_or_a_field_of_it_can_be_left_out(
    tmp_path: Path, kind: str, ignored: str, left: list[str]
) -> None:
    names = f"{ignored},big" if kind == "doubtful.jsonl" else ignored
    done = call("table", write_source(tmp_path, kind), tmp_path / "out", "--ignore", names)
    assert done.exit_code == 0, done.stderr
    assert [spec.name for spec in schema_of(tmp_path / "out").columns] == left


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "slow.jsonl", "table"])
def test_two_columns_of_the_same_name_are_refused_by_it(tmp_path: Path, kind: str) -> None:
    rows = [{"a": {"b": 1}, "a.b": 2}, {"a": {"b": 2}, "a.b": 4 if kind != "slow.jsonl" else 1e300}]
    source: Any = tmp_path / f"rows.{kind}"
    if kind == "table":
        source = pa.Table.from_pylist(rows)
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), source)
    else:
        source.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(SourceError, match=r"columns are named 'a\.b' once"):
        table_to_shards(source, tmp_path / "out")


def test_what_no_number_stands_for_is_refused_by_its_name_in_the_struct(tmp_path: Path) -> None:
    kind = pa.struct({"x": pa.int64(), "m": pa.map_(pa.string(), pa.int64())})
    array = pa.array([{"x": 1, "m": [("k", 1)]}, {"x": 2, "m": None}], kind)
    pq.write_table(pa.table({"s": array, "e": [1, 2]}), tmp_path / "a.parquet")
    done = call("table", tmp_path / "a.parquet", tmp_path / "out")
    assert done.exit_code == 1
    assert "column 's.m': holds map<string, int64" in done.stderr
    assert "--ignore s.m" in done.stderr
    done = call("table", tmp_path / "a.parquet", tmp_path / "out", "--ignore", "s.m")
    assert done.exit_code == 0, done.stderr
    assert np.load(tmp_path / "out" / "train" / "00000.record.npy")["s.x"].tolist() == [1, 2]


def test_times_written_in_objects_stay_as_they_are_written(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"a": {"t": "2024-01-01 10:00:00"}}\n{"a": {"t": "2024-01-01T11:00:00Z"}}\n')
    table_to_shards(source, tmp_path / "out", TableOptions(categorical=("a.t",)))
    [path] = (tmp_path / "out" / "table" / "vocabulary").iterdir()
    assert sorted(json.loads(path.read_text())["values"]) == [
        "2024-01-01 10:00:00",
        "2024-01-01T11:00:00Z",
    ]


def test_objects_that_a_block_does_not_have_are_no_column_of_their_own(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    with source.open("w") as file:
        for number in range(200_000):
            a = {"b": number % 7} if number < 1000 else None
            file.write(f"{json.dumps({'a': a, 'x': number})}\n")
    report = table_to_shards(source, tmp_path / "out")
    assert [spec.name for spec in schema_of(tmp_path / "out").columns] == ["a.b", "x"]
    assert not [note for note in report.notes if "left out" in note]


def test_what_is_an_object_in_one_block_and_text_in_another_is_refused(tmp_path: Path) -> None:
    """Where a block of 4 MiB ends would have decided which objects become columns."""
    path = tmp_path / "rows.jsonl"
    object_, text = {"x": 1, "long": "-" * 2000}, "none"
    with path.open("w") as file:
        for number in range(3000):
            value: Any = text if number == 2900 else object_
            file.write(json.dumps({"a": value, "y": number % 2}) + "\n")
    with pytest.raises(SourceError, match=r"column 'a' holds objects, and .* at rows\.jsonl:\d+; "):
        table_to_shards(path, tmp_path / "out", TableOptions(target="y"))
    table_to_shards(path, tmp_path / "other", TableOptions(target="y", ignore=("a",)))
    lines = [{"x.y": n, "x": n} if n % 3 else {"x.y": n} for n in range(9)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table_to_shards(path, tmp_path / "dots", TableOptions())
    assert [c.name for c in schema_of(tmp_path / "dots").columns] == ["x.y", "x"]
