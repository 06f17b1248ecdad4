"""Every sample once, window by window, for every number of samples and size of window."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loaders.order import permute_blocks
from loaders.sampling import MOST

SEEDS = st.integers(0, 2**70)
EPOCHS = st.integers(0, 2**40)


@settings(deadline=None)
@given(st.integers(1, 20_000), st.integers(1, 30_000), SEEDS, EPOCHS)
@example(1, 1, 0, 0)
@example(640, 64, 0, 0)
@example(641, 640, 0, 0)
def test_every_epoch_visits_every_sample_once(
    count: int, window: int, seed: int, epoch: int
) -> None:
    window = max(window, count // 40)
    found = permute_blocks(np.arange(count), count, seed, epoch, window)
    assert found.dtype == np.int64
    assert np.array_equal(np.sort(found), np.arange(count))


def test_every_small_number_of_samples_is_permuted_in_every_window() -> None:
    for count in range(1, 40):
        for window in (1, 2, 3, 7, 63, 64, 65, 130):
            found = permute_blocks(np.arange(count), count, 1, count % 5, window)
            assert np.array_equal(np.sort(found), np.arange(count)), (count, window)


@settings(deadline=None)
@given(st.integers(1, 5_000), st.integers(20, 3_000), SEEDS, EPOCHS, st.data())
def test_any_position_is_worked_out_alone(
    count: int, window: int, seed: int, epoch: int, data: st.DataObject
) -> None:
    whole = permute_blocks(np.arange(count), count, seed, epoch, window)
    some = np.array(data.draw(st.lists(st.integers(0, count - 1), max_size=20)), np.int64)
    assert np.array_equal(permute_blocks(some, count, seed, epoch, window), whole[some])


@settings(deadline=None)
@given(st.integers(64, 20_000), st.integers(64, 3_000), SEEDS, EPOCHS)
def test_a_window_holds_few_stretches_of_neighbours(
    count: int, window: int, seed: int, epoch: int
) -> None:
    block = window // 64
    found = permute_blocks(np.arange(count), count, seed, epoch, window)
    for start in range(0, count, window):
        held = np.sort(found[start : start + window])
        stretches = 1 + int((np.diff(held) > 1).sum())
        # Whole blocks, one cut at either end, and one that goes on from the last sample to the
        # first.
        assert stretches <= window // block + 3


@settings(deadline=None, max_examples=30)
@given(st.integers(2**33, MOST), SEEDS, st.integers(0, 2**50))
def test_in_large_datasets_no_sample_has_two_positions(count: int, seed: int, where: int) -> None:
    window = 1 << 20
    start = where % (count - 50_000)
    spread = np.arange(100) * (count // 101)
    positions = np.unique(np.concatenate([np.arange(start, start + 50_000), spread]))
    found = permute_blocks(positions, count, seed, 0, window)
    assert found.min() >= 0
    assert found.max() < count
    assert len(np.unique(found)) == len(positions)


def test_every_sample_comes_anywhere_and_neighbours_part() -> None:
    count, window, epochs = 1000, 128, 3000
    firsts = np.zeros(count)
    together = 0
    for epoch in range(epochs):
        found = permute_blocks(np.arange(window), count, 5, epoch, window)
        firsts[found] += 1
        first_half = set(found[: window // 2].tolist())
        together += sum(sample + 64 in first_half for sample in first_half)
    expected = epochs * window / count
    # Samples of a block come together: the variance of a count is that of blocks, 2 samples each.
    chi_square = ((firsts - expected) ** 2 / (expected * (1 - window / count))).sum()
    assert chi_square < count + 5 * np.sqrt(2 * 2 * count)
    # Of 64 samples of one half, the one 64 on, where there is one, is there as often as any other.
    assert abs(together / epochs / (64 * 0.936 * 63 / 999) - 1) < 0.05


def test_windows_are_shuffled_each_in_its_own_way_and_no_samples_are_always_last() -> None:
    window = 640  # blocks of 10
    count = 3 * window + 5
    lasts = set()
    for epoch in range(20):
        found = permute_blocks(np.arange(count), count, 3, epoch, window)
        lasts.add(tuple(sorted(found[-5:].tolist())))
    assert len(lasts) > 15
    even = permute_blocks(np.arange(2 * window), 2 * window, 3, 0, window) % 10
    assert not np.array_equal(even[:window], even[window:])
