"""Lists of truth values, dates and times: stored as columns of these are, offline and serving."""

import json
import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loaders import TableEncoder, open_table
from preprocess import RunOptions, SourceError, TableOptions, table_to_shards
from preprocess.tables.prepare import plan_table, run_table
from preprocess.tables.request import TableRequest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ITEMS: dict[str, tuple[pa.DataType, Any]] = {
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    "datetime": (
        pa.timestamp("us", "UTC"),
        st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    ),
}


def number(value: Any) -> int | None:
    """Return what a value is as a whole number: days or microseconds since 1970."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, datetime):
        passed = value - EPOCH
        return (passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds
    return int((value - date(1970, 1, 1)).days)


def column_of(out: Path) -> dict[str, Any]:
    (column,) = json.loads((out / "table/schema.json").read_text())["columns"]
    return dict(column)


def stored_lists(out: Path) -> list[list[int | None] | None]:
    """Read all lists with NumPy and the format's page alone."""
    column = column_of(out)
    rows = np.load(out / "train/00000.record.npy")
    shift = column["offset"] - 1
    found: list[list[int | None] | None] = []
    beside = np.zeros(0, np.uint8), np.zeros(1, np.uint64)
    if column.get("layout") == "ragged":
        beside = (
            np.load(out / "train/00000.list_0000.npy"),
            np.load(out / "train/00000.list_0000_offsets.npy"),
        )
    for place, row in enumerate(rows):
        codes = np.atleast_1d(row["v"]) if "v" in rows.dtype.names else None
        if "v_length" in rows.dtype.names:
            length = int(row["v_length"])
            if length == 0:
                found.append(None)
                continue
            if codes is None:
                codes = beside[0][int(beside[1][place]) : int(beside[1][place + 1])]
            codes = codes[: length - 1]
        found.append(
            [None if c == 0 else int(c) + shift for c in (codes if codes is not None else ())]
        )
    return found


@pytest.mark.parametrize("kind", ITEMS)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_lists_come_back_and_serving_encodes_them_alike(
    kind: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stored_as, one = ITEMS[kind]
    most = data.draw(st.sampled_from([3, 40]))
    items = st.lists(st.none() | one, max_size=most)
    rows = data.draw(st.lists(st.none() | items, min_size=1, max_size=8))
    known = [value for row in rows for value in row or () if value is not None]
    if not known:
        rows.append([data.draw(one)])
    folder = tmp_path_factory.mktemp("lists")
    table = pa.table({"v": pa.array(rows, pa.list_(stored_as))})
    pq.write_table(table, folder / "t.parquet")
    out = folder / "out"
    table_to_shards(folder / "t.parquet", out, run_options=RunOptions(workers=1))
    column = column_of(out)
    assert column["holds"] == kind
    assert column["kind"] == "vector"
    expected = [None if row is None else [number(value) for value in row] for row in rows]
    found = stored_lists(out)
    if column.get("layout") is None:  # of one length: a missing list is missing throughout
        expected = [[None] * column["length"] if row is None else row for row in expected]
    assert found == expected
    encoder = TableEncoder(out)
    assert (
        encoder.encode({"v": rows}).tobytes() == np.load(out / "train/00000.record.npy").tobytes()
    )
    for values, _ in encoder.lists({"v": rows}).values():
        assert values.tobytes() == np.load(out / "train/00000.list_0000.npy").tobytes()


def prepared(tmp_path: Path, array: pa.Array, name: str = "out") -> Path:
    out = tmp_path / name
    table_to_shards(pa.table({"v": array}), out)
    return out


def test_truth_values_have_the_codes_of_booleans_whatever_is_among_them(tmp_path: Path) -> None:
    out = prepared(tmp_path, pa.array([[True, None], [True, True]]))
    rows = np.load(out / "train/00000.record.npy")
    assert rows["v"].dtype == np.uint8
    assert rows["v"].tolist() == [[2, 0], [2, 2]]
    shown = open_table(out).__getitems__([0, 1])
    assert shown["v"][0, 0] == 1
    assert math.isnan(shown["v"][0, 1])
    assert TableEncoder(out).encode({"v": [[False, True]]})["v"].tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="neither true nor false"):
        TableEncoder(out).encode({"v": [[2, 0]]})


def test_times_of_numpy_are_encoded_like_those_of_python(tmp_path: Path) -> None:
    times = [[datetime(2024, 2, 29, 12), datetime(2025, 1, 1)]]
    out = prepared(tmp_path, pa.array(times, pa.list_(pa.timestamp("us"))))
    encoder = TableEncoder(out)
    expected = encoder.encode({"v": times}).tobytes()
    for unit in ("s", "us", "ns"):
        assert encoder.encode({"v": [np.array(times[0], f"M8[{unit}]")]}).tobytes() == expected
    with pytest.raises(ValueError, match="finer than us"):
        encoder.encode({"v": [np.array(["2024-02-29T12:00:00.000000001"] * 2, "M8[ns]")]})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([[True]]), pa.array([[1]])),
        (pa.array([[date(2024, 1, 1)]]), pa.array([[1]])),
        (pa.array([[1]]), pa.array([[date(2024, 1, 1)]])),
        (pa.array([[1], [2, 3]]), pa.array([[True], [True, False]])),
        (pa.array([[date(2024, 1, 1)]]), pa.array([[datetime(2024, 1, 1)]])),
        (pa.array([[date(2024, 1, 1)]]), pa.array([["2024-01-01"]])),
    ],
)
def test_lists_of_other_values_are_refused_by_name(
    first: pa.Array, second: pa.Array, tmp_path: Path
) -> None:
    folder = tmp_path / "both"
    folder.mkdir()
    pq.write_table(pa.table({"v": first}), folder / "a.parquet")
    pq.write_table(pa.table({"v": second}), folder / "b.parquet")
    with pytest.raises(SourceError, match=r"column 'v': holds lists of .*\.parquet.*`ignore` v"):
        table_to_shards(folder, tmp_path / "refused")
    out = prepared(tmp_path, first)
    request = TableRequest(
        source=folder / "b.parquet", out=tmp_path / "new", options=TableOptions(), like=out
    )
    run_options = RunOptions()
    with (
        pytest.raises(SourceError, match=r"b\.parquet: column 'v': holds lists of .* are stored"),
        plan_table(request, run_options) as planned,
    ):
        run_table(planned, run_options)


def test_times_finer_than_stored_are_refused_by_type(tmp_path: Path) -> None:
    fine = pa.array([[1_709_208_000_000_000_001]], pa.list_(pa.timestamp("ns")))
    with pytest.raises(SourceError, match=r"'v'.*timestamp\[ns\]"):
        prepared(tmp_path, fine)
    whole = pa.array([[1_709_208_000_000_001_000]], pa.list_(pa.timestamp("ns")))
    out = prepared(tmp_path, whole, "whole")
    assert column_of(out)["offset"] == 1_709_208_000_000_001
