"""`prep table`: from files to records, by the command and by the function; every value again."""

import csv
import json
import os
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest
from click.testing import Result

from loaders.format.spec import read_manifest
from loaders.format.table_schema import TableSchema
from preprocess import OutputError, RunOptions, SourceError, TableOptions, table_to_shards
from preprocess.tables.work import work_folder
from tests.token_commands import call, skipped

ROWS = [
    ("y", "age", "city", "price", "when", "ok"),
    ("no", "31", "Bern", "1.5", "2020-01-01", "true"),
    ("yes", "", "Ulm", "2.25", "2020-01-03", "false"),
    ("no", "-7", "Bern", "", "", ""),
    ("yes", "4000", "", "0.1", "1999-12-31", "true"),
    ("no", "5", "Zürich, Stadt", "3", "2020-01-02", "true"),
]


def write_csv(path: Path, rows: list[tuple[str, ...]] = ROWS) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def prepare(source: Path, out: Path, *words: str | Path) -> Result:
    return call("table", source, out, *words)


def schema_of(out: Path) -> TableSchema:
    return TableSchema.from_json(json.loads((out / "table/schema.json").read_bytes()), "schema")


def records_of(out: Path, split: str = "train") -> np.ndarray:
    """Return all records of a split, as NumPy alone opens them."""
    paths = sorted((out / split).glob("*.record.npy"))
    return np.concatenate([np.load(path) for path in paths])


def values_of(out: Path, name: str, split: str = "train") -> list[Any]:
    """Return what a column holds, from its codes: numbers, texts, None."""
    spec = schema_of(out).column(name)
    codes = records_of(out, split)[name].tolist()
    if spec.vocabulary is not None:
        values = json.loads((out / spec.vocabulary).read_bytes())["values"]
        known = values if spec.role == "target" else [None, "<unknown>", *values]
        return [known[code] for code in codes]
    if spec.kind == "float":
        return [None if code != code else code for code in codes]
    units = [None if code == 0 else code - 1 + spec.offset for code in codes]
    if spec.kind != "decimal":
        return units
    return [None if unit is None else unit / 10**-spec.exponent for unit in units]


def test_every_value_of_a_file_is_stored(tmp_path: Path) -> None:
    source, out = write_csv(tmp_path / "in.csv"), tmp_path / "out"

    result = prepare(source, out, "--target", "y")

    assert result.exit_code == 0, result.output
    assert values_of(out, "y") == ["no", "yes", "no", "yes", "no"]
    assert values_of(out, "age") == [31, None, -7, 4000, 5]
    assert values_of(out, "city") == ["Bern", "Ulm", "Bern", None, "Zürich, Stadt"]
    assert values_of(out, "price") == [1.5, 2.25, None, 0.1, 3.0]
    days = ["2020-01-01", "2020-01-03", None, "1999-12-31", "2020-01-02"]
    found = values_of(out, "when")
    shown = [None if day is None else str(np.datetime64(day, "D")) for day in found]
    assert shown == days
    assert values_of(out, "ok") == [1, 0, None, 1, 1]
    manifest = read_manifest(out)
    assert manifest.kind == "table"
    assert manifest.classes == ("no", "yes")
    assert manifest.splits["train"].tallies["classes"] == (3, 2)
    assert manifest.recipe["table"]["task"] == "classification"
    assert sorted(os.listdir(tmp_path)) == ["in.csv", "out"]


