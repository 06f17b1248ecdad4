"""A run over a table that is stopped anywhere: the same command finishes it."""

import json
from pathlib import Path

import pytest

from loaders.format.spec import read_manifest
from preprocess.plan import RunOptions
from preprocess.tables.options import TableOptions
from preprocess.tables.prepare import table_to_shards
from tests.crash.children import output_of


def write_source(folder: Path) -> Path:
    folder.mkdir()
    for name, first in (("a", 0), ("b", 20)):
        lines = [f"{n % 3},{n},w{n % 7}" for n in range(first, first + 20)]
        (folder / f"{name}.csv").write_text("\n".join(["y,n,w", *lines, "1,2", ",5,w1"]) + "\n")
    return folder


def write_lists(folder: Path) -> Path:
    """Write rows with lists beside their records."""
    folder.mkdir()
    for name, first in (("a", 0), ("b", 20)):
        counts = {n: 9 * n % 160 if n % 8 == 0 else n % 4 for n in range(first, first + 20)}
        rows = [{"y": n % 3, "v": [f"w{n % 7}"] * count} for n, count in counts.items()]
        lines = [json.dumps(row) for row in [*rows, {"v": ["w1"]}, {"y": None, "v": []}]]
        (folder / f"{name}.jsonl").write_text("\n".join([*lines, "{"]) + "\n")
    return folder


@pytest.mark.parametrize("mode", [[], ["overwrite"]], ids=["new", "overwriting"])
@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_table_whose_run_is_killed_at_any_call_is_finished_by_the_same_command(
    stride: int, mode: list[str], tmp_path: Path
) -> None:
    source = write_source(tmp_path / "source")

    assert int(output_of("table_bomb", stride, source, tmp_path, *mode)) > 60


@pytest.mark.parametrize("stride", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_table_with_lists_is_finished_by_the_same_command_too(
    stride: int, tmp_path: Path
) -> None:
    source = write_lists(tmp_path / "source")

    assert int(output_of("table_bomb", stride, source, tmp_path)) > 60


def test_the_bytes_of_a_table_do_not_depend_on_workers(tmp_path: Path) -> None:
    source = write_source(tmp_path / "source")
    options = TableOptions(target="y", test=0.3, shuffle=1)

    for workers in (1, 3):
        run_options = RunOptions(workers=workers, shard_nbytes=100)
        table_to_shards(source, tmp_path / str(workers), options, run_options)

    assert read_manifest(tmp_path / "1") == read_manifest(tmp_path / "3")
