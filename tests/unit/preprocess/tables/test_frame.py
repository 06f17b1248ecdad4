"""Frames in memory become the same blocks as files."""

from decimal import Decimal
from typing import Any

import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pytest

from preprocess.errors import SourceError
from preprocess.tables.frame import blocks_of_frame
from preprocess.tables.options import TableOptions


def test_an_arrow_table_is_cut_into_bounded_blocks_with_numbered_rows() -> None:
    count = 100_000
    table = pa.table({"x": range(count), "s": ["a", "b"] * (count // 2)})
    blocks = list(blocks_of_frame(table, TableOptions()))
    assert len(blocks) == 2
    assert [row for block in blocks for row in block.rows.tolist()] == [*range(1, count + 1)]
    assert pa.concat_tables([block.table for block in blocks]).column("x").to_pylist() == [
        *range(count)
    ]


def test_names_that_are_missing_or_not_unique_are_refused() -> None:
    for names, message in ((["x", "x"], "several"), (["x", ""], "column 2 has no name")):
        table = pa.table([[1], [2]], names=names)
        with pytest.raises(SourceError, match=message):
            list(blocks_of_frame(table, TableOptions()))


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(SourceError, match=r"builtins\.dict: expected a DataFrame"):
        list(blocks_of_frame({"x": [1]}, TableOptions()))


def test_pandas_columns_keep_their_values() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "i": pandas.array([1, None, 2**60 + 1], dtype="Int64"),
            "f": [1.5, float("nan"), 2.0],
            "s": ["a", None, "b"],
            "c": pandas.Categorical(["x", "y", "x"]),
            "o": pandas.Series([1, None, 2**60 + 1], dtype=object, index=[7, 8, 9]),
            "l": [[1], [], [2, 3]],
            3: [True, False, True],
        },
        index=[7, 8, 9],
    )
    (block,) = blocks_of_frame(frame, TableOptions())
    assert block.table.to_pydict() == {
        "i": [1, None, 2**60 + 1],
        "f": [1.5, None, 2.0],
        "s": ["a", None, "b"],
        "c": ["x", "y", "x"],
        "o": [1, None, 2**60 + 1],
        "l": [[1], [], [2, 3]],
        "3": [True, False, True],
    }
    assert block.evidence["f"].missing == 1


@pytest.mark.parametrize("values", [[1, "a"], [object()], [2**70, 1], [{1: 2}, 3]])
def test_pandas_columns_of_mixed_types_are_refused_by_name(values: list[Any]) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": pandas.Series(values, dtype=object)})
    with pytest.raises(SourceError, match="column 'x' holds values of several types"):
        list(blocks_of_frame(frame, TableOptions()))
    (block,) = blocks_of_frame(frame, TableOptions(ignore=("x",)))
    assert block.evidence["x"].kinds == {"null"}


def test_polars_columns_keep_their_values() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {
            "i": [1, None],
            "s": ["a", "b"],
            "c": polars.Series(["x", "y"], dtype=polars.Categorical),
            "d": polars.Series(["1.5", "2"]).cast(polars.Decimal(10, 2)),
        }
    )
    (block,) = blocks_of_frame(frame, TableOptions())
    assert block.table.to_pydict() == {
        "i": [1, None],
        "s": ["a", "b"],
        "c": ["x", "y"],
        "d": [Decimal("1.50"), Decimal("2.00")],
    }
