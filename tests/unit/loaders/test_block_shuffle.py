import json
from pathlib import Path

import numpy as np
import pytest

from loaders import Loader, Mix, SelectionError, open_dataset, open_table, open_tokens
from loaders.order import WINDOW_NBYTES
from tests.table_stores import write_people
from tests.token_stores import write_stream


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory):
    """300 windows of 1 token, which is their number, in two shards."""
    path = tmp_path_factory.mktemp("blocks")
    return open_tokens(write_stream(path, [[[*range(100)]], [[*range(100, 301)]]])).blocks(1)


def numbers(batches) -> list[int]:
    return [int(row[0]) for batch in batches for row in batch["x"]]


def test_each_pass_is_another_order_of_all_samples_window_by_window(windows) -> None:
    loader = Loader(windows, 10, shuffle="block", window=128, seed=1)
    first, second = numbers(loader), numbers(loader)
    assert sorted(first) == sorted(second) == [*range(300)]
    assert first != second
    # Blocks of two neighbours: half of the samples of a window have theirs in it.
    held = np.sort(first[:128])
    assert (np.diff(held) == 1).sum() >= 60
    alone = Loader(windows, 300, shuffle="block", window=128, seed=1)
    assert numbers(alone) == first


def test_global_is_what_true_is(windows) -> None:
    plain, named = Loader(windows, 10), Loader(windows, 10, shuffle="global")
    assert named.state_dict() == plain.state_dict()
    assert numbers(named) == numbers(plain)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_it_goes_on_anywhere_with_another_batch_size_and_number_of_ranks(
    windows, world_size: int
) -> None:
    options = {"shuffle": "block", "window": 100, "seed": 9}
    whole = numbers(Loader(windows, 1, **options))
    for taken in (0, 7, 14):
        loader = Loader(windows, 9, **options)
        batches = iter(loader)
        before = numbers(next(batches) for _ in range(taken))
        batches.close()
        state = json.loads(json.dumps(loader.state_dict()))
        ranks = [
            Loader(windows, 4, rank=r, world_size=world_size, last="pad", **options)
            for r in range(world_size)
        ]
        for rank in ranks:
            rank.load_state_dict(state)
        after: list[int] = []
        for turn in zip(*ranks, strict=True):
            after += [int(i) for batch in turn for i in batch["x"][batch["valid"], 0]]
        assert before + after == whole


def test_a_state_of_another_kind_of_order_or_window_is_refused(windows) -> None:
    blocks = Loader(windows, 10, shuffle="block", window=128)
    plain = Loader(windows, 10)
    assert blocks.state_dict()["window"] == 128
    assert "window" not in plain.state_dict()
    for loader, state, message in [
        (plain, blocks.state_dict(), "shuffle is 'block', this Loader has True"),
        (blocks, plain.state_dict(), "shuffle is True, this Loader has 'block'"),
        (
            Loader(windows, 10, shuffle="block", window=64),
            blocks.state_dict(),
            "window is 128, this Loader has 64",
        ),
    ]:
        with pytest.raises(SelectionError, match=message):
            loader.load_state_dict(state)


def test_a_window_is_a_gibibyte_or_a_million_samples(
    tmp_path: Path, dataset_path: Path, windows
) -> None:
    photos = open_dataset(dataset_path, size=32)
    nbytes = sum(view.field.nbytes for view in photos.views)
    assert Loader(photos, 4, shuffle="block").window == WINDOW_NBYTES // nbytes
    assert Loader(windows, 4, shuffle="block").window == 1 << 20
    people = open_table(write_people(tmp_path / "people"))
    assert Loader(people, 4, shuffle="block").window == 1 << 20
    assert Loader(windows, 4).window is None


def test_tables_photos_mixes_and_selections_are_visited_in_blocks(
    tmp_path: Path, dataset_path: Path, windows
) -> None:
    photos = open_dataset(dataset_path, size=32)
    keys = [key for b in Loader(photos, 3, shuffle="block", window=7) for key in b["key"]]
    assert len(set(keys)) == len(photos)
    people = open_table(write_people(tmp_path / "people", 40))
    seen = [b["target"] for b in Loader(people, 40, shuffle="block", window=10)]
    assert sorted(seen[0].tolist()) == sorted(people.read_labels().tolist())
    low, high = windows.select(range(50)), windows.select(range(100, 200))
    mixed = numbers(Loader(Mix({low: 1, high: 2}), 10, shuffle="block", window=64))
    assert sorted(mixed) == [*range(50), *range(100, 200)]
    assert np.mean(np.abs(np.diff([n for n in mixed[:60] if n >= 100]))) > 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": "shards"}, "shuffle='shards': expected"),
        ({"shuffle": 1}, "shuffle=1: expected"),
        ({"window": 10}, 'window=10 is for shuffle="block"'),
        ({"shuffle": "block", "window": 0}, "window=0: expected"),
        ({"shuffle": "block", "window": 10.0}, "window=10.0: expected"),
    ],
)
def test_orders_that_are_none_are_refused(windows, options: dict, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        Loader(windows, 4, **options)
