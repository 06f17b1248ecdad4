"""Tables that are made to hurt: each is named, and costs little."""

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet  # noqa: TID253 - a test may load what it compares with
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.cli import prep
from preprocess.tables import json_columns
from preprocess.tables.columns import value_at
from preprocess.texts import column_limit
from preprocess.texts.lines import find_lines


def prepare(source: Path, *words: str) -> Result:
    """Prepare a table by the command."""
    out = source.parent / f"{source.name}.out"
    return CliRunner().invoke(prep, ["table", str(source), str(out), *words])


def skipped(source: Path) -> list[dict[str, Any]]:
    """Return what was left out of it."""
    lines = (source.parent / f"{source.name}.out" / "skipped.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("place", [1, 2, 3])
def test_a_record_of_json_that_is_too_long_is_named_wherever_it_stands(
    place: int, compressed: bool, tmp_path: Path
) -> None:
    lines = [b'{"x": 1}', b'{"x": 2}']
    lines.insert(place - 1, b'{"x": "' + b"a" * 21_000_000 + b'"}')
    data = b"".join(line + b"\n" for line in lines)
    path = tmp_path / ("a.jsonl.gz" if compressed else "a.jsonl")
    path.write_bytes(gzip.compress(data, 1) if compressed else data)
    result = prepare(path)
    assert result.exit_code == 3, result.output
    (entry,) = skipped(path)
    assert entry["key"] == f"{path.name}:{place}"
    assert "a record may have 16,000,000" in entry["reason"]


MANY = 70_000
"""Columns, more than a table may have."""


def write_columns(path: Path, count: int) -> None:
    """Write a table of so many columns, by the ending of its name."""
    names = [f"c{index}" for index in range(count)]
    if path.suffix == ".csv":
        path.write_text(f"{','.join(names)}\n{','.join('1' * count)}\n")
    elif path.suffix == ".jsonl":
        path.write_text(json.dumps(dict.fromkeys(names, 1)) + "\n")
    else:
        kind = pa.struct([(name, pa.int8()) for name in names])
        table = pa.table({"s": pa.array([dict.fromkeys(names, 1)], kind)})
        if path.suffix == ".parquet":
            pyarrow.parquet.write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "arrow"])
def test_more_columns_than_a_table_may_have_are_refused_by_file_and_count(
    ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{ending}"
    write_columns(path, MANY)
    result = prepare(path)
    assert result.exit_code == 1
    assert f"a.{ending}" in result.stderr
    assert "70,000 columns" in result.stderr
    assert "a table may have 65,536" in result.stderr


def test_columns_of_parquet_are_counted_in_its_footer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_limit, "MAX_COLUMNS", 100)
    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", pytest.fail)
    path = tmp_path / "a.parquet"
    write_columns(path, 101)
    result = prepare(path)
    assert result.exit_code == 1
    assert "a.parquet: 101 columns, and a table may have" in result.stderr


def test_millions_of_fields_of_csv_are_counted_before_they_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'"a,b"' + b"," * 15_000_000 + b"\n1,2\n")
    monkeypatch.setattr(csv, "reader", pytest.fail)
    result = prepare(path)
    assert result.exit_code == 1
    assert "15,000,001 columns" in result.stderr


def test_delimiters_in_quotes_are_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    header = ",".join(f'"{name}{"," * 1_000}"' for name in range(100))
    path.write_text(f"{header}\n{','.join('1' * 100)}\n")
    assert prepare(path).exit_code == 0


