"""Whole numbers over all of 64 bits: stored exactly, whether some are missing or none is."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loaders import FormatError, SelectionError, TableEncoder, open_table
from loaders.format.spec import read_manifest
from loaders.format.table_schema import ColumnSpec, TableSchema, read_table_schema
from loaders.table_columns import sort_columns
from loaders.table_views import table_entries
from preprocess import table_to_shards
from tests.token_commands import call

LOW, HIGH, TOP = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
SIGNED = [HIGH, LOW, 0, -1, 12]
UNSIGNED = [TOP, 0, 1 << 63, (1 << 63) - 1, 5]
FAR = [1 << 63, (1 << 63) + 2, TOP - (TOP >> 4), (1 << 63) + 1, (1 << 63) + 7]


def write(path: Path, columns: dict[str, list[int | None]]) -> Path:
    """Write a table of the types that an ending stands for."""
    if path.suffix == ".csv":
        rows = [list(columns), *zip(*columns.values(), strict=True)]
        lines = [",".join("" if v is None else str(v) for v in row) for row in rows]
        path.write_text("\n".join(lines) + "\n")
        return path
    if path.suffix == ".jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path
    types = {"signed": pa.int64(), "unsigned": pa.uint64(), "far": pa.uint64()}
    pq.write_table(pa.table({n: pa.array(v, types[n]) for n, v in columns.items()}), path)
    return path


def prepare(tmp_path: Path, name: str, columns: dict[str, list[Any]], *words: str) -> Any:
    return call("table", write(tmp_path / name, columns), tmp_path / "out", *words)


def spec_of(out: Path, name: str) -> ColumnSpec:
    document = json.loads((out / "table/schema.json").read_bytes())
    return TableSchema.from_json(document, "schema").column(name)


def decoded(out: Path, name: str) -> list[int | None]:
    """Return what is stored, in Python's integers, by the rule of the format."""
    spec = spec_of(out, name)
    codes = np.load(out / "train/00000.record.npy")[name].tolist()
    if spec.wraps is not None:
        low = np.iinfo(spec.wraps).min
        values = [low + (code - 1 + spec.offset - low) % (1 << 64) for code in codes]
        return [None if code == 0 else v for code, v in zip(codes, values, strict=True)]
    if spec.nullable:
        return [None if code == 0 else code - 1 + spec.offset for code in codes]
    return [code + spec.offset for code in codes]


COLUMNS: dict[str, list[Any]] = {"signed": SIGNED, "unsigned": UNSIGNED, "far": FAR}


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_the_whole_range_of_64_bits_is_stored_exactly(tmp_path: Path, name: str) -> None:
    result = prepare(tmp_path, name, COLUMNS)

    assert result.exit_code == 0, result.output
    out = tmp_path / "out"
    for column, values in COLUMNS.items():
        assert decoded(out, column) == values
    assert [spec_of(out, column).nullable for column in COLUMNS] == [False, False, True]
    assert spec_of(out, "unsigned").statistics.maximum == TOP
    assert spec_of(out, "unsigned").statistics.quantiles[4] == float((1 << 63) - 1)
    assert spec_of(out, "signed").statistics.minimum == LOW


def test_a_loader_shows_numbers_of_64_bits_next_to_what_they_are(tmp_path: Path) -> None:
    prepare(tmp_path, "a.parquet", COLUMNS)

    dataset = open_table(tmp_path / "out")
    numeric = dataset.__getitems__(range(5))["numeric"]

    for place, name in enumerate(dataset.numeric_names):
        expected = torch.tensor([float(v) for v in COLUMNS[name]], dtype=torch.float64)
        assert torch.equal(numeric[:, place], expected.to(torch.float32)), name


