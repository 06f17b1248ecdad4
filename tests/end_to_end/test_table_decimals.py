"""Prices of CSV and JSON: fewer bytes, the very same numbers, in training and at serving time."""

import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from loaders import TableEncoder, open_table
from preprocess.tables import read as table_read
from tests.token_commands import call

PRICES = [None if n % 7 == 3 else f"{(n * 7919) % 60_000 / 100 - 20:.2f}" for n in range(400)]


def write(folder: Path, form: str, prices: list[str | None] = PRICES) -> Path:
    path = folder / f"rows.{form}"
    if form == "csv":
        path.write_text("price,n\n" + "".join(f"{p or ''},{n}\n" for n, p in enumerate(prices)))
    else:
        rows = (f'{{"price":{p or "null"},"n":{n}}}\n' for n, p in enumerate(prices))
        path.write_text("".join(rows))
    return path


def records(out: Path) -> np.ndarray:
    paths = sorted((out / "train").glob("*.record.npy"))
    return np.concatenate([np.load(path) for path in paths])


def column(out: Path) -> dict[str, object]:
    columns = json.loads((out / "table/schema.json").read_bytes())["columns"]
    return next(c for c in columns if c["name"] == "price")


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_prices_are_the_same_records_however_the_file_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    source = write(tmp_path, form)
    for name, chunk, workers in (("one", 1 << 22, 1), ("two", 97, 2)):
        for name_of_size in ("CHUNK_NBYTES", "BLOCK_NBYTES"):
            monkeypatch.setattr(table_read, name_of_size, chunk)
        assert call("table", source, tmp_path / name, "--workers", workers).exit_code == 0
    found = records(tmp_path / "one")
    assert found.tobytes() == records(tmp_path / "two").tobytes()
    spec = column(tmp_path / "one")
    assert (spec["kind"], spec["dtype"], spec["exponent"]) == ("decimal", "uint16", -2)
    codes = found["price"].astype(np.int64)
    values = np.where(codes == 0, np.nan, (codes - 1 + spec["offset"]) / 100)
    expected = [float("nan") if p is None else float(p) for p in PRICES]
    np.testing.assert_array_equal(values, expected)


def test_one_number_with_an_exponent_anywhere_makes_all_of_them_floats(tmp_path: Path) -> None:
    for place in (0, 399):
        prices = [*PRICES]
        prices[place] = "1e-9"
        out = tmp_path / f"out{place}"
        assert call("table", write(tmp_path, "csv", prices), out).exit_code == 0
        assert (column(out)["kind"], column(out)["dtype"]) == ("float", "float64")


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_serving_gives_the_bytes_and_batches_that_were_stored(tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    assert call("table", write(tmp_path, form), out).exit_code == 0
    encoder = TableEncoder(out)
    floats = np.array([np.nan if p is None else float(p) for p in PRICES])
    ways = (
        PRICES,
        [None if p is None else f"{p}0" for p in PRICES],
        [None if p is None else Decimal(p) for p in PRICES],
        [None if p is None else float(p) for p in PRICES],
        floats,
        floats.astype(np.float32),
        torch.from_numpy(floats.astype(np.float32)),
        pd.Series(floats),
    )
    for prices in ways:
        encoded = encoder.encode({"price": prices, "n": range(400)})
        assert encoded.tobytes() == records(out).tobytes()
    with pytest.raises(ValueError, match=r"row 1: 9\.999 is no multiple of 10"):
        encoder.encode({"price": [1.5, 9.999], "n": [1, 2]})
    ds = open_table(out)
    shown = ds.__getitems__(range(400))["numeric"][:, ds.numeric_names.index("price")]
    np.testing.assert_array_equal(shown.numpy(), floats.astype(np.float32))


def test_new_rows_are_of_the_same_unit_or_refused_by_line(tmp_path: Path) -> None:
    known = tmp_path / "known"
    assert call("table", write(tmp_path, "csv"), known).exit_code == 0
    frame = pd.DataFrame({"price": [1.25, None, 3.0], "n": [1, 2, 3]})
    frame.to_parquet(tmp_path / "new.parquet")
    (tmp_path / "whole.csv").write_text("price,n\n1,1\n2,2\n")
    for name, codes in (("new.parquet", [2126, 0, 2301]), ("whole.csv", [2101, 2201])):
        out = tmp_path / f"of_{name}"
        result = call("table", tmp_path / name, out, "--like", known)
        assert result.exit_code == 0, result.output
        assert records(out)["price"].tolist() == codes
    for text, said in (
        ("1.25,1\n9.999,2\n", ":3: column 'price': '9.999' is no multiple of 10**-2"),
        ("1.25,1\n-20.01,2\n", ":3: column 'price': '-20.01' is outside what uint16 holds"),
        ("1.25,1\nfree,2\n", "'price': decimal there, here 'free' at bad.csv:3"),
    ):
        (tmp_path / "bad.csv").write_text(f"price,n\n{text}")
        result = call("table", tmp_path / "bad.csv", tmp_path / "bad", "--like", known)
        assert result.exit_code == 1
        assert said in result.stderr


def test_a_target_of_prices_is_learned_as_the_numbers_that_they_are(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = call("table", write(tmp_path, "csv"), out, "--target", "price", "--max-skipped", 400)
    assert result.exit_code == 0, result.output
    there = [float(p) for p in PRICES if p is not None]
    batch = open_table(out).__getitems__(range(len(there)))
    np.testing.assert_array_equal(batch["target"].numpy(), np.array(there, np.float32))
