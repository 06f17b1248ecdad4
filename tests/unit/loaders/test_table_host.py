"""Columns out of records on the host: the same numbers, whatever their widths and memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loaders import Loader, SelectionError, open_table
from loaders.ahead import BufferPool
from loaders.format import table_schema
from loaders.format.records import pack_record
from loaders.format.table_schema import ColumnSpec, TableSchema
from loaders.table_put import Put
from loaders.table_views import Group
from tests.table_stores import people_codes, people_specs, statistics, write_people, write_table


def equal(one: Any, other: Any) -> bool:
    return bool(
        one.dtype == other.dtype
        and one.shape == other.shape
        and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
    )


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 8, 16, 17])
@pytest.mark.parametrize("shown", [np.int32, np.int64, np.float64])
def test_runs_of_any_width_are_cast_to_their_columns(dtype: str, width: int, shown: Any) -> None:
    rng = np.random.default_rng(width)
    size = np.dtype(dtype).itemsize
    rows = rng.integers(0, 256, (70, 16 + width * size + 8), np.uint8)
    numbers = rng.integers(0, 200, (70, width)).astype(dtype)
    rows[:, 16 : 16 + width * size] = numbers.view(np.uint8)
    front = Group("uint8", (slice(3, 6),))
    run = Group(dtype, (slice(16, 16 + width * size),))
    found = np.full((128, 3 + width), 7, shown)
    Put((front, run), np.dtype(shown))(rows, found)
    assert np.array_equal(found[:70, 3:], numbers.astype(shown))
    assert np.array_equal(found[:70, :3], rows[:, 3:6].astype(shown))
    assert not found[70:].any()


def test_no_rows_are_no_columns() -> None:
    found = np.empty((0, 4), np.int64)
    Put((Group("uint8", (slice(8, 12),)),), np.dtype(np.int64))(np.empty((0, 16), np.uint8), found)
    assert found.shape == (0, 4)


@pytest.mark.parametrize("offset", [0, 5, -(1 << 31) + 1, -(1 << 31), 1 << 31, -(1 << 24)])
@pytest.mark.parametrize("numeric", ["values", "standardized"])
def test_whole_numbers_at_the_ends_of_int32_are_rounded_once(
    tmp_path: Path, offset: int, numeric: Any
) -> None:
    top = int(np.iinfo(np.int32).max)
    known = statistics([offset, offset + top - 1])
    specs = [
        ColumnSpec(
            name=dtype, kind="integer", role="feature", dtype=dtype, offset=offset, statistics=known
        )
        for dtype in ("int32", "uint8")
    ]
    codes = {"int32": [0, 1, 2, top - 1, top], "uint8": [0, 1, 2, 254, 255]}
    ds = open_table(write_table(tmp_path / "t", specs, codes), numeric=numeric)
    rows = np.empty((5, 8), np.uint8)
    ds.gather_into(np.arange(5), {"record": rows})
    shown = ds.show({"record": torch.from_numpy(rows)})["numeric"]
    (entry,) = ds._entries
    assert equal(entry.on_device(torch.from_numpy(rows)), shown)
    if numeric == "values":
        expected = np.array(codes["int32"], np.float64) - 1 + offset
        assert np.array_equal(shown[1:, 0].numpy(), expected[1:].astype(np.float32))
        assert torch.isnan(shown[0]).all()


def test_columns_of_one_entry_and_dtype_are_one_run_of_new_records() -> None:
    def column(name: str, **options: Any) -> ColumnSpec:
        return ColumnSpec(name=name, **{"role": "feature", "dtype": "uint8", **options})

    schema = TableSchema(
        (
            column("y", kind="categorical", role="target", buckets=3),
            column("a", kind="categorical", buckets=3),
            column("b", kind="integer"),
            column("v", kind="vector", length=2),
            column("c", kind="categorical", buckets=3),
            column("d", kind="boolean"),
            column("e", kind="integer", dtype="uint16"),
        )
    )
    names = [name for name, _, _ in schema.record]
    assert names == ["e", "b", "d", "a", "c", "v", "y"] + (["_padding"] * (len(names) - 7))


def test_records_in_the_order_of_the_source_are_read_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = open_table(write_people(tmp_path / "new"))
    with monkeypatch.context() as older:
        older.setattr(table_schema, "_entry", lambda spec: 0)
        write_people(tmp_path / "old")
    old = open_table(tmp_path / "old")
    specs = people_specs()
    assert old._record == pack_record((s.name, s.dtype, s.length) for s in specs) != new._record
    assert old.numeric_names == new.numeric_names
    ours, theirs = old.__getitems__(range(50)), new.__getitems__(range(50))
    assert all(equal(ours[name], theirs[name]) for name in theirs)


def test_codes_are_int32_where_asked_for_but_classes_are_not(tmp_path: Path) -> None:
    path = write_people(tmp_path / "t")
    wide, narrow = open_table(path), open_table(path, codes="int32")
    ours, theirs = narrow.__getitems__(range(50)), wide.__getitems__(range(50))
    for name in ("categorical", "tags"):
        assert ours[name].dtype == torch.int32
        assert torch.equal(ours[name].long(), theirs[name])
    assert ours["target"].dtype == torch.int64
    assert equal(ours["numeric"], theirs["numeric"])
    with pytest.raises(SelectionError, match="codes='int16'"):
        open_table(path, codes="int16")  # type: ignore[arg-type]
    spec = ColumnSpec(name="id", kind="categorical", role="feature", dtype="int64", buckets=9)
    path = write_table(tmp_path / "wide", [spec], {"id": [1, 2]})
    with pytest.raises(SelectionError, match=r"codes of \['id'\] are int64"):
        open_table(path, codes="int32")


@pytest.mark.parametrize("numeric", ["values", "standardized"])
def test_batches_of_used_memory_hold_the_same_and_are_never_overwritten(
    tmp_path: Path, numeric: Any
) -> None:
    count, size = 20_000, 4096
    ds = open_table(write_people(tmp_path / "t", count, shards=[9000, 0, 11_000]), numeric=numeric)
    codes = people_codes(count)
    loader = Loader(ds, size, shuffle=False)
    for _ in range(2):
        kept = []
        for number, batch in enumerate(loader):
            expected = ds.__getitems__(range(number * size, (number + 1) * size))
            assert all(equal(batch[name], expected[name]) for name in expected)
            kept.append(batch if number % 2 else None)
        for number, batch in enumerate(kept):
            if batch is not None:
                rows = slice(number * size, (number + 1) * size)
                assert np.array_equal(batch["target"].numpy(), codes["bought"][rows])
                assert np.array_equal(batch["face"].numpy(), codes["face"][rows].astype(np.float32))


def test_a_pool_keeps_arrays_of_few_sizes() -> None:
    pool = BufferPool(1)
    dtype = np.dtype(np.uint8)
    for columns in range(100_000, 1_000_000, 20_000):
        assert pool.take((1, columns), dtype).shape == (1, columns)
    assert len(pool._kept) <= 8
    address = pool.take((1, columns), dtype).ctypes.data
    assert pool.take((1, columns), dtype).ctypes.data == address


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(2000, 9000)), max_size=40))
def test_arrays_of_a_pool_that_are_held_never_share_memory(shapes: list[tuple[int, int]]) -> None:
    pool = BufferPool(2)
    held = []
    for number, shape in enumerate(shapes):
        dtype = np.dtype([np.uint8, "<u2", "<f4"][number % 3])
        found = pool.take(shape, dtype)
        assert (found.shape, found.dtype) == (shape, dtype)
        found[...] = number
        held.append((number, found if number % 2 else None))
        assert all((array == value).all() for value, array in held if array is not None)


def test_pictures_of_one_size_in_several_shapes_share_the_memory_of_a_pool() -> None:
    pool = BufferPool(1)
    shapes = [(4, 1344, 768, 3), (4, 1024, 1024, 3), (4, 960, 1088, 3), (4, 896, 1152, 3)]
    assert len({pool.take(shape, np.dtype(np.uint8)).ctypes.data for shape in shapes}) == 1