def test_standardized_numbers_of_64_bits_have_the_deviation_1(tmp_path: Path) -> None:
    prepare(tmp_path, "a.parquet", COLUMNS)

    dataset = open_table(tmp_path / "out", numeric="standardized")
    numeric = torch.stack([dataset[index]["numeric"] for index in range(5)])

    for place, name in enumerate(dataset.numeric_names):
        values = np.array([float(v) for v in COLUMNS[name]])
        expected = (values - values.mean()) / values.std()
        np.testing.assert_allclose(numeric[:, place].numpy(), expected, atol=1e-6)


def test_numbers_of_64_bits_are_encoded_at_serving_as_they_were_stored(tmp_path: Path) -> None:
    prepare(tmp_path, "a.parquet", COLUMNS)
    stored = np.load(tmp_path / "out/train/00000.record.npy")
    encoder = TableEncoder(tmp_path / "out")

    texts = {name: [str(value) for value in values] for name, values in COLUMNS.items()}
    types = {"signed": np.int64, "unsigned": np.uint64, "far": np.uint64}
    arrays = {name: np.array(values, types[name]) for name, values in COLUMNS.items()}

    for data in (COLUMNS, texts, arrays):
        assert encoder.encode(data).tobytes() == stored.tobytes()
    with pytest.raises(SelectionError, match="column 'signed', row 1: None is missing"):
        encoder.encode(COLUMNS | {"signed": [1, None, 2, 3, 4]})
    with pytest.raises(SelectionError, match="column 'unsigned', row 0: -1 "):
        encoder.encode(COLUMNS | {"unsigned": [-1, 1, 2, 3, 4]})


