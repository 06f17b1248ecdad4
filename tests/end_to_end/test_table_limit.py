"""`--limit` of a table counts rows: of every file its share, from the first on."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest

from loaders.format.spec import read_manifest
from tests.token_commands import call


def write_rows(path: Path, first: int, count: int) -> None:
    """Write rows whose numbers tell which they are; every third text is one of its own."""
    numbers = range(first, first + count)
    texts = [f"w{number}" if number % 3 == 0 else "often" for number in numbers]
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"x": list(numbers), "s": texts}), path, row_group_size=50)
    elif path.suffix == ".jsonl":
        rows = ({"x": x, "s": s} for x, s in zip(numbers, texts, strict=True))
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        path.write_text(
            "x,s\n" + "".join(f"{x},{s}\n" for x, s in zip(numbers, texts, strict=True))
        )


def stored(out: Path, split: str = "train") -> list[int]:
    """Return the numbers of the rows that are stored."""
    schema = json.loads((out / "table" / "schema.json").read_text())
    [spec] = [column for column in schema["columns"] if column["name"] == "x"]
    found = np.load(out / split / "00000.record.npy")["x"].astype(np.int64)
    return [int(code) - 1 + spec["offset"] for code in found]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_the_first_rows_are_taken_as_if_there_were_no_others(tmp_path: Path, ending: str) -> None:
    write_rows(tmp_path / f"a.{ending}", 5, 300)
    (tmp_path / "first").mkdir()
    write_rows(tmp_path / "first" / f"a.{ending}", 5, 70)
    limited, whole = tmp_path / "limited", tmp_path / "whole"

    assert call("table", tmp_path / f"a.{ending}", limited, "--limit", "70").exit_code == 0
    assert call("table", tmp_path / "first" / f"a.{ending}", whole).exit_code == 0

    assert stored(limited) == [*range(5, 75)]
    for path in ("table/schema.json", "train/00000.record.npy", "table/vocabulary/0001.json"):
        assert (limited / path).read_bytes() == (whole / path).read_bytes()


@pytest.mark.parametrize(
    ("limit", "rows"),
    [
        (6, [0, 1, 100, 101, 200, 201]),
        (7, [0, 1, 2, 100, 101, 200, 201]),
        (1, [0]),
        (2, [0, 100]),
        (40, [*range(14), *range(100, 113), *range(200, 213)]),
        (1000, [*range(30), *range(100, 130), *range(200, 230)]),
    ],
)
def test_every_file_gives_its_share(tmp_path: Path, limit: int, rows: list[int]) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        write_rows(tmp_path / "in" / f"{number}.csv", 100 * number, 30)
    assert call("table", tmp_path / "in", tmp_path / "out", "--limit", str(limit)).exit_code == 0
    assert stored(tmp_path / "out") == rows


def test_splits_by_folders_all_have_rows(tmp_path: Path) -> None:
    for split, first in (("train", 0), ("test", 500)):
        (tmp_path / "in" / split).mkdir(parents=True)
        write_rows(tmp_path / "in" / split / "a.csv", first, 30)
    assert call("table", tmp_path / "in", tmp_path / "out", "--limit", "8").exit_code == 0
    assert stored(tmp_path / "out") == [0, 1, 2, 3]
    assert stored(tmp_path / "out", "test") == [500, 501, 502, 503]


def test_a_limited_dataset_is_another_one_than_the_whole(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.csv", 0, 30)
    out = tmp_path / "out"
    assert call("table", tmp_path / "a.csv", out, "--limit", "5").exit_code == 0
    assert read_manifest(out).recipe["limit"] == 5
    whole = call("table", tmp_path / "a.csv", out)
    assert whole.exit_code == 1
    assert call("table", tmp_path / "a.csv", out, "--overwrite").exit_code == 0
    assert len(stored(out)) == 30


def test_faults_behind_the_limit_are_not_those_of_its_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3\n4,5\n6\n7,8\n")
    done = call("table", tmp_path / "a.csv", tmp_path / "out", "--limit", "2")
    assert done.exit_code == 3
    lines = (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["a.csv:3"]
    assert stored(tmp_path / "out") == [1, 4]
