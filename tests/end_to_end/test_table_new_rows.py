"""New rows by another dataset's schema: what does not fit it is refused, and never stored askew."""

from pathlib import Path
from typing import Any

import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest
from click.testing import Result

from tests.token_commands import call


def prepare_like(tmp_path: Path, known: dict[str, Any], new: dict[str, Any], *words: str) -> Result:
    """Prepare a table, and another one like it."""
    for name, columns in (("known", known), ("new", new)):
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    assert call("table", tmp_path / "known.parquet", tmp_path / "known").exit_code == 0
    source, out = tmp_path / "new.parquet", tmp_path / "out"
    return call("table", source, out, "--like", tmp_path / "known", *words)


@pytest.mark.parametrize("kind", [float, int])
@pytest.mark.parametrize(
    ("lists", "row"), [([[1], [2, 3, 4]], 1), ([[1, 2], [3], [4]], 2), ([[1, 2], None, [3]], 3)]
)
def test_a_list_of_another_length_than_those_that_are_stored_is_refused(
    tmp_path: Path, lists: list[list[int] | None], row: int, kind: type
) -> None:
    made = [None if each is None else [kind(value) for value in each] for each in lists]
    known = {"v": [[kind(1), kind(2)], [kind(3), kind(9)]]}

    result = prepare_like(tmp_path, known, {"v": made})

    assert result.exit_code == 1
    count = len(made[row - 1] or ())
    assert f"new.parquet:{row}: column 'v'" in result.stderr
    assert f"a list of {count} numbers, and 2 are stored" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_column_that_the_schema_needs_cannot_be_ignored(tmp_path: Path) -> None:
    columns = {"x": ["a", "b"], "z": [1, 2]}

    result = prepare_like(tmp_path, columns, columns, "--ignore", "x")

    assert result.exit_code == 1
    assert "'x': named by --ignore, and needed" in result.stderr


def test_a_column_that_is_ignored_among_new_rows_must_be_there(tmp_path: Path) -> None:
    columns = {"x": ["a", "b"], "z": [1, 2]}

    result = prepare_like(tmp_path, columns, columns, "--ignore", "w")

    assert result.exit_code == 1
    assert "--ignore 'w': no such column" in result.stderr


def test_whole_numbers_that_a_stored_float_does_not_hold_are_noted(tmp_path: Path) -> None:
    result = prepare_like(tmp_path, {"z": [0.1, 2.5]}, {"z": [(1 << 53) + 1, 3, 1 << 53]})

    assert result.exit_code == 0
    said = "column 'z': 1 values: whole numbers beyond 2**53 rounded to float64, the worst by 1"
    assert said in result.stdout
