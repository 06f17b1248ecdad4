"""Dates and times that are written as text: the same whatever kind of file they come from."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl  # noqa: TID253
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.feather as pf  # noqa: TID253
import pyarrow.parquet as pq  # noqa: TID253
import pytest

from loaders import TableEncoder
from preprocess import TableOptions, table_to_shards

COLUMNS: dict[str, list[str | None]] = {
    "day": ["2024-02-29", None, "1999-12-31", "2024-02-29"],
    "when": ["2024-02-29T12:00:00Z", "2024-02-29 12:00", None, "2024-02-29T12:00:00.5+02:00"],
    "part": ["2024-02-29", "2024-02-30", None, "2024-02-28"],
    "word": ["a", "b", None, "a"],
    "none": [None, None, None, None],
}
KINDS = {"day": "date", "when": "datetime", "part": "categorical", "word": "categorical"}


def sources(folder: Path) -> dict[str, Any]:
    """Write the same columns as files of every kind, and as frames."""
    table = pa.table({name: pa.array(values, pa.string()) for name, values in COLUMNS.items()})
    lines = [",".join(COLUMNS)]
    lines += [",".join(value or "" for value in row) for row in zip(*COLUMNS.values(), strict=True)]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    records = (dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True))
    (folder / "t.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    pq.write_table(table, folder / "t.parquet", row_group_size=2)
    pq.write_table(table, folder / "plain.parquet", use_dictionary=False)
    pf.write_feather(
        table.cast(pa.schema([(n, pa.large_string()) for n in COLUMNS])), folder / "t.feather"
    )
    files = [path.name for path in sorted(folder.iterdir())]
    return {
        **{name: folder / name for name in files},
        "pandas": pd.DataFrame(COLUMNS),
        "polars": pl.DataFrame(COLUMNS, schema=dict.fromkeys(COLUMNS, pl.String)),
        "dict": COLUMNS,
    }


def schema_of(out: Path) -> dict[str, str]:
    columns = json.loads((out / "table/schema.json").read_text())["columns"]
    return {column["name"]: column["kind"] for column in columns}


def test_they_become_dates_and_times_from_every_source(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    records = {}
    for name, source in sources(folder).items():
        out = tmp_path / f"out-{name}"
        table_to_shards(source, out)
        assert schema_of(out) == KINDS, name
        records[name] = np.load(out / "train/00000.record.npy").tobytes()
        assert TableEncoder(out).encode(COLUMNS).tobytes() == records[name]
    assert set(records.values()) == {records["t.csv"]}


def test_they_stay_categories_where_that_is_asked_for_or_their_type(tmp_path: Path) -> None:
    strings = pa.array(COLUMNS["day"])
    table = pa.table({"asked": strings, "typed": strings.dictionary_encode(), "x": [1, 2, 3, 4]})
    pq.write_table(table, tmp_path / "t.parquet")
    for source in (table, tmp_path / "t.parquet"):
        out = tmp_path / ("file" if isinstance(source, Path) else "frame")
        table_to_shards(source, out, TableOptions(categorical=("asked",)))
        assert schema_of(out) == {"asked": "categorical", "typed": "categorical", "x": "integer"}


@pytest.mark.parametrize("values", [["1", "2"], ["1.5", "2"], ["true", "false"]])
def test_strings_that_look_like_numbers_stay_text(values: list[str], tmp_path: Path) -> None:
    table_to_shards(pa.table({"s": values}), tmp_path / "out")
    assert schema_of(tmp_path / "out") == {"s": "categorical"}


def test_a_later_block_decides_as_well(tmp_path: Path) -> None:
    days = ["2024-01-01", "2024-01-02"]
    for place, values in enumerate([[None, None], days, ["x", None]]):
        table = pa.table({"s": pa.array(values, pa.string()), "x": [1, 2]})
        pq.write_table(table, tmp_path / f"{place}.parquet")
    table_to_shards(str(tmp_path / "[01].parquet"), tmp_path / "out")
    assert schema_of(tmp_path / "out")["s"] == "date"
    table_to_shards(str(tmp_path / "?.parquet"), tmp_path / "all")
    assert schema_of(tmp_path / "all")["s"] == "categorical"
