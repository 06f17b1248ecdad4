import json
import pickle  # noqa: TID251
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from loaders import (
    FormatError,
    Loader,
    Mix,
    SelectionError,
    Weighted,
    open_dataset,
    open_table,
    open_tokens,
)
from loaders.weighted import uniform
from tests.table_stores import write_people
from tests.token_stores import write_stream

CHI_SQUARE = {9: 33.7, 15: 44.3, 99: 161.3}
"""Degrees of freedom -> what one run in 10,000 exceeds."""


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory):
    """10 windows of 1 token, which is their number."""
    path = tmp_path_factory.mktemp("weighted")
    return open_tokens(write_stream(path, [[[*range(4)], [*range(4, 11)]]])).blocks(1)


def numbers(batches) -> list[int]:
    return [int(row[0]) for batch in batches for row in batch["x"]]


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("seed", range(5))
def test_samples_are_drawn_in_proportion_to_their_weights(windows, seed: int) -> None:
    weights = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) / 7
    draws = 20_000
    seen = numbers(Loader(Weighted(windows, weights, draws), 500, seed=seed))
    assert len(seen) == draws
    counts = np.bincount(seen, minlength=10)
    assert chi_square(counts, draws * weights / weights.sum()) < CHI_SQUARE[9]


def test_random_numbers_are_even_in_their_bits_pairs_seeds_and_epochs() -> None:
    count = 100_000
    expected = np.full(100, count / 100)
    columns = [uniform(np.arange(count), seed, epoch) for seed, epoch in [(0, 0), (0, 1), (1, 0)]]
    columns.append(uniform(np.arange(count) + 2**39, 0, 0))
    for values in columns:
        assert values.min() >= 0
        assert values.max() < 1
        # The upper digits, the lower ones, and each draw with the next.
        for digits in (values * 100, values * 2**40 % 100):
            counts = np.bincount(digits.astype(np.int64), minlength=100)
            assert chi_square(counts, expected) < CHI_SQUARE[99]
        pairs = (values[::2] * 4).astype(np.int64) * 4 + (values[1::2] * 4).astype(np.int64)
        even = np.full(16, count / 32)
        assert chi_square(np.bincount(pairs, minlength=16), even) < CHI_SQUARE[15]
    for a, b in pairwise(columns):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.015


def test_what_weighs_nothing_is_never_drawn(windows) -> None:
    weights = [0, 0, 1e-9, 0, 1e9, 0, 0, 1, 0, 0]
    seen = numbers(Loader(Weighted(windows, weights, 50_000), 1000))
    assert set(seen) <= {2, 4, 7}
    tiny = Weighted(windows, np.eye(10)[3] * 5e-324, 100)
    assert set(numbers(Loader(tiny, 10))) == {3}


def test_classes_are_balanced(tmp_path: Path, dataset_path: Path) -> None:
    photos = open_dataset(dataset_path, size=32)
    few = photos.select([i for i in range(len(photos)) if i % 3 or photos[i]["label"] != 1])
    people = open_table(write_people(tmp_path / "people"))
    for ds, entry in ((few, "label"), (people, "target")):
        labels = ds.read_labels()
        stored = np.bincount(labels)
        assert len(set(stored[stored > 0].tolist())) > 1
        drawn = Weighted(ds, "balanced", num_samples=6000)
        seen = np.concatenate([batch[entry].numpy() for batch in Loader(drawn, 100, seed=2)])
        counts = np.bincount(seen)[stored > 0]
        assert chi_square(counts, np.full(len(counts), 6000 / len(counts))) < CHI_SQUARE[9]


def test_ranks_draw_disjoint_parts_of_one_sequence_and_resume_as_any_number_of_ranks(
    windows,
) -> None:
    drawn = Weighted(windows, torch.arange(10), num_samples=48)
    assert len(drawn) == 48
    loader = Loader(drawn, 1, seed=4)
    whole = numbers(loader)
    next_epoch = numbers(loader)
    assert whole != next_epoch
    ranks = [Loader(drawn, 4, seed=4, rank=rank, world_size=2) for rank in (0, 1)]
    running = [iter(rank) for rank in ranks]
    seen = [i for _ in range(3) for rank in running for i in numbers([next(rank)])]
    assert seen == whole[:24]
    state = json.loads(json.dumps(ranks[1].state_dict()))
    again = [Loader(drawn, 2, seed=4, rank=rank, world_size=3) for rank in range(3)]
    for rank in again:
        rank.load_state_dict(state)
    turns = zip(*again, strict=True)
    assert [i for turn in turns for i in numbers(turn)] == whole[24:]