LOSSY: dict[str, list[Any]] = {"signed": [None, *SIGNED], "unsigned": [*UNSIGNED, None]}


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_missing_values_among_them_are_stored_as_such(tmp_path: Path, name: str) -> None:
    result = prepare(tmp_path, name, LOSSY, "--workers", "2")

    assert result.exit_code == 0, result.output
    out = tmp_path / "out"
    stored = np.load(out / "train/00000.record.npy")
    encoder = TableEncoder(out)
    for column, values in LOSSY.items():
        assert decoded(out, column) == values
        assert stored[column].tolist().count(0) == 1
        found = spec_of(out, column).statistics
        assert (found.count, found.missing) == (6, 1)
        assert (found.minimum, found.maximum) == (min(COLUMNS[column]), max(COLUMNS[column]))
        mean = sum(COLUMNS[column]) / 5
        assert found.mean == pytest.approx(mean)
        assert encoder.schema.column(column).all_bits == encoder.schema.column(column).wraps
    assert [spec_of(out, column).wraps for column in LOSSY] == ["int64", "uint64"]
    texts = {n: [None if v is None else str(v) for v in vs] for n, vs in LOSSY.items()}
    for data in (LOSSY, texts):
        assert encoder.encode(data).tobytes() == stored.tobytes()


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_numbers_and_missing_ones_come_back_through_every_way(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    tmp_path = tmp_path_factory.mktemp("law")
    kind = data.draw(st.sampled_from([np.int64, np.uint64]))
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    drawn = data.draw(st.lists(st.none() | st.integers(low, high), max_size=6))
    values = data.draw(st.permutations([low, high, None, *drawn]))
    table = {"x": pa.array(values, pa.from_numpy_dtype(kind))}
    table_to_shards(pa.table(table), tmp_path / "out")
    out = tmp_path / "out"

    assert decoded(out, "x") == values
    spec = spec_of(out, "x")
    new = [value for value in values if data.draw(st.booleans())] + [low, None]
    again = {"x": pa.array(new, pa.from_numpy_dtype(kind))}
    pq.write_table(pa.table(again), tmp_path / "new.parquet")
    done = call("table", tmp_path / "new.parquet", tmp_path / "new", "--like", out)
    assert done.exit_code == 0, done.output
    assert decoded(tmp_path / "new", "x") == new
    shown = open_table(out).__getitems__(range(len(values)))["numeric"][:, 0]
    known = [np.nan if value is None else float(value) for value in values]
    np.testing.assert_array_equal(shown.numpy(), np.array(known).astype(np.float32))
    assert TableEncoder(out).encode({"x": values})["x"].tolist().count(0) == values.count(None)
    assert spec.statistics is not None
    assert spec.statistics.missing == values.count(None)


@pytest.mark.parametrize("column", LOSSY)
def test_the_number_that_stands_for_missing_ones_is_out_of_range(
    tmp_path: Path, column: str
) -> None:
    prepare(tmp_path, "a.parquet", {column: LOSSY[column]})
    known, out = tmp_path / "out", tmp_path / "again"
    unused = spec_of(known, column).unused
    new = write(tmp_path / "new.parquet", {column: [3, unused]})

    refused = call("table", new, out, "--like", known)

    assert refused.exit_code == 1
    assert f"new.parquet:2: column '{column}': '{unused}' is outside" in refused.stderr
    assert f" without {unused}; --out-of-range clip or missing takes it" in refused.stderr
    with pytest.raises(SelectionError, match=f"row 1: {unused} is outside .* without {unused}"):
        TableEncoder(known).encode({column: [3, unused]})
    for how, became in (("clip", unused - 1), ("missing", None)):
        done = call("table", new, out, "--like", known, "--out-of-range", how, "--overwrite")
        assert done.exit_code == 0, done.output
        assert f"column '{column}': 1 values outside" in done.stdout
        assert decoded(out, column) == [3, became]
        encoder = TableEncoder(known, out_of_range=how)
        assert encoder.encode({column: [3, unused]}).tobytes() == (
            np.load(out / "train/00000.record.npy").tobytes()
        )


def test_decimals_and_lists_of_all_64_bits_have_missing_ones_too(tmp_path: Path) -> None:
    lists = [[LOW, HIGH], [None, 3], None]
    prices = [Decimal(LOW + 1).scaleb(-2), Decimal(HIGH).scaleb(-2), None]
    table = pa.table(
        {
            "v": pa.array(lists, pa.list_(pa.int64())),
            "price": pa.array(prices, pa.decimal128(25, 2)),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")

    result = call("table", tmp_path / "a.parquet", tmp_path / "out")

    assert result.exit_code == 0, result.output
    assert decoded(tmp_path / "out", "price") == [LOW + 1, HIGH, None]
    shown = open_table(tmp_path / "out").__getitems__([0, 1, 2])
    np.testing.assert_array_equal(
        shown["v"].numpy(), np.array([[LOW, HIGH], [np.nan, 3], [np.nan] * 2], np.float32)
    )
    expected = [float(prices[0]), float(prices[1]), np.nan]
    np.testing.assert_array_equal(shown["numeric"][:, 0].numpy(), np.array(expected, np.float32))


def test_a_schema_of_such_columns_is_the_only_one_with_the_key(tmp_path: Path) -> None:
    prepare(tmp_path, "a.parquet", {"signed": LOSSY["signed"], "far": [*FAR, None]})
    signed, far = json.loads((tmp_path / "out/table/schema.json").read_bytes())["columns"]
    assert (signed["wraps"], "wraps" in far) == ("int64", False)
    for key, value, said in (
        ("wraps", "int32", "wraps: got 'int32'"),
        ("dtype", "int32", "expected whole numbers of int64"),
        ("offset", 1 << 64, "expected an offset for int64"),
        ("nullable", False, "expected"),
    ):
        with pytest.raises(FormatError, match=said):
            TableSchema.from_json({"columns": [signed | {key: value}]}, "schema")


def test_numbers_that_no_64_bits_hold_are_refused_with_the_remedy(tmp_path: Path) -> None:
    result = prepare(tmp_path, "a.csv", {"x": [-1, TOP], "z": [TOP + 1, 1]})

    assert result.exit_code == 1
    assert f"column 'x': the range -1..{TOP} is beyond 64 bits; --categorical x" in result.stderr
    assert f"column 'z': {TOP + 1} is beyond 64 bits; --categorical z" in result.stderr


def test_lists_of_numbers_of_64_bits_are_stored_exactly(tmp_path: Path) -> None:
    values = [[TOP, 0], [5, 1 << 63]]
    table = pa.table({"v": pa.array(values, pa.list_(pa.uint64()))})
    pq.write_table(table, tmp_path / "a.parquet")

    result = call("table", tmp_path / "a.parquet", tmp_path / "out")

    assert result.exit_code == 0, result.output
    spec = spec_of(tmp_path / "out", "v")
    codes = np.load(tmp_path / "out/train/00000.record.npy")["v"].tolist()
    assert [[code + spec.offset for code in row] for row in codes] == values
    encoded = TableEncoder(tmp_path / "out").encode({"v": values})
    assert encoded["v"].tolist() == codes


def test_new_rows_without_a_value_are_refused_by_file_and_line(tmp_path: Path) -> None:
    prepare(tmp_path, "a.csv", {"signed": SIGNED, "x": [1, 2, 3, 4, 5]})
    new = write(tmp_path / "new.csv", {"signed": [1, None], "x": [1, 2]})

    result = call("table", new, tmp_path / "again", "--like", tmp_path / "out")

    assert result.exit_code == 1
    assert "new.csv:3: column 'signed'" in result.stderr
    assert "missing" in result.stderr


def test_a_target_of_the_whole_range_is_a_number(tmp_path: Path) -> None:
    values = [LOW + 3 * index for index in range(30)] + [HIGH - index for index in range(30)]
    result = prepare(tmp_path, "a.csv", {"signed": values, "x": [*range(60)]}, "--target", "signed")

    assert result.exit_code == 0, result.output
    assert decoded(tmp_path / "out", "signed") == values


@pytest.mark.parametrize("value", [1 << 63, TOP + 1])
def test_new_rows_beyond_what_is_stored_are_refused_by_column_and_value(
    tmp_path: Path, value: int
) -> None:
    prepare(tmp_path, "a.csv", {"x": [1, 2, 3, 4, 5]})
    new = write(tmp_path / "new.csv", {"x": [1, value]})

    result = call("table", new, tmp_path / "again", "--like", tmp_path / "out")

    assert result.exit_code == 1
    assert f"'x': {value} is outside 1..255, which is stored there" in result.stderr


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("numeric", ["values", "standardized"])
def test_a_device_shows_the_same_bits_as_the_host(
    tmp_path: Path, numeric: Any, lossy: bool
) -> None:
    powers = [1 << bit for bit in range(64)]
    rng = np.random.default_rng(0)
    unsigned = [*powers, TOP, *rng.integers(0, TOP, 2000, np.uint64).tolist()]
    signed = np.array(unsigned, np.uint64).view(np.int64).tolist()
    if lossy:
        unsigned[100:200] = signed[150:250] = [None] * 100
    prepare(tmp_path, "a.parquet", {"unsigned": unsigned, "signed": signed})

    shown = open_table(tmp_path / "out", numeric=numeric).__getitems__(range(len(unsigned)))
    schema = read_table_schema(tmp_path / "out", read_manifest(tmp_path / "out"))
    assert schema is not None
    records = np.load(tmp_path / "out/train/00000.record.npy")
    rows = torch.from_numpy(records.view(np.uint8).reshape(len(records), -1).copy())
    (entry,) = table_entries(schema, sort_columns(schema, "out"), numeric)

    found = entry.on_device(rows)
    assert torch.equal(found.isnan(), shown["numeric"].isnan())
    assert torch.equal(found.nan_to_num(nan=0.5), shown["numeric"].nan_to_num(nan=0.5))
    assert int(found.isnan().sum()) == (200 if lossy and numeric == "values" else 0)
    if numeric == "standardized":
        for place, values in enumerate((unsigned, signed)):
            known = np.array([np.nan if v is None else float(v) for v in values])
            expected = np.nan_to_num((known - np.nanmean(known)) / np.nanstd(known))
            np.testing.assert_allclose(found[:, place].numpy(), expected, atol=1e-6)
