import json
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from loaders import Loader, SelectionError, open_dataset, open_tokens
from loaders.feed import DeviceFeed
from loaders.finish import Finish
from loaders.sampling import MOST, permute
from tests.token_stores import write_chat, write_fixed, write_packed, write_stream

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory):
    """23 windows of 4 tokens, whose first ids are 0, 4, 8, ..."""
    ids = list(range(23 * 4 + 1))
    path = tmp_path_factory.mktemp("tokens")
    return open_tokens(write_stream(path, [[ids[:30]], [ids[30:41], ids[41:]]])).blocks(4)


def first_ids(batches) -> list[int]:
    return [int(row[0]) for batch in batches for row in batch["x"]]


def endless(loader: Loader) -> Iterator[dict]:
    while True:
        yield from loader


def taken(loader: Loader, batches: int) -> list[int]:
    """Return the first ids of the next batches, over as many epochs as it takes."""
    stream = endless(loader)
    found = first_ids(next(stream) for _ in range(batches))
    stream.close()
    return found


@pytest.mark.parametrize("options", [{}, {"drop_last": False}, {"last": "wrap"}])
@pytest.mark.parametrize("shuffle", [True, False])
def test_saved_at_any_batch_a_new_loader_goes_on_as_if_nothing_had_happened(
    blocks, options: dict, shuffle: bool
) -> None:
    def new() -> Loader:
        return Loader(blocks, 5, seed=3, shuffle=shuffle, **options)

    whole = taken(new(), 17)
    for stop in range(17):
        loader, again = new(), new()
        before = taken(loader, stop)
        again.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        assert before + taken(again, 17 - stop) == whole


def test_a_new_process_goes_on_with_the_very_next_sample(blocks) -> None:
    loader = Loader(blocks, 4, seed=1, drop_last=False)
    whole = taken(loader, 12)
    loader.set_epoch(0)
    before = taken(loader, 8)
    code = (
        "import json, sys; from loaders import *\n"
        "loader = Loader(open_tokens(sys.argv[1]).blocks(4), 4, seed=1, drop_last=False)\n"
        "loader.load_state_dict(json.loads(sys.argv[2]))\n"
        "print([int(i) for batch in loader for i in batch['x'][:, 0]])"
    )
    command = [sys.executable, "-c", code, str(blocks.path), json.dumps(loader.state_dict())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert before + json.loads(done.stdout) == whole


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 3, 4])
def test_it_goes_on_with_another_batch_size_and_number_of_ranks(
    blocks, batch_size: int, world_size: int
) -> None:
    whole = first_ids(Loader(blocks, 1, seed=2))
    loader = Loader(blocks, 5, seed=2)
    before = taken(loader, 2)
    ranks = [
        Loader(blocks, batch_size, seed=2, rank=rank, world_size=world_size, last="pad")
        for rank in range(world_size)
    ]
    after: list[int] = []
    for rank in ranks:
        rank.load_state_dict(loader.state_dict())
    for batches in zip(*ranks, strict=True):
        after += [int(i) for batch in batches for i in batch["x"][batch["valid"], 0]]
    assert before + after == whole
    assert all(rank.state_dict() == ranks[0].state_dict() for rank in ranks)
    assert ranks[0].state_dict()["epoch"] == 1


def test_only_batches_that_the_loop_has_got_are_counted(blocks) -> None:
    loader = Loader(blocks, 3)
    assert loader.state_dict()["samples"] == 0
    batches = iter(loader)
    assert loader.state_dict()["samples"] == 0
    for number in range(1, 4):
        next(batches)
        state = loader.state_dict()
        assert (state["epoch"], state["samples"], state["tokens"]) == (0, 3 * number, 12 * number)
    batches.close()
    assert loader.state_dict()["samples"] == 9


def test_an_exception_in_the_loop_leaves_the_state_where_it_was(blocks) -> None:
    whole = first_ids(Loader(blocks, 3, seed=8))
    loader = Loader(blocks, 3, seed=8)
    seen: list[int] = []

    def train() -> None:
        for batch in loader:
            seen.extend(first_ids([batch]))
            if len(seen) == 9:
                raise KeyError("training failed")

    with pytest.raises(KeyError, match="training"):
        train()
    again = Loader(blocks, 3, seed=8)
    again.load_state_dict(loader.state_dict())
    assert seen + first_ids(again) == whole


