"""Shuffled rows: one order, whatever the windows are and whoever deals first."""

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from loaders.errors import FormatError
from preprocess.tables import shuffle as table_shuffle
from preprocess.tables.shuffle import Dealer, keyed_numbers, plan_windows
from preprocess.tables.store import WindowRows

ORDER = [6798, 2927, 7555, 9886, 2243]
"""The first rows for seed 0: datasets that are there must not change."""

DTYPE = np.dtype([("n", "<i8"), ("x", "<f4"), ("_padding", "u1", (4,))])


def records(count: int) -> np.ndarray:
    found = np.zeros(count, DTYPE)
    found["n"] = np.arange(count)
    return found


@pytest.mark.parametrize(("count", "nbytes"), [(1, 8_000_000), (5000, 8_000_000), (5000, 700)])
def test_windows_give_the_rows_in_the_order_of_their_numbers(
    count: int, nbytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_shuffle, "WINDOW_NBYTES", nbytes)
    rows = records(count)

    windows = plan_windows(tmp_path, "train", 3, count, DTYPE)
    dealer = Dealer(windows)
    half = count // 2
    dealer.deal(half, rows[half:])
    dealer.deal(0, rows[:half])

    parts = [windows.read(n) for n, held in enumerate(windows.counts) if held]
    found = np.concatenate(parts)
    assert sum(windows.counts) == count
    assert found["n"].tolist() == np.argsort(keyed_numbers(0, count, 3, "train")).tolist()


def test_no_two_rows_have_the_same_number_and_parts_have_those_of_the_whole() -> None:
    whole = keyed_numbers(0, 1 << 16, 7, "train")

    assert len(np.unique(whole)) == len(whole)
    np.testing.assert_array_equal(keyed_numbers(1000, 50, 7, "train"), whole[1000:1050])
    for seed, split in ((8, "train"), (7, "test")):
        assert not np.isin(keyed_numbers(0, 1000, seed, split), whole).any()


def test_an_order_looks_random_and_stays_what_it_is() -> None:
    order = np.argsort(keyed_numbers(0, 10_000, 0, "train"))

    assert order[:5].tolist() == ORDER
    apart = np.corrcoef(order, np.arange(10_000))[0, 1]
    assert abs(apart) < 0.03


def test_a_window_is_read_once_for_all_small_shards_that_a_thread_takes_of_it(
    tmp_path: Path,
) -> None:
    windows = plan_windows(tmp_path, "train", 3, 10, DTYPE)
    Dealer(windows).deal(0, records(10))
    rows = WindowRows(windows=windows, rows=None)  # type: ignore[arg-type]
    whole = rows.read(0, 10)["n"].tolist()
    assert copy.deepcopy(rows).read(0, 10)["n"].tolist() == whole
    windows.path(0).unlink()

    assert rows.read(3, 7)["n"].tolist() == whole[3:7]
    with ThreadPoolExecutor(1) as pool, pytest.raises(FormatError, match="cannot be read"):
        pool.submit(rows.read, 3, 7).result()


def test_a_window_that_is_cut_is_refused(tmp_path: Path) -> None:
    windows = plan_windows(tmp_path, "train", 3, 10, DTYPE)
    Dealer(windows).deal(0, records(10))
    path = windows.path(0)
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(FormatError, match="bytes, 240 were written"):
        windows.read(0)