def test_the_same_command_again_does_nothing_and_another_is_refused(tmp_path: Path) -> None:
    source, out = write_csv(tmp_path / "in.csv"), tmp_path / "out"
    prepare(source, out, "--target", "y")
    before = (out / "manifest.json").read_bytes()

    again = prepare(source, out, "--target", "y")
    other = prepare(source, out, "--target", "age")
    dry = prepare(source, out, "--target", "y", "--dry-run")

    assert again.exit_code == 0
    assert "nothing to do" in again.stdout
    assert other.exit_code == 1
    assert "made with other options: --target is y there, age here; give" in other.stderr
    for words, said in (
        (("--target", "y", "--hash-buckets", "city=9"), "--hash-buckets is not set there, city=9"),
        (("--target", "y", "--ignore", "ok,when"), "--ignore is not set there, ok, when here"),
        (("--target", "y", "--shard-size", "1MB"), "--shard-size is 256000000 there, 1000000 here"),
        (("--target", "y", "--no-header"), "--no-header is not given there, given here"),
        (("--target", "y", "--format", "zarr"), "--format is tensor there, zarr here"),
    ):
        assert said in prepare(source, out, *words).stderr
    assert "5 rows" in dry.stdout
    assert (out / "manifest.json").read_bytes() == before
    assert prepare(source, out, "--ignore", "ok,when", "--overwrite").exit_code == 0
    assert read_manifest(out).recipe["table"]["task"] is None


def test_a_dry_run_shows_the_columns_and_writes_nothing(tmp_path: Path) -> None:
    source, out = write_csv(tmp_path / "in.csv"), tmp_path / "out"

    text = prepare(source, out, "--target", "y", "--dry-run").stdout
    found = json.loads(prepare(source, out, "--target", "y", "--dry-run", "--json").stdout)

    assert "train: 5 rows" in text
    assert "missing: age 1, city 1, price 1, when 1, ok 1" in text
    columns = {column["name"]: column for column in found["columns"]}
    assert columns["city"]["cardinality"] == 5
    assert columns["age"]["statistics"]["minimum"] == -7
    assert os.listdir(tmp_path) == ["in.csv"]


def test_bad_records_are_skipped_by_line_and_make_the_exit_code_3(tmp_path: Path) -> None:
    source, out = tmp_path / "in.csv", tmp_path / "out"
    source.write_text("y,n\n1,2\n3\n,4\n5,6\n")

    result = prepare(source, out, "--target", "y")

    assert result.exit_code == 3
    assert list(skipped(out)) == ["in.csv:3", "in.csv:4"]
    assert "the target 'y' has no value" in skipped(out)["in.csv:4"]
    assert len(records_of(out)) == 2
    assert prepare(source, out, "--target", "y", "--max-skipped", "2").exit_code == 0


def test_a_source_without_a_row_that_can_be_read_is_refused_and_what_it_has_listed(
    tmp_path: Path,
) -> None:
    bad, header = tmp_path / "bad.csv", tmp_path / "header.csv"
    bad.write_text("a,b\n1\n1,2,3\n")
    header.write_text("a,b\n")

    refused = prepare(bad, tmp_path / "out")
    empty = prepare(header, tmp_path / "empty")

    assert (refused.exit_code, empty.exit_code) == (1, 1)
    assert list(skipped(tmp_path / "out")) == ["bad.csv:2", "bad.csv:3"]
    assert "header.csv: empty, it has no row" in empty.stderr
    assert sorted(os.listdir(tmp_path)) == ["bad.csv", "header.csv", "out"]
    bad.write_text("a,b\n1,2\n")
    assert prepare(bad, tmp_path / "out").exit_code == 0


def test_a_name_that_no_dataset_could_hold_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a\\u0000c": 1}\n')
    done = prepare(tmp_path / "a.jsonl", tmp_path / "out")
    assert done.exit_code == 1
    assert "none of them NUL" in done.stderr
    assert os.listdir(tmp_path) == ["a.jsonl"]


@pytest.mark.parametrize("name", ["target", "numeric", "categorical"])
def test_a_vector_that_batches_could_not_name_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"{name}": [1, 2], "a": 1}}\n')
    done = prepare(tmp_path / "a.jsonl", tmp_path / "out")
    assert done.exit_code == 1
    assert f"--ignore {name}" in done.stderr
    assert prepare(tmp_path / "a.jsonl", tmp_path / "out", "--ignore", name).exit_code == 0


