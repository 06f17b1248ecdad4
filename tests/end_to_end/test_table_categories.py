"""Categories of numbers: one number is one category and one group, whatever its type in a file."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest

from loaders import TableEncoder
from tests.token_commands import call


def vocabulary_of(out: Path) -> list[str]:
    found: list[str] = json.loads((out / "table/vocabulary/0000.json").read_text())["values"]
    return found


def write_lines(path: Path, values: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps({"id": value, "x": 1}) + "\n" for value in values))
    return path


def test_whole_numbers_are_one_category_in_files_of_whole_numbers_and_of_floats(
    tmp_path: Path,
) -> None:
    (tmp_path / "in").mkdir()
    for name, values in {"a": [1, 2], "b": [2.0, -0.0], "c": [2.0, 2.5, None]}.items():
        pq.write_table(pa.table({"id": values}), tmp_path / f"in/{name}.parquet")

    assert call("table", tmp_path / "in", tmp_path / "out", "--categorical", "id").exit_code == 0

    assert vocabulary_of(tmp_path / "out") == ["2", "0", "1", "2.5"]
    encoder = TableEncoder(tmp_path / "out")
    for same in (2, 2.0, "2", np.float32(2)):
        assert encoder.encode({"id": [same]})["id"].tolist() == [2]
    assert encoder.encode({"id": np.array([2.5, 0, -0.0])})["id"].tolist() == [5, 3, 3]


@pytest.mark.parametrize("last", [2.5, "word"])
def test_the_category_of_a_number_of_json_does_not_depend_on_what_stands_in_its_block(
    tmp_path: Path, last: object
) -> None:
    (tmp_path / "in").mkdir()
    write_lines(tmp_path / "in/a.jsonl", [1, 1, 2])
    write_lines(tmp_path / "in/b.jsonl", [1, 2.0, 0.5, last])

    assert call("table", tmp_path / "in", tmp_path / "out", "--categorical", "id").exit_code == 0

    assert vocabulary_of(tmp_path / "out") == ["1", "2", "0.5", str(last)]


def test_a_hashed_number_has_one_bucket_in_files_and_at_serving_time(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, values in {"a": [7, 8], "b": [7.0, 8.5]}.items():
        pq.write_table(pa.table({"id": values}), tmp_path / f"in/{name}.parquet")

    assert (
        call("table", tmp_path / "in", tmp_path / "out", "--hash-buckets", "id=1000").exit_code == 0
    )

    stored = np.load(tmp_path / "out/train/00000.record.npy")["id"]
    assert stored[0] == stored[2]
    assert TableEncoder(tmp_path / "out").encode({"id": [7, 8, 7.0, 8.5]})["id"].tolist() == (
        stored.tolist()
    )


def test_a_group_of_one_number_stays_in_one_split(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    groups = np.arange(100)
    pq.write_table(pa.table({"g": groups, "x": groups}), tmp_path / "in/a.parquet")
    pq.write_table(pa.table({"g": groups + 0.0, "x": groups}), tmp_path / "in/b.parquet")
    options = ("--group-by", "g", "--categorical", "g", "--validation", "0.3")

    assert call("table", tmp_path / "in", tmp_path / "out", *options).exit_code == 0

    train, validation = (
        set(np.load(tmp_path / f"out/{split}/00000.record.npy")["x"].tolist())
        for split in ("train", "validation")
    )
    assert train
    assert validation
    assert not train & validation