def test_keys_of_json_that_are_ever_new_are_refused_before_they_are_parsed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [dict.fromkeys((f"c{line}_{key}" for key in range(1_000)), 1) for line in range(200)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = prepare(path)
    assert result.exit_code == 1
    assert "a.jsonl: 66,000 columns up to record 66 of" in result.stderr
    assert "a table may have 65,536" in result.stderr


def test_keys_that_are_new_in_every_block_are_refused_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(column_limit, "MAX_COLUMNS", 1_500)
    path = tmp_path / "a.jsonl"
    pad = "x" * 900_000
    lines = [dict.fromkeys((f"c{line}_{key}" for key in range(100)), 1) for line in range(30)]
    path.write_text("".join(json.dumps({**line, "pad": pad}) + "\n" for line in lines))
    result = prepare(path)
    assert result.exit_code == 1
    assert re.search(r"a\.jsonl: [12],\d{3} columns, and a table may have", result.stderr)


def test_a_long_record_among_many_short_ones_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    long = {f"c{index}": index for index in range(20_000)}
    path.write_text('{"a":1}\n' * 200_000 + json.dumps(long) + "\n" + '{"a":1}\n' * 200_000)
    result = prepare(path)
    assert result.exit_code == 1
    assert re.search(r"a\.jsonl.*20,001 columns in \d+,\d{3} records", result.stderr)


KEYS = st.text("abc:", max_size=3)
FLAT = st.dictionaries(KEYS, st.integers(0, 9), max_size=6)
RECORDS = st.dictionaries(
    KEYS, st.integers(0, 9) | FLAT | st.lists(FLAT, min_size=1, max_size=3), max_size=6
)


def columns_of(value: Any, name: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Return the paths of all values in a record."""
    inner = [("", each) for each in value] if isinstance(value, list) else []
    inner += value.items() if isinstance(value, dict) else []
    return {each for key, part in inner for each in columns_of(part, (*name, key))} or {name}


@settings(max_examples=200)
@given(st.lists(RECORDS, min_size=1, max_size=5), st.integers(1, 30))
def test_records_are_refused_for_their_columns_and_for_nothing_else(
    records: list[Any], most: int
) -> None:
    data = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    count = len(set().union(*map(columns_of, records)) - {()})
    flat = all(isinstance(value, int) for record in records for value in record.values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_columns, "MAX_COLUMNS", most)
        patch.setattr(json_columns, "_WINDOW_NBYTES", 1 << 20)
        refused = json_columns.fault_of_keys(data, find_lines(data)) is not None
    assert refused <= (count > most)
    if flat:
        assert refused == (count > most)


def test_objects_of_ever_new_names_that_hold_the_same_keys_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [{f"p{line}": {f"k{key}": 1 for key in range(256)}} for line in range(1_000)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = prepare(path)
    assert result.exit_code == 1
    assert "a.jsonl: 65,792 columns up to record 257 of" in result.stderr


def write_arrow(path: Path, table: pa.Table) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("inside", [False, True], ids=["column", "struct"])
def test_run_ends_of_arrow_are_refused_by_file_and_column(inside: bool, tmp_path: Path) -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2_000_000_000], pa.int32()), ["abc"])
    column = pa.StructArray.from_arrays([runs], ["x"]) if inside else runs
    path = tmp_path / "a.arrow"
    write_arrow(path, pa.table({"y": column}))
    result = prepare(path)
    assert result.exit_code == 1
    name = "y.x" if inside else "y"
    assert re.search(
        rf"a\.arrow: column '{name}' is run-end encoded.*write it decoded", result.stderr
    )


def test_run_ends_that_are_ignored_are_not_looked_at(tmp_path: Path) -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), ["abc"])
    path = tmp_path / "a.arrow"
    write_arrow(path, pa.table({"x": [1, 2], "y": runs}))
    assert prepare(path, "--ignore", "y").exit_code == 0


@pytest.mark.parametrize("ending", ["arrow", "parquet"])
def test_rows_that_take_no_bytes_are_refused_beyond_a_number_of_them(
    ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{ending}"
    if ending == "arrow":
        write_arrow(path, pa.table({"x": pa.Array.from_buffers(pa.null(), (1 << 31) - 1, [None])}))
    else:
        pyarrow.parquet.write_table(pa.table({"x": pa.nulls((1 << 24) + 1)}), path)
    result = prepare(path)
    assert result.exit_code == 1
    assert re.search(rf"a\.{ending}: [\d,]+ rows without a value", result.stderr)


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 1_000_000)])
def test_of_a_list_of_millions_a_message_takes_what_it_shows(kind: Any) -> None:
    array = pa.array([None, np.zeros(1_000_000, np.int8)], kind(pa.int8()))
    assert str(value_at(array, 1))[:100] == str([0] * 100)[:100]
    assert len(value_at(array, 1)) < 100
    assert value_at(array, 0) is None
    assert value_at(pa.array([[1, None]]), 0) == [1, None]
