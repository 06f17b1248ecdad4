"""Records as they are stored: views of the very bytes, and the columns that are made of them."""

import pickle  # noqa: TID251
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loaders import FormatError, Loader, Mix, SelectionError, TableDataset, open_table
from loaders.format.records import RECORD_DTYPES, pack_record
from loaders.table_stored import stored_columns
from tests.table_stores import people_codes, write_people

COUNT = 50


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_people(tmp_path / "people", COUNT, shards=[20, 0, 1, 29])


def test_each_column_lies_where_its_place_says(path: Path) -> None:
    ds = open_table(path, shown="stored")
    batch = ds.__getitems__(range(COUNT))
    for name, codes in people_codes(COUNT).items():
        dtype, place = ds.stored_places[name]
        found = batch[dtype][:, place]
        assert found.dtype == getattr(torch, dtype)
        assert found.untyped_storage().data_ptr() == batch["record"].untyped_storage().data_ptr()
        expected = codes.reshape(COUNT, -1).astype(dtype)
        np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("numeric", ["values", "standardized"])
@pytest.mark.parametrize("codes", ["int64", "int32"])
def test_the_columns_made_of_stored_batches_are_those_of_the_other_kind(
    path: Path, numeric: str, codes: str
) -> None:
    made = open_table(path, numeric=numeric, codes=codes)
    stored = open_table(path, numeric=numeric, codes=codes, shown="stored")
    pairs = zip(Loader(made, 8, seed=3), Loader(stored, 8, seed=3), strict=True)
    for expected, batch in pairs:
        found = stored.columns(batch)
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            torch.testing.assert_close(found[name], values, rtol=0, atol=0, equal_nan=True)


def test_a_sample_is_a_row_of_a_batch_and_selections_and_pickles_keep_the_kind(path: Path) -> None:
    ds = open_table(path, shown="stored").select([4, 2])
    again: TableDataset = pickle.loads(pickle.dumps(ds))
    assert again.shown == "stored"
    batch, sample = again.__getitems__([1]), ds[1]
    for name, values in batch.items():
        torch.testing.assert_close(sample[name], values[0], rtol=0, atol=0, equal_nan=True)


def test_no_samples_are_a_batch_of_no_rows(path: Path) -> None:
    ds = open_table(path, shown="stored")
    none, two = ds.__getitems__([]), ds.__getitems__([1, 2])
    for name, found in none.items():
        assert found.shape == (0, two[name].shape[1])
        assert found.dtype == two[name].dtype
    columns = open_table(path).__getitems__([])
    assert {n: v.shape for n, v in ds.columns(none).items()} == {
        n: v.shape for n, v in columns.items()
    }


def test_both_kinds_are_not_mixed(path: Path) -> None:
    with pytest.raises(SelectionError, match="only datasets that agree in this can be mixed"):
        Mix([(open_table(path), 1), (open_table(path, shown="stored"), 1)])


def test_another_kind_is_refused(path: Path) -> None:
    with pytest.raises(SelectionError, match="shown='raw': expected one of"):
        open_table(path, shown="raw")


@given(
    parts=st.lists(st.tuples(st.sampled_from(RECORD_DTYPES), st.integers(1, 5)), min_size=1),
    seed=st.integers(0, 2**32),
)
def test_any_record_is_seen_as_numpy_sees_it(parts: list[tuple[str, int]], seed: int) -> None:
    record = pack_record([(f"c{n}", dtype, length) for n, (dtype, length) in enumerate(parts)])
    dtype = np.dtype([(name, kind, (length,)) for name, kind, length in record])
    raw = np.random.default_rng(seed).integers(0, 255, (7, dtype.itemsize), np.uint8)
    columns = stored_columns(record, "data")
    views = columns.views(torch.from_numpy(raw))
    for name, (kind, place) in columns.places.items():
        expected = raw.view(dtype)[:, 0][name]
        assert views[kind][:, place].numpy().tobytes() == expected.tobytes()


def test_parts_of_one_dtype_that_lie_apart_are_refused() -> None:
    record = (("a", "uint16", 1), ("b", "uint8", 2), ("c", "uint16", 2))
    with pytest.raises(FormatError, match="data: parts of uint16 lie apart"):
        stored_columns(record, "data")
