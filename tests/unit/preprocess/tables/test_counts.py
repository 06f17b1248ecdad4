"""Whole numbers that are counted: the same sums and quantiles as of all of them one by one."""

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pytest

from preprocess.tables import counts as table_counts
from preprocess.tables.column_statistics import tally
from preprocess.tables.counts import Part, count_numbers, numbers_to_count
from preprocess.tables.quantiles import quantiles, quantiles_of_counted

RNG = np.random.default_rng(0)
LARGEST = (1 << 63) - 1


@pytest.mark.parametrize(
    "parts",
    [
        [np.array([5, 5, -3], np.int8)],
        [np.array([-128, 127], np.int8), np.array([300, -128], np.int16)],
        [RNG.integers(-100, 100, 50), RNG.integers(1 << 40, 1 << 41, 50), np.array([7], np.int8)],
        [np.array([-LARGEST - 1, LARGEST, LARGEST, 0])],
        [np.array([0, (1 << 16) - 1, 1 << 16, 1 << 16, (1 << 16) + 1], np.int32)],
        [np.array([0, 1 << 16, (1 << 17) + 8]), np.array([1 << 40, 1 << 17])],
        [np.array([(1 << 31) - 1, (1 << 31) - 2], np.int32)],
        [np.empty(0, np.int64), np.array([0], np.int16), np.empty(0, np.int8)],
    ],
)
@pytest.mark.parametrize("held", [1, 3, 1 << 22])
def test_counted_numbers_have_the_sums_and_quantiles_of_all(
    parts: list[np.ndarray], held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = np.concatenate([part.astype(np.int64) for part in parts])
    monkeypatch.setattr(table_counts, "_MERGED", held)
    for low in (int(whole.min()), max(int(whole.min()) - 1000, -LARGEST - 1)):
        found = count_numbers(map(Part, parts), low)
        assert found is not None
        values, counts = np.unique(whole, return_counts=True)
        assert found[0].tolist() == values.tolist()
        assert found[1].tolist() == counts.tolist()
        assert tally(*found) == tally(whole)
        for exponent in (0, -3):
            expected = quantiles(lambda: [(whole, None)], len(whole), exponent)
            assert quantiles_of_counted(*found, exponent) == expected


def test_of_no_numbers_there_are_no_quantiles() -> None:
    found = count_numbers([Part(np.empty(0, np.int64))], 0)
    assert found is not None
    assert quantiles_of_counted(*found) == ()


def test_too_many_different_numbers_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_counts, "_HELD", 3)
    assert count_numbers([Part(np.arange(4))] * 2, 0) is None
    assert count_numbers([Part(np.arange(3))] * 2, 0) is not None


@pytest.mark.parametrize("far", [0, 1 << 30])
def test_missing_numbers_are_left_out(far: int) -> None:
    arrays = [pa.array([far + 1, None, far + 3, None], pa.int32()), pa.array([None, far + 3, -5])]
    found = count_numbers(map(numbers_to_count, arrays), -1000)
    assert found is not None
    kept = found[1] > 0
    assert found[0][kept].tolist() == [-5, far + 1, far + 3]
    assert found[1][kept].tolist() == [1, 1, 2]


def test_other_types_are_not_counted() -> None:
    unsigned = numbers_to_count(pa.array([1, (1 << 32) - 1], pa.uint32()))
    assert unsigned is not None
    found = count_numbers([unsigned], 0)
    assert found is not None
    assert found[0].tolist() == [1, (1 << 32) - 1]
    nothing = numbers_to_count(pa.array(["a", None]).dictionary_encode()[1:])
    assert nothing is not None
    assert len(nothing.numbers) == 0
    assert numbers_to_count(pa.array([1], pa.uint64())) is None
    assert numbers_to_count(pa.array([1.0])) is None
    assert count_numbers([Part(np.arange(3)), None], 0) is None
