"""Times that Python has not, and values without text: refused or stored, never a traceback."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest

from tests.token_commands import call

FAR = 10**18
"""Microseconds since 1970 in the year 33658."""


def prepare(tmp_path: Path, columns: dict[str, Any], *words: str) -> Any:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    return call("table", tmp_path / "a.parquet", tmp_path / "out", *words)


@pytest.mark.parametrize(
    ("kind", "far"),
    [(pa.timestamp("us"), FAR), (pa.timestamp("us", "UTC"), FAR), (pa.date32(), 10**7)],
)
def test_times_beyond_the_year_9999_are_stored(tmp_path: Path, kind: pa.DataType, far: int) -> None:
    result = prepare(tmp_path, {"t": pa.array([far, 0], kind)}, "--datetime-parts")

    assert result.exit_code == 0
    codes = np.load(tmp_path / "out/train/00000.record.npy")["t"]
    assert int(codes[0]) - int(codes[1]) == far


@pytest.mark.parametrize("words", [("--categorical", "t"), ("--hash-buckets", "t=9")])
def test_times_beyond_the_year_9999_are_no_categories(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    times = pa.array([0, FAR], pa.timestamp("us"))

    result = prepare(tmp_path, {"t": times}, *words)

    assert result.exit_code == 1
    assert "column 't': holds times before the year 1 or after 9999" in result.stderr


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([0, FAR], pa.timestamp("us")), "holds times before the year 1 or after 9999"),
        (pa.array([[1], [2]]), "holds lists"),
        (pa.array([[[1]], [[2]]]), "holds list<element: list<"),
    ],
    ids=["times", "lists", "objects"],
)
def test_what_has_no_text_makes_no_groups(tmp_path: Path, column: pa.Array, said: str) -> None:
    options = ("--ignore", "t", "--group-by", "t", "--validation", "0.5")

    result = prepare(tmp_path, {"t": column, "x": [1, 2]}, *options)

    assert result.exit_code == 1
    assert f"column 't': {said}" in result.stderr
    assert "--group-by" in result.stderr


def test_a_time_beyond_the_year_9999_is_named_by_its_number_where_it_is_refused(
    tmp_path: Path,
) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text('[columns.t]\ndtype = "int32"\n')

    result = prepare(
        tmp_path, {"t": pa.array([0, FAR], pa.timestamp("us"))}, "--schema", str(schema)
    )

    assert result.exit_code == 1
    assert f"a.parquet:2: column 't': {FAR}" in result.stderr


def test_a_target_that_is_one_time_beyond_the_year_9999_is_constant(tmp_path: Path) -> None:
    times = pa.array([FAR, FAR], pa.timestamp("us"))

    result = prepare(tmp_path, {"t": times, "x": [1, 2]}, "--target", "t")

    assert result.exit_code == 1
    assert f"constant: every row has {FAR}" in result.stderr


@pytest.mark.parametrize("finer", [False, True])
def test_times_of_96_bits_are_stored_or_refused_but_not_cut(tmp_path: Path, finer: bool) -> None:
    times = pa.array([1_000_000_000 + finer, None, -1000], pa.timestamp("ns"))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": times}), path, use_deprecated_int96_timestamps=True)

    result = call("table", path, tmp_path / "out")

    assert result.exit_code == finer
    assert ("column 't': holds timestamp[ns]" in result.stderr) == finer


def test_far_times_of_96_bits_are_stored(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    times = pa.array([10**17, 0], pa.timestamp("us"))  # beyond nanoseconds of 64 bits
    pq.write_table(pa.table({"t": times}), path, use_deprecated_int96_timestamps=True)

    assert call("table", path, tmp_path / "out").exit_code == 0

    codes = np.load(tmp_path / "out/train/00000.record.npy")["t"]
    assert int(codes[0]) - int(codes[1]) == 10**17
