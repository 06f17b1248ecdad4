"""Rows that are left out are listed, every one; however many, none is held in memory."""

import gc
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pytest

from preprocess import RunOptions, TableOptions
from preprocess.errors import SampleError
from preprocess.skipped import Listed, listed_together
from preprocess.tables.prepare import plan_table, run_table
from preprocess.tables.request import TableRequest

ROWS = 20_000


def without_targets(_: Path) -> object:
    """Return a table of which nine rows of ten have no target."""
    numbers = np.arange(ROWS)
    target = pa.array(numbers % 3, mask=numbers % 10 > 0)
    return pa.table({"x": numbers, "y": target})


def ragged_lines(tmp_path: Path) -> object:
    """Return a CSV file of which nine lines of ten have a field too many."""
    path = tmp_path / "rows.csv"
    lines = (f"{number},{number % 3}{',' if number % 10 else ''}\n" for number in range(ROWS))
    path.write_text("x,y\n" + "".join(lines))
    return path


def count_errors() -> int:
    gc.collect()
    return sum(type(thing) is SampleError for thing in gc.get_objects())


@pytest.mark.parametrize("source", [without_targets, ragged_lines])
def test_skipped_rows_are_all_listed_and_none_is_held(
    tmp_path: Path, source: Callable[[Path], object]
) -> None:
    out, run_options = tmp_path / "out", RunOptions()
    request = TableRequest(source=source(tmp_path), out=out, options=TableOptions(target="y"))
    before = count_errors()
    with plan_table(request, run_options) as planned:
        held = count_errors() - before
        report = run_table(planned, run_options)

    assert held < 100
    skipped = ROWS - ROWS // 10
    assert len(report.skipped) == skipped
    lines = (out / "skipped.jsonl").read_text().splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == list(report.skipped)
    keys = [key for key, _ in report.skipped]
    first = 2 if source is ragged_lines else 1
    assert [int(key.rpartition(":")[2]) - first for key in keys] == [
        number for number in range(ROWS) if number % 10
    ]


def test_a_list_that_is_read_as_asked_for_is_as_good_as_one_in_memory() -> None:
    kept = list(range(10))
    read = Listed(10, lambda: iter(kept))
    both = listed_together([kept[:4], (), Listed(6, lambda: iter(kept[4:]))])

    for lazy in (read, both):
        assert list(lazy) == list(lazy) == kept
        assert (len(lazy), lazy[0], lazy[-1], 7 in lazy) == (10, 0, 9, True)
        for part in (slice(5), slice(3, 1, -1), slice(-3, None), slice(8, 2), slice(None, None, 4)):
            assert lazy[part] == kept[part]
        with pytest.raises(IndexError):
            lazy[10]