def test_an_exception_while_gathering_counts_nothing(make_dataset) -> None:
    path = make_dataset(fresh=True)
    ds = open_dataset(path, size=32)
    loader = Loader(ds, 3, shuffle=False)
    files = sorted(path.glob("train/*.image_32.npy"))
    data = files[-1].read_bytes()
    files[-1].unlink()
    keys: list[str] = []
    with pytest.raises(FileNotFoundError):
        keys.extend(key for batch in loader for key in batch["key"])
    assert loader.state_dict()["samples"] == len(keys) < 18
    files[-1].write_bytes(data)
    loader.load_state_dict(loader.state_dict())
    keys += [key for batch in loader for key in batch["key"]]
    assert keys == [sample["key"] for sample in ds]


def test_the_path_through_device_slots_counts_the_same(blocks) -> None:
    loader = Loader(blocks, 4, seed=6)
    whole = first_ids(loader)
    loader.set_epoch(0)
    # The same ring as for a GPU, without one.
    loader._feed = DeviceFeed(blocks, loader.device, Finish(None, None, 0), None, 1)
    batches = iter(loader)
    before = first_ids([next(batches), next(batches)])
    assert loader.state_dict()["samples"] == 8
    batches.close()
    loader.load_state_dict(loader.state_dict())
    assert before + first_ids(loader) == whole


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_it_goes_on_with_the_very_next_sample(blocks) -> None:
    whole = first_ids(Loader(blocks, 4, seed=6, last="pad"))
    loader = Loader(blocks, 4, seed=6, last="pad", device="cuda")
    batches = iter(loader)
    before = first_ids([next(batches), next(batches)])
    batches.close()
    again = Loader(blocks, 4, seed=6, last="pad", device="cuda")
    again.load_state_dict(loader.state_dict())
    rest = list(again)
    assert all(batch["valid"].is_cuda for batch in rest)
    assert before + first_ids(rest) == whole


def test_setting_the_epoch_that_was_restored_keeps_the_place(blocks) -> None:
    loader = Loader(blocks, 4)
    loader.set_epoch(2)
    taken(loader, 3)
    again = Loader(blocks, 4)
    again.load_state_dict(loader.state_dict())
    again.set_epoch(2)
    assert again.state_dict() == loader.state_dict()
    assert len(list(again)) == 2
    again.set_epoch(2)
    assert len(list(again)) == 5
    again.load_state_dict(loader.state_dict())
    again.set_epoch(3)
    assert len(list(again)) == 5
    for epoch in (-1, 1.0, True):
        with pytest.raises(SelectionError, match="epoch="):
            again.set_epoch(epoch)


def test_after_breaking_off_the_next_pass_is_the_next_epoch(blocks) -> None:
    loader = Loader(blocks, 4)
    for _ in loader:
        break
    assert loader.state_dict()["epoch"] == 0
    second = first_ids(loader)
    loader.set_epoch(1)
    assert first_ids(loader) == second
    assert (loader.state_dict()["epoch"], loader.state_dict()["samples"]) == (2, 0)


def test_two_passes_at_a_time_do_not_disturb_each_other(blocks) -> None:
    loader = Loader(blocks, 4, seed=1)
    first, second = first_ids(loader), first_ids(loader)
    loader.set_epoch(0)
    pairs = list(zip(loader, loader, strict=True))
    assert first_ids(a for a, _ in pairs) == first
    assert first_ids(b for _, b in pairs) == second


def test_a_state_at_the_end_of_an_epoch_leaves_no_batch_of_it(blocks) -> None:
    loader = Loader(blocks, 5)
    batches = iter(loader)
    for _ in range(len(loader)):
        next(batches)
    state = loader.state_dict()
    assert (state["epoch"], state["samples"]) == (0, 20)
    loader.load_state_dict(state)
    assert list(loader) == []
    assert (loader.state_dict()["epoch"], loader.state_dict()["samples"]) == (1, 0)
    smaller = Loader(blocks, 1)
    smaller.load_state_dict(state)
    assert len(list(smaller)) == 3  # what no batch of 5 had


