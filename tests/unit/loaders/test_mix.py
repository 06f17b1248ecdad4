import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from loaders import Loader, Mix, SelectionError, open_dataset, open_tokens
from loaders.proportion import DRAWS, Proportion
from tests.token_stores import write_chat, write_fixed, write_packed, write_stream


def blocks(folder: Path, first: int, count: int, size: int = 4):
    """Return `count` windows, the first ids of which are first, first + size, ..."""
    ids = list(range(first, first + count * size + 1))
    return open_tokens(write_stream(folder, [[ids[:7], ids[7:]]])).blocks(size)


@pytest.fixture
def three(tmp_path: Path):
    """Windows of three corpora: ids from 100, 1,000 and 10,000 on."""
    return (
        blocks(tmp_path / "a", 100, 5),
        blocks(tmp_path / "b", 1_000, 9),
        blocks(tmp_path / "c", 10_000, 40),
    )


def first_ids(loader: Loader) -> list[int]:
    return [int(row[0]) for batch in loader for row in batch["x"]]


def corpus(first_id: int) -> str:
    return "a" if first_id < 1_000 else "b" if first_id < 10_000 else "c"


@pytest.mark.parametrize("sources", [1, 2, 3, 5, 8, 30])
def test_any_first_draws_hold_each_source_by_its_weight(sources: int) -> None:
    random = np.random.default_rng(sources)
    for _ in range(20):
        weights = random.dirichlet(np.full(sources, random.choice([0.3, 1, 10]))) + 1e-6
        proportion = Proportion(weights.tolist())
        numbers = np.arange(4000)
        chosen, earlier = proportion.draws(numbers)
        taken = np.cumsum(chosen[:, None] == np.arange(sources), axis=0)  # [draws, sources]
        expected = (numbers + 1)[:, None] * weights / weights.sum()
        assert np.abs(taken - expected).max() < (1.001 if sources <= 3 else 2)
        assert np.array_equal(earlier + 1, taken[numbers, chosen])
        assert proportion.counts(4000) == taken[-1].tolist()


def test_late_draws_are_as_exact_as_early_ones() -> None:
    proportion = Proportion([0.5, 0.3, 0.15, 0.05])
    number = DRAWS - 1001
    chosen, earlier = proportion.draws(np.arange(number, number + 1000))
    counts = np.array(proportion.counts(number))
    for source, before in zip(chosen.tolist(), earlier.tolist(), strict=True):
        assert before == counts[source]
        counts[source] += 1
    assert counts.tolist() == proportion.counts(number + 1000)
    assert np.abs(counts - (number + 1000) * np.array([0.5, 0.3, 0.15, 0.05])).max() < 6


def test_an_epoch_ends_when_every_source_was_seen_whole(three) -> None:
    mix = Mix(dict(zip(three, [0.2, 0.3, 0.5], strict=True)))
    seen = Counter(corpus(i) for i in first_ids(Loader(mix, 1)))
    assert sum(seen.values()) == len(mix)
    assert seen["c"] == 40
    assert seen["a"] == pytest.approx(16, abs=1)
    assert seen["b"] == pytest.approx(24, abs=1)


def test_each_source_is_seen_whole_before_anything_comes_again_also_across_epochs(three) -> None:
    mix = Mix([(three[0], 1), (three[1], 2.5)], epoch_size=17)
    loader = Loader(mix, 3, drop_last=False, seed=4)
    seen = [i for _ in range(7) for i in first_ids(loader)]
    assert len(seen) == 7 * 17
    for name, whole in (("a", 5), ("b", 9)):
        mine = [i for i in seen if corpus(i) == name]
        passes = [mine[start : start + whole] for start in range(0, len(mine), whole)]
        full = [part for part in passes if len(part) == whole]
        assert len(full) > 2
        assert all(len(set(part)) == whole for part in full)
        assert len({tuple(part) for part in full}) == len(full)  # each in an order of its own


def test_without_shuffling_each_source_is_visited_as_stored(three) -> None:
    mix = Mix([(three[0], 1), (three[1], 1)], epoch_size=10)
    seen = first_ids(Loader(mix, 5, shuffle=False))
    assert [i for i in seen if corpus(i) == "a"] == [100, 104, 108, 112, 116]
    assert [i for i in seen if corpus(i) == "b"] == [1000, 1004, 1008, 1012, 1016]
    assert {corpus(i) for i in seen[:2]} == {"a", "b"}


