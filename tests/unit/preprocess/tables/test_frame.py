"""Frames in memory become the same blocks as files."""

import pathlib
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pytest
import torch

from preprocess import table_to_shards
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


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([{"x": 1}], r"list: expected a path, a DataFrame .*; pandas\.DataFrame\(list\(rows\)\)"),
        (iter([{"x": 1}]), r"list_iterator: .*pandas\.DataFrame"),
        (np.zeros((2, 2)), r"numpy\.ndarray: .*its columns need names"),
        (torch.zeros(2, 2), r"torch\.Tensor: .*its columns need names"),
        (None, "NoneType: expected a path"),
        (3, "int: expected a path"),
        (b"a.csv", "bytes: expected a path"),
        ({"x": [1], "y": [1, 2]}, "columns of different lengths: 'x' 1, 'y' 2"),
        ({"x": "abc"}, "column 'x' is of type str; expected a list or an array"),
        ({"x": 3}, "column 'x' is of type int; expected a list or an array"),
        ({"x": np.array(3)}, "column 'x' is of type ndarray; expected a list or an array"),
        ({"x": {1, 2}}, "column 'x' is of type set; expected a list or an array"),
        ({"x": [1, "a"]}, r"column 'x' holds values of several types.*1 int, 1 str"),
        ({"x": np.zeros((2, 2, 2))}, "column 'x' holds values of several types"),
        ({1: [1], "1": [2]}, "several columns are named '1'"),
        (pathlib.Path("absent.csv"), r"absent\.csv: no such file"),
    ],
)
def test_what_is_no_table_is_refused_in_one_sentence(
    tmp_path: pathlib.Path, source: Any, message: str
) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        table_to_shards(source, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_frame_of_polars_that_is_not_collected_is_refused(tmp_path: pathlib.Path) -> None:
    polars = pytest.importorskip("polars")
    with pytest.raises(SourceError, match=r"LazyFrame: .*\.collect\(\) makes one"):
        table_to_shards(polars.LazyFrame({"x": [1]}), tmp_path / "out")


def test_a_dict_of_columns_and_a_structured_array_are_tables() -> None:
    given = {
        "i": [1, None, 3],
        "f": np.array([0.5, np.nan, 1.5]),
        "s": ("a", "b", "c"),
        "t": torch.tensor([1, 2, 3], dtype=torch.uint8),
        "v": np.arange(6, dtype=np.float32).reshape(3, 2),
        "a": pa.chunked_array([[1], [2, 3]]),
    }
    (block,) = blocks_of_frame(given, TableOptions())
    assert block.table.to_pydict() == {
        "i": [1, None, 3],
        "f": [0.5, None, 1.5],
        "s": ["a", "b", "c"],
        "t": [1, 2, 3],
        "v": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]],
        "a": [1, 2, 3],
    }
    rows = np.array([(1, 0.5), (2, 1.5)], [("i", "<i4"), ("f", "<f8")])
    (block,) = blocks_of_frame(rows, TableOptions())
    assert block.table.to_pydict() == {"i": [1, 2], "f": [0.5, 1.5]}


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