def test_tokens_are_counted_where_every_sample_has_the_same_number(tmp_path: Path) -> None:
    chats = [[([1, 2], [0, 1]), ([3], [1])]]
    packed = open_tokens(write_packed(tmp_path / "p", [[[[7], [8]], [[9]]]], length=3)).packed()
    fixed = open_tokens(write_fixed(tmp_path / "f", [[[5], [6]]], length=3))
    stream = open_tokens(write_stream(tmp_path / "s", [[[5], [6]]]))
    chat = open_tokens(write_chat(tmp_path / "c", chats))
    expected = [
        (packed, 3),
        (fixed.padded(), 3),
        (fixed.padded(2), 2),
        (fixed.padded(multiple=2), None),
        (stream.padded(8), 8),
        (stream.padded(), None),
        (stream.documents(), None),
        (chat.chat(5), 5),
        (chat.chat(), None),
    ]
    for view, each in expected:
        loader = Loader(view, 1)
        next(iter(loader))
        assert loader.state_dict().get("tokens") == each


def test_states_of_anything_else_are_refused_by_name(blocks, dataset_path: Path) -> None:
    loader = Loader(blocks, 4, seed=1)
    state = loader.state_dict()
    train = open_dataset(dataset_path, size=32)
    other_split = open_dataset(dataset_path, size=32, split="validation")
    with pytest.raises(SelectionError, match="another dataset"):
        Loader(train, 4).load_state_dict(Loader(other_split, 4).state_dict())
    overlapping = open_tokens(blocks.path).blocks(4, stride=2)
    for other in (train, overlapping):
        with pytest.raises(SelectionError, match="another dataset"):
            Loader(other, 4, seed=1).load_state_dict(state)
    refused = [
        ([], "state is a list"),
        ({}, "version None"),
        ({**state, "version": 2}, "version 2, expected 1"),
        ({**state, "rank": 0, "place": 1}, "unknown 'place', unknown 'rank'"),
        ({k: v for k, v in state.items() if k != "samples"}, "no 'samples'"),
        ({**state, "seed": 2}, "seed is 2, this Loader has 1"),
        ({**state, "shuffle": False}, "shuffle is False, this Loader has True"),
        ({**state, "shuffle": 1}, "shuffle is 1"),
        ({**state, "count": 22}, "count is 22"),
        ({**state, "fingerprint": 5}, "another dataset"),
        ({**state, "samples": -1}, "samples is -1"),
        ({**state, "samples": 24}, "samples is 24 of 23"),
        ({**state, "samples": 1.0}, "samples is 1.0"),
        ({**state, "epoch": "0"}, "epoch is '0'"),
        ({**state, "tokens": None}, "tokens is None"),
    ]
    for bad, message in refused:
        with pytest.raises(SelectionError, match=message):
            loader.load_state_dict(bad)
        assert loader.state_dict() == state


def test_another_stored_size_of_the_same_images_goes_on(dataset_path: Path) -> None:
    small = Loader(open_dataset(dataset_path, size="24x16"), 4)
    batches = iter(small)
    seen = next(batches)["key"]
    batches.close()
    large = Loader(open_dataset(dataset_path, size=32), 4)
    large.load_state_dict(small.state_dict())
    seen += [key for batch in large for key in batch["key"]]
    assert seen == [key for batch in Loader(large.dataset, 4) for key in batch["key"]]


class Numbers:
    """A dataset of somebody else's, without a fingerprint."""

    path, split, views, made_nbytes = Path("numbers"), "train", (), 0

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def gather_into(self, indices, buffers) -> None:
        self.seen = indices.copy()

    def show(self, rows, take=None):
        return {"n": torch.from_numpy(self.seen)}


def test_a_dataset_without_a_fingerprint_is_loaded_but_has_no_state() -> None:
    loader = Loader(Numbers(9), 3)
    assert len(list(loader)) == 3
    with pytest.raises(SelectionError, match="Numbers has no fingerprint"):
        loader.state_dict()


def test_the_largest_dataset_is_entered_anywhere_at_once_without_a_list_of_it() -> None:
    numbers = Numbers(MOST)
    numbers.fingerprint = "numbers"
    loader = Loader(numbers, 64, seed=1)
    state = loader.state_dict()
    loader.load_state_dict({**state, "samples": MOST - 1000})
    tracemalloc.start()
    found = [int(n) for batch in loader for n in batch["n"]]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(found)) == 960
    assert found == permute(np.arange(MOST - 1000, MOST - 40), MOST, 1, 0).tolist()
    assert peak < 2_000_000
    with pytest.raises(SelectionError, match="up to"):
        Loader(Numbers(MOST + 1), 64)