def test_seeds_of_the_mix_and_of_the_loader_fix_the_order(three) -> None:
    def seen(mix_seed: int, seed: int) -> tuple[int, ...]:
        mix = Mix({three[1]: 1, three[2]: 1}, seed=mix_seed)
        return tuple(first_ids(Loader(mix, 2, seed=seed)))

    assert seen(0, 0) == seen(0, 0)
    assert len({seen(0, 0), seen(0, 1), seen(1, 0), seen(1, 1)}) == 4


def test_one_dataset_may_come_twice_in_orders_of_its_own(three) -> None:
    mix = Mix([(three[2], 1), (three[2], 1)])
    seen = first_ids(Loader(mix, 4))
    assert Counter(Counter(seen).values()) == {2: 40}


def test_a_mix_can_be_mixed_again(three) -> None:
    inner = Mix([(three[0], 1), (three[1], 3)], epoch_size=8)
    mix = Mix([(inner, 1), (three[2], 1)], epoch_size=160)
    seen = Counter(corpus(i) for i in first_ids(Loader(mix, 16)))
    assert seen == {"c": 80, "a": 20, "b": 60}
    assert isinstance(Loader(mix, 16).state_dict()["tokens"], int)


def test_documents_keep_their_tokens_and_keys(tmp_path: Path) -> None:
    one = open_tokens(write_stream(tmp_path / "1", [[[10], [11, 12], []]])).documents()
    two = open_tokens(write_stream(tmp_path / "2", [[[20, 21, 22], [23]]])).documents()
    mix = Mix({one: 1, two: 1})
    indices = np.array([3, 0, 4, 1, 2, 3])
    buffers = {part.name: np.empty(*part.layout(indices)) for part in mix.views}
    mix.gather_into(indices, buffers)
    batch = mix.show({name: torch.from_numpy(array) for name, array in buffers.items()})
    assert batch["tokens"].tolist() == [20, 21, 22, 10, 23, 11, 12, 20, 21, 22]
    assert batch["lengths"].tolist() == [3, 1, 1, 2, 0, 3]
    assert batch["key"] == [f"é.txt:{n}" for n in (0, 0, 1, 1, 2, 0)]
    assert [entry["n"] for entry in batch["metadata"]] == [0, 0, 1, 1, 2, 0]


def test_rows_and_chats_of_a_fixed_length_are_mixed(tmp_path: Path) -> None:
    fixed = [
        open_tokens(write_fixed(tmp_path / str(n), [[[n, n], [n]]], length=3)).padded()
        for n in (5, 6)
    ]
    rows = [row for batch in Loader(Mix(dict.fromkeys(fixed, 1)), 2) for row in batch["input_ids"]]
    assert sorted(row.tolist() for row in rows) == [[5, 1, 1], [5, 5, 1], [6, 1, 1], [6, 6, 1]]
    chats = [
        open_tokens(write_chat(tmp_path / f"c{n}", [[([n, n], [0, 1]), ([n], [1])]]))
        for n in (5, 6)
    ]
    with pytest.raises(SelectionError, match="give length="):
        Mix({chat.chat(): 1 for chat in chats})
    batch = next(iter(Loader(Mix({chat.chat(3): 1 for chat in chats}), 4)))
    found = sorted(zip(batch["tokens"].tolist(), batch["labels"].tolist(), strict=True))
    assert found[0] == ([5, 1, 1], [5, -100, -100])
    assert found[1] == ([5, 5, 1], [-100, 5, -100])
    assert sorted(batch["key"]) == ["chat:0", "chat:0", "chat:1", "chat:1"]


def test_images_of_two_datasets_are_mixed_whatever_the_length_of_their_keys(
    make_dataset: Callable[..., Path],
) -> None:
    train = open_dataset(make_dataset("tensor"), size=32)
    validation = open_dataset(make_dataset("zarr"), size=32, split="validation")
    by_key = {sample["key"]: sample for ds in (train, validation) for sample in ds}
    inner = Mix({validation: 1})
    assert train.views[-1].field.shape != validation.views[-1].field.shape
    batches = list(Loader(Mix({inner: 1, train: 2}), 9))
    keys = [key for batch in batches for key in batch["key"]]
    assert Counter(key in {s["key"] for s in train} for key in keys)[True] >= 18
    for batch in batches:
        for image, label, key in zip(batch["image"], batch["label"], batch["key"], strict=True):
            assert torch.equal(image, by_key[key]["image"])
            assert label == by_key[key]["label"]


