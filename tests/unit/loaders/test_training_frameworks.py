"""Loops as frameworks run them, who know `Loader` by what it has alone; none is imported.

What they do was read in Lightning 2 (`fit_loop.setup_data`, `_check_dataloader_iterable`,
`_set_sampler_epoch`, `CombinedLoader._state_dicts`) and Accelerate 1 (`prepare`, `send_to_device`,
`find_batch_size`, `register_for_checkpointing`).
"""

import copy
import io
import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pytest
import torch

from loaders import Loader, Mix, Normalize, Weighted, open_dataset
from tests.waiting import SECONDS

SIZE = 32
SAMPLES = 18


@runtime_checkable
class Stateful(Protocol):
    """What both frameworks look for before they put a loader into a checkpoint."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@pytest.fixture(scope="module")
def dataset(make_dataset: Callable[..., Path]) -> Any:
    return open_dataset(make_dataset(), size=SIZE)


def keys_of(batches: Any) -> list[list[str]]:
    return [batch["key"] for batch in batches]


def checkpointed(state: dict[str, Any]) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class LightningStyle:
    """The order of calls in `trainer.fit(train_dataloaders=loader)`."""

    def __init__(self, loader: Any, checkpoint: Any = None) -> None:
        iter(loader)  # "is it iterable?"
        self.loader = loader
        self.most = len(loader)
        assert isinstance(loader, Stateful)
        if checkpoint is not None:
            loader.load_state_dict(checkpoint)
        self.batches: Iterator[Any] = iter(loader)

    def epoch(self, number: int, *, stop_after: int | None = None) -> list[list[str]]:
        if number:
            self.batches = iter(self.loader)
        for holder in (self.loader, getattr(self.loader, "sampler", None)):
            if callable(getattr(holder, "set_epoch", None)):
                holder.set_epoch(number)
        seen: list[list[str]] = []
        while len(seen) < self.most and len(seen) != stop_after:
            batch = next(self.batches, None)
            if batch is None:
                break
            seen.append(batch["key"])
        return seen


def test_a_lightning_style_fit_sees_every_epoch_from_the_first_on(dataset: Any) -> None:
    expected = Loader(dataset, 5)
    trainer = LightningStyle(Loader(dataset, 5))
    for number in range(3):
        assert trainer.epoch(number) == keys_of(expected)


def test_a_lightning_style_fit_goes_on_within_an_epoch(dataset: Any) -> None:
    whole = [keys_of(loader) for loader in [Loader(dataset, 5)] for _ in range(3)]
    first = LightningStyle(Loader(dataset, 5))
    assert first.epoch(0) == whole[0]
    assert first.epoch(1, stop_after=2) == whole[1][:2]
    second = LightningStyle(Loader(dataset, 5), checkpointed(first.loader.state_dict()))
    second.loader.set_epoch(1)
    assert keys_of(second.batches) == whole[1][2:]
    assert second.epoch(2) == whole[2]


def test_a_lightning_style_sanity_check_leaves_the_evaluation_whole(dataset: Any) -> None:
    loader = Loader(dataset, 5, shuffle=False, drop_last=False)
    iter(loader)
    next(iter(loader))
    expected = [sample["key"] for sample in dataset]
    for _ in range(2):
        assert [key for keys in keys_of(loader) for key in keys] == expected


def sent(value: Any, device: torch.device) -> Any:
    """Accelerate's `send_to_device`."""
    if hasattr(value, "to"):
        return value.to(device)
    if isinstance(value, list | tuple):
        return type(value)(sent(part, device) for part in value)
    if isinstance(value, Mapping):
        return type(value)({name: sent(part, device) for name, part in value.items()})  # type: ignore[call-arg]
    return value


def test_an_accelerate_style_loop_moves_batches_and_checkpoints_the_loader(dataset: Any) -> None:
    loader = Loader(dataset, 5)
    assert not isinstance(loader, torch.utils.data.DataLoader)  # so `prepare` leaves it as it is
    assert not isinstance(loader.dataset, torch.utils.data.IterableDataset)
    assert (loader.batch_size, len(loader.dataset), len(loader)) == (5, SAMPLES, 3)
    assert isinstance(loader, Stateful)
    whole = [keys_of(again) for again in [Loader(dataset, 5)] for _ in range(2)]
    taken = []
    for batch in loader:
        moved = sent(batch, torch.device("cpu"))
        assert moved.keys() == batch.keys()
        assert next(iter(moved.values())).shape[0] == loader.batch_size  # `find_batch_size`
        assert moved["image"].is_contiguous(memory_format=torch.channels_last)
        taken.append(moved["key"])
        if len(taken) == 2:
            break
    resumed = Loader(dataset, 5)
    resumed.load_state_dict(checkpointed(loader.state_dict()))
    assert taken + keys_of(resumed) == whole[0]
    assert keys_of(resumed) == whole[1]


def test_an_iterator_that_nothing_was_asked_of_begins_no_epoch(dataset: Any) -> None:
    loader = Loader(dataset, 5)
    before = loader.state_dict()
    unused = iter(loader)
    assert loader.state_dict() == before
    first = keys_of(loader)
    assert first == keys_of(Loader(dataset, 5))
    assert keys_of(unused) != first  # the next epoch, since it began later


@pytest.mark.parametrize("residency", ["disk", "device"])
@pytest.mark.parametrize("kind", ["whole", "selection", "mix", "weighted"])
def test_a_copy_continues_where_the_loader_stands(dataset: Any, kind: str, residency: Any) -> None:
    made: dict[str, Any] = {
        "whole": dataset,
        "selection": dataset.select([5, 1, 4, 1, 9, 17, 2]),
        "mix": Mix({dataset.select(range(9)): 1, dataset.select(range(9, 18)): 2}),
        "weighted": Weighted(dataset, "balanced"),
    }
    normalize = Normalize.for_dataset(dataset)
    loader = Loader(made[kind], 2, residency=residency, normalize=normalize)
    fresh = copy.deepcopy(loader)
    first, second = keys_of(loader), keys_of(loader)
    assert keys_of(fresh) == first
    assert keys_of(copy.deepcopy(loader)) == keys_of(loader)  # the third epoch
    again = copy.deepcopy(fresh)
    batches = iter(again)
    next(batches)
    midway = copy.deepcopy(again)
    assert keys_of(midway) == second[1:]
    assert keys_of(batches) == second[1:]
    torch.testing.assert_close(
        next(iter(copy.deepcopy(fresh)))["image"], next(iter(fresh))["image"]
    )


def _keys_elsewhere(loader: Loader, queue: Any) -> None:
    queue.put(keys_of(loader))


def test_a_loader_goes_to_another_process(dataset: Any) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    loader = Loader(dataset.select(range(3, 11)), 2)
    keys_of(loader)
    process = context.Process(target=_keys_elsewhere, args=(loader, queue))
    process.start()
    found = queue.get(timeout=SECONDS)
    process.join()
    assert found == keys_of(loader)
