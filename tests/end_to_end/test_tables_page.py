"""The page on tables: its commands and code run as they stand, and name what there is."""

import csv
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loaders.format.table_schema import TABLE_SCHEMA
from preprocess.tables.toml import read_wishes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "preprocess" / "TABLES.md").read_text()
PREP = Path(sys.executable).with_name("prep")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def write_rides(path: Path, count: int = 300) -> list[tuple[str, str]]:
    """Write a table with the columns that the page speaks of; return city and age of each row."""
    draw = random.Random(3)
    rows = [(draw.choice(["Ulm", "Bern", ""]), draw.choice(["", "18", "80"])) for _ in range(count)]
    with path.open("w", newline="") as file:
        written = csv.writer(file)
        written.writerow(["start", "city", "age", "price", "tip"])
        for place, (city, age) in enumerate(rows):
            start = f"2024-01-{1 + place % 28:02d} 10:00:00"
            written.writerow([start, city, age, place / 4, draw.choice(["no", "yes"])])
    return rows


def test_the_code_on_the_page_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rides = write_rides(tmp_path / "rides.csv", 6000)
    command = blocks("bash")[0].split()
    assert command[0] == "prep"
    subprocess.run([PREP, *command[1:], "--split-seed", "1"], check=True)
    training, serving, with_numpy = blocks("python")
    names: dict[str, Any] = {}
    exec(training.replace('"cuda"', '"cpu"'), names)  # the same lines on a machine without a GPU
    assert names["numbers"].shape == (4096, 4)  # start, age, price, and whether age is missing
    assert not torch.isnan(names["numbers"]).any()
    assert names["codes"].shape == (4096, 1)
    assert set(names["target"].tolist()) == {0, 1}
    exec(serving, names)
    assert names["batch"]["categorical"][1].item() == 1
    assert names["batch"]["numeric"].isnan().sum() == 2
    exec(with_numpy, names)
    found = {
        (city.replace("missing", ""), "" if np.isnan(age) else str(int(age)))
        for city, age in zip(names["cities"].tolist(), names["ages"].tolist(), strict=True)
    }
    assert found == set(rides)
    assert (tmp_path / "out" / TABLE_SCHEMA).is_file()


def test_the_schema_on_the_page_is_one(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    path.write_text(blocks("toml")[0])
    assert {name: wish.kind for name, wish in read_wishes(path).items()} == {
        "age": "integer",
        "city": None,
    }
    write_rides(tmp_path / "rides.csv")
    words = ["table", tmp_path / "rides.csv", tmp_path / "out", "--schema", path]
    subprocess.run([PREP, *words, "--min-count", "1"], check=True)


def test_the_page_names_options_that_there_are() -> None:
    known = subprocess.run([PREP, "table", "--help"], capture_output=True, text=True, check=True)
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    for option in set(re.findall(r"(--[a-z][a-z0-9-]+)", prose)):
        assert re.search(rf"{option}\b", known.stdout), option