def test_a_state_continues_exactly_also_with_other_batches(three) -> None:
    mix = Mix(dict(zip(three, [0.2, 0.3, 0.5], strict=True)))
    loader = Loader(mix, 4, last="pad", seed=9)
    whole = [int(r[0]) for _ in range(3) for b in loader for r in b["x"][b["valid"]]]
    for stop in range(1, len(loader) + 1):
        loader = Loader(mix, 4, last="pad", seed=9)
        seen: list[int] = []
        for number, batch in enumerate(loader, 1):
            seen += batch["x"][batch["valid"], 0].tolist()
            if number == stop:
                break
        again = Loader(mix, 3, drop_last=False, seed=9)
        again.load_state_dict(loader.state_dict())
        seen += [i for _ in range(3) for i in first_ids(again)]
        assert seen == whole


def test_a_state_of_other_weights_is_refused(three) -> None:
    def mixed(weight: float, **options: int) -> Loader:
        return Loader(Mix({three[0]: weight, three[2]: 1}, epoch_size=50, **options), 2)

    state = mixed(1).state_dict()
    mixed(1.0).load_state_dict(state)
    assert mixed(2).state_dict()["fingerprint"] != state["fingerprint"]
    for other in (mixed(2), mixed(1, seed=1)):
        with pytest.raises(SelectionError, match="another dataset"):
            other.load_state_dict(state)


def test_another_process_draws_the_same(three, tmp_path: Path) -> None:
    code = (
        "import sys; from loaders import *\n"
        "a, b = (open_tokens(p).blocks(4) for p in sys.argv[1:])\n"
        "print([int(i) for x in Loader(Mix({a: 1, b: 2}), 3, seed=1) for i in x['x'][:, 0]])"
    )
    command = [sys.executable, "-c", code, str(three[0].path), str(three[1].path)]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    here = first_ids(Loader(Mix({three[0]: 1, three[1]: 2}), 3, seed=1))
    assert done.stdout.strip() == str(here)


def test_sources_that_do_not_fit_together_are_refused(three, tmp_path: Path, make_dataset) -> None:
    images = make_dataset("tensor")
    packed = open_tokens(write_packed(tmp_path / "p", [[[[7], [8]]]], length=3)).packed()
    wide = open_tokens(write_stream(tmp_path / "w", [[[*range(99)]]], dtype="uint32"))
    refused = [
        ({}, "at least one dataset"),
        ({three[0]: 0}, "weight 0, expected a positive number"),
        ({three[0]: float("nan")}, "weight nan"),
        ({three[0]: "much"}, "weight 'much'"),
        ({three[0]: 1, three[1]: 1e-30}, "too small beside"),
        ([([1, 2], 1)], "a Mix holds a list"),
        ([three[0]], "a Mix holds a TokenView, expected pairs"),
        ({three[0]: 1, wide.blocks(4): 1}, "arrays"),
        ({three[0]: 1, wide.blocks(5): 1}, "arrays"),
        ({three[0]: 1, wide.documents(): 1}, "kind Documents"),
        ({three[0]: 1, open_dataset(images, size=32): 1}, "kind ShardDataset"),
        (
            {open_dataset(images, size=32): 1, open_dataset(images, size="24x16"): 1},
            "arrays",
        ),
        ({packed: 1}, "'cu_seqlens' of a batch cannot be mixed"),
        ({open_tokens(write_stream(tmp_path / "e", [[]])).documents(): 1}, "no samples to draw"),
    ]
    for sources, message in refused:
        with pytest.raises(SelectionError, match=message):
            Mix(sources)
    for options in ({"seed": -1}, {"epoch_size": 0}, {"epoch_size": 2**41}, {"seed": True}):
        with pytest.raises(SelectionError, match=r"expected an integer|smaller epoch_size"):
            Mix({three[0]: 1}, **options)
    loader = Loader(Mix({three[0]: 1}, epoch_size=2**40), 4)
    loader.set_epoch(4)
    with pytest.raises(SelectionError, match="can be drawn from a Mix"):
        next(iter(loader))