def test_a_state_of_other_weights_is_refused(windows) -> None:
    state = Loader(Weighted(windows, np.ones(10)), 2).state_dict()
    Loader(Weighted(windows, [1] * 10), 2).load_state_dict(state)
    for other in (
        Weighted(windows, [2, *[1] * 9]),
        Weighted(windows, np.ones(10), num_samples=11),
        Weighted(windows.select(slice(None, None, -1)), np.ones(10)),
        windows,
    ):
        with pytest.raises(SelectionError, match="state"):
            Loader(other, 2).load_state_dict(state)


def test_weights_go_with_selections_and_mixes(windows) -> None:
    drawn = Weighted(windows.select([8, 2, 5]), [1, 0, 3])
    seen = numbers(Loader(Mix({drawn: 1, windows: 1}, epoch_size=4000), 100))
    alone = Counter(seen)
    assert alone[5] > alone[8] > alone[2] == 200
    assert 1500 + 200 - 150 < alone[5] < 1500 + 200 + 150
    again = pickle.loads(pickle.dumps(drawn))
    assert numbers(Loader(again, 3)) == numbers(Loader(drawn, 3))


@pytest.mark.parametrize(
    ("weights", "options", "message"),
    [
        ([1] * 9, {}, r"weights of shape \[9\] for 10 samples"),
        (np.ones((10, 1)), {}, "weights of shape"),
        ([1] * 9 + [-1], {}, "weight -1.0 of sample 9"),
        ([1, np.nan] * 5, {}, "weight nan of sample 1"),
        ([1] * 9 + [np.inf], {}, "weight inf of sample 9"),
        ([0] * 10, {}, "add up to 0.0"),
        ([1e308] * 10, {}, "add up to inf"),
        (["a"] * 10, {}, "weights are no numbers"),
        ("even", {}, "weights='even'"),
        ("balanced", {}, "no field 'class'"),
        ([1] * 10, {"num_samples": 0}, "num_samples=0"),
        ([1] * 10, {"num_samples": 1.5}, "num_samples=1.5"),
        ([1] * 10, {"num_samples": True}, "num_samples=True"),
    ],
)
def test_weights_that_cannot_be_are_refused(windows, weights, options, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        Weighted(windows, weights, **options)


def test_orders_and_datasets_that_have_no_draws_are_refused(windows) -> None:
    with pytest.raises(SelectionError, match="a Mix has weights of its own"):
        Weighted(Mix({windows: 1}), [1] * 10)
    drawn = Weighted(windows, [1] * 10)
    for shuffle, said in ((False, "False"), ("block", '"block"')):
        named = f"shuffle={said}, but draws by weight are random"
        for dataset in (drawn, Mix({drawn: 1, windows: 1})):
            with pytest.raises(SelectionError, match=named):
                Loader(dataset, 2, shuffle=shuffle)


def test_classes_of_no_samples_and_stored_classes_that_there_are_not_are_refused(
    tmp_path: Path, make_dataset
) -> None:
    path = make_dataset(fresh=True)
    labels = sorted((path / "train").glob("*.label.npy"))[1]
    labels.write_bytes(labels.read_bytes()[:-1] + b"\x07")
    photos = open_dataset(path, size=32)
    for read in (photos.read_labels, lambda: Weighted(photos, "balanced")):
        with pytest.raises(FormatError, match=r"train: class 7 of sample \d+, there are 3 classes"):
            read()
    people = open_table(write_people(tmp_path / "nobody", 0, shards=[0]))
    with pytest.raises(SelectionError, match="train has no samples to draw from"):
        Weighted(people, "balanced")
