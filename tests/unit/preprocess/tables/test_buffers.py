"""Arrow's memory as NumPy shows it, dictionaries in order, and packed records: against Arrow."""

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.errors import SampleError
from preprocess.tables import packed as table_packed
from preprocess.tables.buffers import narrowed, stored_numbers, validity, whole_range
from preprocess.tables.dictionaries import encoded
from preprocess.tables.packed import packed

INTEGERS = st.sampled_from([pa.int8(), pa.uint8(), pa.int16(), pa.int64(), pa.uint64()])


@given(st.data(), INTEGERS)
def test_numbers_and_what_is_missing_are_those_of_arrow(
    data: st.DataObject, kind: pa.DataType
) -> None:
    limits = np.iinfo(kind.to_pandas_dtype())
    numbers = st.integers(int(limits.min), int(limits.max))
    values = data.draw(st.lists(st.none() | numbers, max_size=40))
    first = data.draw(st.integers(0, len(values)))
    array = pa.array(values, kind).slice(first, data.draw(st.integers(0, len(values))))
    values = array.to_pylist()
    known = [value for value in values if value is not None]
    assert validity(array).tolist() == [value is not None for value in values]
    assert stored_numbers(array)[validity(array)].tolist() == known
    assert whole_range(array) == ((min(known), max(known)) if known else None)
    if known:
        narrow = narrowed(array, (min(known), max(known)))
        narrow.validate(full=True)
        assert narrow.to_pylist() == values
        assert narrow.type.bit_width <= kind.bit_width
        assert set(stored_numbers(narrow).tolist()) == set(known)


def test_of_an_array_of_nothing_all_is_missing() -> None:
    assert validity(pa.nulls(3)).tolist() == [False] * 3


@given(st.data())
def test_dictionaries_are_those_of_their_texts(data: st.DataObject) -> None:
    values = data.draw(st.lists(st.sampled_from(["", "a", "b", "é", "ab", "c"]), max_size=8))
    some = st.none() if not values else st.none() | st.integers(0, len(values) - 1)
    indices = pa.array(data.draw(st.lists(some, max_size=30)), pa.int8())
    array = pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string()))
    array = array.slice(data.draw(st.integers(0, len(array))))
    expected = array.dictionary_decode().cast(pa.large_binary()).dictionary_encode()
    found = encoded(array, "x", "a.parquet")
    found.validate(full=True)
    assert found.dictionary.equals(expected.dictionary)
    assert found.indices.equals(expected.indices)


@pytest.mark.parametrize("index", [-1, 2])
def test_an_index_without_a_value_is_refused_by_name(index: int) -> None:
    indices = pa.array([0, index], pa.int32())
    damaged = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)
    with pytest.raises(SampleError, match=r"a\.parquet.*column 'x': an index without a value"):
        encoded(damaged, "x", "a.parquet")


@pytest.mark.parametrize("count", [0, 1, 7, 100])
def test_packed_records_are_the_columns_and_no_more(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_packed, "_NBYTES", 64)
    dtype = np.dtype([("a", "<i4"), ("v", "<u2", (3,)), ("one", "<u2", (1,)), ("pad", "u1", (3,))])
    rng = np.random.default_rng(0)
    columns = {
        "a": rng.integers(-9, 9, count).astype(np.int32),
        "v": rng.integers(0, 9, (count, 3)).astype(np.uint16),
        "one": rng.integers(0, 9, count).astype(np.uint16),
    }
    records = packed(columns, count, dtype)
    for name, column in columns.items():
        assert records[name].reshape(column.shape).tolist() == column.tolist()
    assert not records["pad"].any()
