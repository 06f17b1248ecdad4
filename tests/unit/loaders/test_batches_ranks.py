from pathlib import Path

import pytest
import torch

from loaders import Loader, SelectionError, open_dataset
from loaders.ahead import run_ahead
from tests.waiting import SECONDS


def per_rank(ds, world_size: int, batch_size: int, **options) -> list[list[dict]]:
    return [
        list(Loader(ds, batch_size, rank=rank, world_size=world_size, **options))
        for rank in range(world_size)
    ]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_evaluation_with_pad_counts_every_sample_once(dataset_path: Path, world_size: int) -> None:
    ds = open_dataset(dataset_path, size=32)
    ranks = per_rank(ds, world_size, 5, shuffle=False, last="pad")
    assert len({len(batches) for batches in ranks}) == 1
    keys = []
    for batches in ranks:
        for batch in batches:
            assert batch["image"].shape[0] == len(batch["key"]) == 5
            assert batch["valid"].dtype == torch.bool
            keys += [k for k, valid in zip(batch["key"], batch["valid"], strict=True) if valid]
    assert sorted(keys) == sorted(sample["key"] for sample in ds)


def test_wrap_fills_the_last_batch_from_the_start_of_the_same_epoch(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    (whole,) = per_rank(ds, 1, 18, seed=3)
    order = whole[0]["key"]
    ranks = per_rank(ds, 2, 4, seed=3, last="wrap")
    keys = [key for pair in zip(*ranks, strict=True) for batch in pair for key in batch["key"]]
    assert keys == order + order[:6]
    assert "valid" not in ranks[0][0]


def test_sets_smaller_than_a_global_batch_still_give_one(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    ranks = per_rank(ds, 3, 15, last="pad")
    assert [int(batch["valid"].sum()) for (batch,) in ranks] == [15, 3, 0]
    with pytest.raises(SelectionError, match=r'on each of 3 ranks.*last="wrap"'):
        Loader(ds, 15, rank=0, world_size=3)


def test_the_global_order_does_not_depend_on_the_number_of_ranks(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    orders = []
    for world_size, batch_size in ((1, 6), (2, 3), (3, 2), (6, 1)):
        ranks = per_rank(ds, world_size, batch_size, seed=1)
        turns = zip(*ranks, strict=True)
        orders.append([key for turn in turns for batch in turn for key in batch["key"]])
    assert all(order == orders[0] for order in orders)


def test_options_that_contradict_each_other_are_refused(dataset_path: Path) -> None:
    ds = open_dataset(dataset_path, size=32)
    refused = [
        ({"drop_last": False, "last": "drop"}, "contradicts"),
        ({"drop_last": True, "last": "pad"}, "contradicts"),
        ({"drop_last": False, "rank": 0, "world_size": 2}, 'give last="pad"'),
        ({"rank": 0}, "give both"),
        ({"world_size": 2}, "give both"),
        ({"rank": 2, "world_size": 2}, "rank=2"),
        ({"last": "repeat"}, "expected"),
        ({"seed": -1}, "seed=-1"),
    ]
    for options, message in refused:
        with pytest.raises(SelectionError, match=message):
            Loader(ds, 4, **options)
    assert len(Loader(ds, 4, drop_last=False, last="wrap")) == 5
    assert len(Loader(ds, 4, drop_last=True, last="drop")) == 4


@pytest.mark.parametrize(("nbytes", "threads"), [(1 << 19, 1), (1 << 20, 2)])
def test_large_batches_are_gathered_by_two_threads_and_small_ones_by_one(
    nbytes: int, threads: int
) -> None:
    import threading

    names = set()
    meet = threading.Barrier(threads)

    def work(block: int) -> int:
        meet.wait(timeout=SECONDS)  # returns only when as many threads are here
        names.add(threading.current_thread().name)
        return block

    assert list(run_ahead(work, range(8), lambda _: nbytes)) == list(range(8))
    assert len(names) == threads
