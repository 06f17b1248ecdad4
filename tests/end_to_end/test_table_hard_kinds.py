"""Tables that are unusual and right, or wrong: what the command makes of them, and what it says."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest
from click.testing import Result

from loaders import TableEncoder, open_table
from loaders.format.spec import read_manifest
from loaders.format.table_schema import ColumnSpec, read_table_schema
from loaders.table_files import read_vocabulary
from tests.token_commands import call


def prepare(tmp_path: Path, source: str | dict[str, Any], *words: str) -> Result:
    """Prepare a text of CSV, or columns of Parquet."""
    if isinstance(source, str):
        path = tmp_path / "a.csv"
        path.write_text(source, encoding="utf-8")
    else:
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table(source), path)
    return call("table", path, tmp_path / "out", *words)


def columns_of(tmp_path: Path) -> dict[str, ColumnSpec]:
    out = tmp_path / "out"
    schema = read_table_schema(out, read_manifest(out))
    assert schema is not None
    return {spec.name: spec for spec in schema.columns}


def texts_in(tmp_path: Path, name: str) -> tuple[str, ...]:
    out = tmp_path / "out"
    return read_vocabulary(out, read_manifest(out), columns_of(tmp_path)[name])


def stored(tmp_path: Path) -> np.ndarray:
    return np.load(tmp_path / "out/train/00000.record.npy")


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_whole_number_beyond_every_float_is_infinite_among_floats(
    tmp_path: Path, digits: int
) -> None:
    result = prepare(tmp_path, f"a,b\n1.5,1\n{'9' * digits},2\n")

    assert result.exit_code == 0
    assert stored(tmp_path)["a"].tolist() == [1.5, np.inf]
    assert "column 'a': 1 infinite values" in result.stdout


@pytest.mark.parametrize(
    "column",
    [
        pa.nulls(3, pa.int32()),
        pa.nulls(3, pa.float64()),
        pa.array([float("nan")] * 3),
        pa.nulls(3, pa.string()),
        pa.nulls(3, pa.timestamp("us")),
        pa.nulls(3),
    ],
    ids=lambda column: f"{column.type} {column[0]}",
)
def test_a_table_without_any_value_keeps_its_columns(tmp_path: Path, column: pa.Array) -> None:
    result = prepare(tmp_path, {"a": column, "b": pa.nulls(3, pa.bool_())})

    assert result.exit_code == 0, result.output
    assert (
        "columns 'a', 'b': no value in any row, and kept, since no other is left" in result.stdout
    )
    assert {n: (s.dtype, s.nullable) for n, s in columns_of(tmp_path).items()} == {
        "a": ("uint8", True),
        "b": ("uint8", True),
    }
    assert stored(tmp_path).tolist() == [(0, 0)] * 3
    assert np.isnan(open_table(tmp_path / "out")[0]["numeric"].numpy()).all()


def test_empty_columns_beside_others_are_left_out(tmp_path: Path) -> None:
    result = prepare(tmp_path, {"a": pa.nulls(3, pa.int32()), "b": [1, 2, 3]})

    assert list(columns_of(tmp_path)) == ["b"]
    assert "columns 'a': no value in any row, and left out" in result.stdout


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_bytes_that_are_utf_8_are_text(tmp_path: Path, kind: pa.DataType) -> None:
    texts = ["Zürich", None, "Ulm", "Ulm"]
    column = pa.array([None if t is None else t.encode() for t in texts], pa.binary()).cast(kind)
    if kind == pa.binary_view():
        with pa.ipc.new_file(tmp_path / "a.arrow", pa.schema({"b": kind})) as file:
            file.write_table(pa.table({"b": column}))
        result = call("table", tmp_path / "a.arrow", tmp_path / "out")
    else:
        result = prepare(tmp_path, {"b": column})

    assert result.exit_code == 0, result.output
    assert "column 'b': bytes, all of them valid UTF-8, taken as text" in result.stdout
    assert texts_in(tmp_path, "b") == ("Ulm", "Zürich")
    assert stored(tmp_path)["b"].tolist() == [3, 0, 2, 2]


def test_bytes_that_are_no_text_are_refused_by_place_with_the_remedy(tmp_path: Path) -> None:
    result = prepare(tmp_path, {"a": [1, 2], "the (raw) b": [b"ok", b"\xff\xfe"]})

    assert result.exit_code == 1
    said = "a.parquet:2: column 'the (raw) b': holds binary, which no number stands for; "
    assert said + "--ignore 'the (raw) b'" in result.stderr
    assert "skipped" not in result.stderr

    result = call("table", tmp_path / "a.parquet", tmp_path / "out", "--ignore", "the (raw) b")
    assert result.exit_code == 0, result.output


def test_what_no_column_can_be_is_refused_by_file_with_the_remedy(tmp_path: Path) -> None:
    result = prepare(tmp_path, {"s": [[{"x": 1}]], "m,n": [[[1]]], "a": [1]})

    assert result.exit_code == 1
    assert "a.parquet:1: column 's': holds list<element: struct<x: int64>>" in result.stderr
    assert "; --ignore s; " in result.stderr
    assert '[columns."m,n"] with kind = "ignore" in --schema FILE' in result.stderr


def test_strings_by_their_type_are_no_numbers_gone_wrong(tmp_path: Path) -> None:
    result = prepare(tmp_path, {"id": ["1498", "7", "7"], "n": ["1,5", "2", "x"]})

    assert result.exit_code == 0, result.output
    assert "numbers" not in result.stdout
    assert "--decimal" not in result.stdout
    assert texts_in(tmp_path, "id") == ("7", "1498")


def test_words_among_numbers_are_still_named(tmp_path: Path) -> None:
    result = prepare(tmp_path, "a,b\n1,1\nnone,2\n3,1\n")

    assert "a.csv:3: column 'a': 2 of 3 values are numbers, and others are words" in result.stdout


@pytest.mark.parametrize("words", [(), ("--no-header",)])
def test_a_header_of_numbers_gets_a_note(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = prepare(tmp_path, "123.0,TEST1,2000-12-12\n1.5,x,2000-12-13\n", *words)

    said = "a.csv: the header has '123.0', '2000-12-12'; if it is a row of values, say --no-header"
    assert (said in result.stdout) == (not words)


def test_columns_of_parquet_may_be_named_by_numbers(tmp_path: Path) -> None:
    assert "--no-header" not in prepare(tmp_path, {"1": [1, 2]}).stdout


def test_truth_values_of_a_target_are_one_class_each(tmp_path: Path) -> None:
    text = "y,x\nTrue,1\nfalse,2\nTRUE,3\nFalse,4\ntrue,5\n"

    result = prepare(tmp_path, text, "--target", "y")

    assert result.exit_code == 0, result.output
    assert "upper and lower case" not in result.stdout
    assert texts_in(tmp_path, "y") == ("false", "true")
    assert stored(tmp_path)["y"].tolist() == [1, 0, 1, 0, 1]
    data = {"y": ["True", "false", "TRUE", False, "true"], "x": [1, 2, 3, 4, 5]}
    encoded = TableEncoder(tmp_path / "out").encode(data)
    assert encoded.tobytes() == stored(tmp_path).tobytes()
    again = call("table", tmp_path / "a.csv", tmp_path / "new", "--like", tmp_path / "out")
    assert again.exit_code == 0, again.output


def test_one_spelling_of_a_truth_value_is_no_two_classes(tmp_path: Path) -> None:
    result = prepare(tmp_path, "y,x\nTrue,1\ntrue,2\nTRUE,3\n", "--target", "y")

    assert result.exit_code == 1
    assert "constant" in result.stderr


def test_truth_values_are_stratified_by_class(tmp_path: Path) -> None:
    rows = "".join(f"{['True', 'false', 'TRUE', 'False'][n % 4]},{n}\n" for n in range(40))

    result = prepare(tmp_path, f"y,x\n{rows}", "--target", "y", "--stratify", "--validation", "0.5")

    assert result.exit_code == 0, result.output
    assert sorted(stored(tmp_path)["y"].tolist()) == [0] * 10 + [1] * 10


def test_words_for_missing_values_are_missing_at_serving_too(tmp_path: Path) -> None:
    text = 'n,c,d,h\n1,x,2020-01-01,p\nNA,NA,null,N/A\n,nan,,\n4,"None",2020-01-02,q\n'
    result = prepare(tmp_path, text, "--hash-buckets", "h=100")

    assert result.exit_code == 0, result.output
    data = {
        "n": ["1", "NA", "", "4"],
        "c": ["x", "NA", "nan", "None"],
        "d": ["2020-01-01", "null", "", "2020-01-02"],
        "h": ["p", "N/A", None, "q"],
    }
    encoder = TableEncoder(tmp_path / "out")
    assert encoder.encode(data).tobytes() == stored(tmp_path).tobytes()
    assert texts_in(tmp_path, "c") == ("None", "x")


def test_words_for_missing_values_are_the_users(tmp_path: Path) -> None:
    prepare(tmp_path, "n,c\n1,NA\n-,-\n3,x\n", "--null-values", "-")

    found = TableEncoder(tmp_path / "out").encode({"n": ["1", "-", "3"], "c": ["NA", "-", "x"]})
    assert found.tobytes() == stored(tmp_path).tobytes()
    assert texts_in(tmp_path, "c") == ("NA", "x")


def test_info_leaves_out_what_nobody_asked_for(tmp_path: Path) -> None:
    prepare(tmp_path, "a,b,y\n1,2,3\n4,5,4.5\n", "--target", "y", "--categorical", "a")

    lines = call("info", tmp_path / "out").stdout.splitlines()

    recipe = next(line for line in lines if line.startswith("recipe:"))
    assert recipe == "recipe: categorical=['a'], target=y, version=3"


def test_a_damaged_column_is_named_with_the_remedy(tmp_path: Path) -> None:
    damaged = pa.array([-13_899_000, 1], pa.int32()).view(pa.time32("ms"))

    result = prepare(tmp_path, {"the clock": damaged, "a": [1, 2]})

    assert result.exit_code == 1
    assert "a.parquet: damaged Arrow data in column 'the clock'" in result.stderr
    assert "--ignore 'the clock'" in result.stderr
    again = call("table", tmp_path / "a.parquet", tmp_path / "out", "--ignore", "the clock")
    assert again.exit_code == 0, again.output