def test_an_empty_source_is_not_the_working_folder(tmp_path: Path) -> None:
    for words in (("table",), ("tokens", "--tokenizer", "t")):
        done = call(words[0], "", tmp_path / "out", *words[1:])
        assert done.exit_code == 2
        assert "the path is empty" in done.stderr


@pytest.mark.parametrize("more", [(), ("--overwrite",)])
def test_a_list_of_faults_replaces_no_file_of_others(tmp_path: Path, more: tuple[str, ...]) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1\n")
    out = tmp_path / "out"
    out.mkdir()
    for name in ("notes.txt", "skipped.jsonl"):
        (out / name).write_text("mine")
    done = prepare(tmp_path / "a.csv", out, *more)
    assert done.exit_code == 1
    assert ("a.csv:2" if more else "not empty") in done.stderr
    assert {path.name: path.read_text() for path in out.iterdir()} == {
        "notes.txt": "mine",
        "skipped.jsonl": "mine",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "x"], "no such column"),
        (["--hash-buckets", "city"], "--hash-buckets city: expected NAME=N"),
        (["--validation", "0.5", "--split-by-time", "city"], "city"),
        (["--numeric", "city"], "in.csv:2: column 'city': 'Bern' is not a number"),
        (["--schema", "nowhere.toml"], "nowhere.toml: cannot be read"),
        (["--like", "out", "--validation", "0.1"], "--validation 0.1: what columns become"),
        (["--like", "out"], "out: no such folder"),
        (["--text", "city"], "store their tokens beside it with --text city --tokenizer T"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_and_leaves_nothing(
    words: list[str], said: str, tmp_path: Path
) -> None:
    source = write_csv(tmp_path / "in.csv")

    result = prepare(source, tmp_path / "out", *words)

    assert result.exit_code in {1, 2}
    assert said in result.stderr
    assert os.listdir(tmp_path) == ["in.csv"]


def test_parquet_and_csv_and_frames_of_the_same_values_give_the_same_records(
    tmp_path: Path,
) -> None:
    table = pa.table(
        {
            "n": pa.array([1, None, 300], pa.int64()),
            "s": pa.array(["b", "a", "b"]),
            "f": pa.array([0.1, 2.5e-9, None], pa.float64()),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    write_csv(
        tmp_path / "in.csv",
        [("n", "s", "f"), ("1", "b", "0.1"), ("", "a", "2.5e-9"), ("300", "b", "")],
    )

    table_to_shards(tmp_path / "in.parquet", tmp_path / "parquet")
    table_to_shards(str(tmp_path / "in.csv"), tmp_path / "csv")
    table_to_shards(table, tmp_path / "frame")

    found = [records_of(tmp_path / name) for name in ("parquet", "csv", "frame")]
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
    again = table_to_shards(table, tmp_path / "frame")
    assert (again.backend, again.notes) == ("", ())
    with pytest.raises(OutputError, match="other input"):
        table_to_shards(table.slice(1), tmp_path / "frame")


def many_rows(tmp_path: Path, count: int = 400) -> Path:
    rows = [("id", "group", "y")]
    rows += [(str(n), f"g{n % 40}", str(n % 2)) for n in range(count)]
    return write_csv(tmp_path / "many.csv", rows)


def test_splits_hold_every_row_once_and_shards_are_of_equal_size(tmp_path: Path) -> None:
    source, out = many_rows(tmp_path), tmp_path / "out"

    prepare(source, out, "--validation", "0.2", "--test", "0.1", "--shard-size", "1000")

    manifest = read_manifest(out)
    found = {name: values_of(out, "id", name) for name in manifest.splits}
    assert sorted(chain.from_iterable(found.values())) == list(range(400))
    assert found["train"] == sorted(found["train"])
    size = schema_of(out).record_dtype.itemsize
    counts = manifest.splits["train"].counts
    assert len(counts) > 1
    assert set(counts[:-1]) == {1000 // size}


def test_shuffled_rows_are_the_same_rows_in_an_order_of_the_seed(tmp_path: Path) -> None:
    source = many_rows(tmp_path)
    orders = {}
    for name, words in {
        "plain": (),
        "one": ("--shuffle", "1"),
        "small shards": ("--shuffle", "1", "--shard-size", "100", "--workers", "1"),
        "two": ("--shuffle", "2"),
    }.items():
        prepare(source, tmp_path / name, *words)
        orders[name] = values_of(tmp_path / name, "id")

    assert orders["plain"] == list(range(400))
    assert sorted(orders["one"]) == orders["plain"]
    assert orders["one"] == orders["small shards"]
    assert len({tuple(order) for order in orders.values()}) == 3


def test_another_datasets_schema_encodes_new_rows(tmp_path: Path) -> None:
    train, out = write_csv(tmp_path / "in.csv"), tmp_path / "train"
    prepare(train, out, "--target", "y", "--ignore", "ok")
    new = [ROWS[0], ("yes", "8", "Rom", "0.5", "2020-01-01", "x"), ("no", "9", "Ulm", "", "", "")]

    result = prepare(
        write_csv(tmp_path / "new.csv", new), tmp_path / "out", "--target", "y", "--like", out
    )

    assert result.exit_code == 0, result.output
    assert "values that no vocabulary has, stored as unknown: city 1" in result.stdout
    assert values_of(tmp_path / "out", "city") == ["<unknown>", "Ulm"]
    assert values_of(tmp_path / "out", "age") == [8, 9]
    assert values_of(tmp_path / "out", "y") == ["yes", "no"]
    for name in ("schema.json", "vocabulary/0002.json"):
        path = f"table/{name}"
        assert (tmp_path / "out" / path).read_bytes() == (out / path).read_bytes()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("y", "age"), ("no", "1")], "'city', 'price', 'when': missing"),
        ([(*ROWS[0], "extra"), (*ROWS[1], "1")], "'extra': not among its columns"),
        (
            [ROWS[0], ("no", "old", "Bern", "1", "2020-01-01", "true")],
            "'age': integer there, here 'old' at new.csv:2",
        ),
        (
            [ROWS[0], ROWS[1], ("no", "70000", "Bern", "1", "2020-01-01", "true")],
            "new.csv:3: column 'age': '70000' is outside",
        ),
        (
            [ROWS[0], ("maybe", "1", "Bern", "1", "2020-01-01", "true")],
            "new.csv:2: column 'y': 'maybe' is none of the 2 classes",
        ),
    ],
)
def test_rows_that_another_datasets_schema_cannot_hold_are_refused(
    rows: list[tuple[str, ...]], said: str, tmp_path: Path
) -> None:
    train, out = write_csv(tmp_path / "in.csv"), tmp_path / "train"
    prepare(train, out, "--target", "y", "--ignore", "ok")

    result = prepare(
        write_csv(tmp_path / "new.csv", rows), tmp_path / "out", "--target", "y", "--like", out
    )

    assert result.exit_code == 1
    assert said in result.stderr
    assert not (tmp_path / "out").exists()
    assert not work_folder(tmp_path / "out").exists()


def test_a_split_without_rows_is_refused(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "in.csv", [("a", "b"), ("1", "2")])

    with pytest.raises(SourceError, match="split 'test' has no row; give other shares"):
        table_to_shards(source, tmp_path / "out", TableOptions(test=0.0001))


def test_zarr_shards_hold_the_same_records(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "in.csv")
    table_to_shards(source, tmp_path / "out", run_options=RunOptions(container="zarr"))
    table_to_shards(source, tmp_path / "tensor")

    import zarr

    found = zarr.open_array(tmp_path / "out/train/record/00000", mode="r")[:]
    assert found.tobytes() == records_of(tmp_path / "tensor").tobytes()
