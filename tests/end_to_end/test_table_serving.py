import csv
import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loaders import TableEncoder, open_table
from preprocess.plan import RunOptions
from preprocess.tables.options import TableOptions
from preprocess.tables.prepare import table_to_shards

COUNT = 200


def written_rows() -> list[dict[str, str]]:
    """Return rows as a CSV file holds them; about one value in ten is missing."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(COUNT):
        row = {
            "age": str(rng.integers(1, 90)),
            "price": f"{rng.normal(10, 5):.2f}",
            "city": str(rng.choice(["Rom", "Oslo", "São Paulo", "Ulm"])),
            "id": str(rng.integers(0, 1 << 40)),
            "ok": str(rng.choice(["true", "false"])),
            "day": str(
                np.datetime64("2020-01-01") + np.timedelta64(int(rng.integers(0, 900)), "D")
            ),
            "seen": str(
                np.datetime64("2020-01-01T00:00:00")
                + np.timedelta64(int(rng.integers(0, 10**8)), "s")
            ),
            "x": repr(float(rng.normal())),
            "plz": f"{rng.integers(0, 9999):05d}",
        }
        missing = rng.random(len(row)) < 0.1
        row = {n: "" if lost else v for (n, v), lost in zip(row.items(), missing, strict=True)}
        rows.append(row | {"y": str(rng.choice(["a", "b"]))})
    return rows


def as_objects(rows: list[dict[str, str]]) -> dict[str, Any]:
    """Return columns as a program would have them."""

    def column(name: str, convert: Any) -> list[Any]:
        return [convert(row[name]) if row[name] else None for row in rows]

    return {
        "age": np.array([np.nan if v is None else v for v in column("age", int)]),
        "price": column("price", Decimal),
        "city": column("city", str),
        "id": column("id", int),
        "ok": column("ok", lambda text: text == "true"),
        "day": column("day", date.fromisoformat),
        "seen": np.array([row["seen"] or "NaT" for row in rows], "M8[s]"),
        "x": column("x", float),
        "plz": column("plz", str),
        "y": column("y", str),
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    rows = written_rows()
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    options = TableOptions(
        target="y", hash_buckets=(("plz", 100),), datetime_parts=True, null_values=("",)
    )
    table_to_shards(folder / "rows.csv", folder / "out", options, RunOptions(workers=1))
    return folder / "out"


def stored(prepared: Path) -> np.ndarray:
    return np.concatenate([np.load(f) for f in sorted((prepared / "train").glob("*.npy"))])


def test_texts_of_a_file_are_encoded_byte_for_byte_as_they_were_stored(prepared: Path) -> None:
    rows = written_rows()
    encoded = TableEncoder(prepared).encode({name: [row[name] for row in rows] for name in rows[0]})
    assert encoded.tobytes() == stored(prepared).tobytes()


def test_objects_are_encoded_byte_for_byte_as_their_texts_were_stored(prepared: Path) -> None:
    encoder = TableEncoder(prepared)
    encoded = encoder.encode(as_objects(written_rows()))
    assert encoded.tobytes() == stored(prepared).tobytes()
    assert encoder.unknown(encoded) == {"city": 0}


@pytest.mark.parametrize("numeric", ["values", "standardized"])
def test_a_served_batch_is_that_of_training(prepared: Path, numeric: Any) -> None:
    ds = open_table(prepared, numeric=numeric)
    served = TableEncoder(prepared, numeric=numeric).batch(as_objects(written_rows()))
    trained = ds.__getitems__(range(COUNT))
    assert served.keys() == trained.keys()
    for name, values in trained.items():
        assert torch.allclose(served[name], values, rtol=0, atol=0, equal_nan=True)
    if numeric == "standardized":
        means = trained["numeric"].double().mean(0)
        assert means.abs().max() < 0.05
    else:
        age = [int(row["age"] or -1) for row in written_rows()]
        shown = torch.nan_to_num(trained["numeric"][:, ds.numeric_names.index("age")], nan=-1)
        assert shown.tolist() == age


def test_lists_of_json_are_encoded_as_they_were_stored(tmp_path: Path) -> None:
    rows = [
        {"tags": ["b", "a"], "steps": [1, 2], "face": [0.5, 1.5], "n": 1},
        {"tags": [], "steps": [3, 400], "face": [2.5, -1.0], "n": 2},
        {"tags": ["a"], "steps": [5, 6], "face": [3.25, 1e10], "n": 3},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options = TableOptions(target="n", task="regression")
    table_to_shards(tmp_path / "rows.jsonl", tmp_path / "out", options, RunOptions(workers=1))
    data = {name: [row[name] for row in rows] for name in rows[0]}
    encoded = TableEncoder(tmp_path / "out").encode(data)
    assert encoded.tobytes() == stored(tmp_path / "out").tobytes()
