"""Buckets and encoded pictures on several ranks, as torch.distributed starts them."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from loaders import Loader, open_dataset
from loaders.ahead import usable_processors
from tests.picture_stores import WAYS, prepare_in_all_ways
from tests.process_groups import run_group
from tests.waiting import SECONDS

COUNT = 31
STEPS = 2
"""Of the first group of ranks, before others go on."""

WORKER = f"""
import gc, zlib
from loaders import Loader, open_dataset

made, out, states = map(json.loads, arguments)
found = {{}}
for name, path in made.items():
    dataset = open_dataset(path)
    loader = Loader(dataset, 3, seed=5, last="pad")
    if states:
        loader.load_state_dict(states[name])
    seen, shapes = [], []
    for batch in loader:
        every = [None] * dist.get_world_size()
        dense = isinstance(batch["image"], torch.Tensor)
        shape = list(batch["image"].shape) if dense else None
        dist.all_gather_object(every, shape)  # waits: it fails if a rank has fewer batches
        shapes.append(every)
        rows = zip(batch["key"], batch["image"], batch["valid"].tolist(), strict=True)
        known = [(key, image.permute(1, 2, 0).numpy()) for key, image, valid in rows if valid]
        seen.append([[key, zlib.crc32(image.tobytes())] for key, image in known])
        if not states and len(seen) == {STEPS}:
            break
    names = [thread.name for thread in threading.enumerate()]
    decoding = sum(name.startswith("prep-decode") for name in names)
    found[name] = {{
        "seen": seen, "shapes": shapes, "state": loader.state_dict(), "count": len(loader),
        "decoding": decoding,
    }}
    del loader, dataset, batch
    gc.collect()
    for thread in threading.enumerate():  # those that decode end with their dataset
        if thread.name.startswith("prep-"):
            thread.join({SECONDS})
with open(out, "w") as file:
    json.dump(found, file)
"""


def run_ranks(folder: Path, made: dict[str, Path], world: int, states: Any) -> dict[str, Any]:
    """Run the worker in `world` processes; return by name what each rank has seen."""
    folder.mkdir()
    outs = [folder / f"{rank}.json" for rank in range(world)]
    paths = json.dumps({name: str(path) for name, path in made.items()})
    run_group(
        folder,
        WORKER,
        world,
        [[paths, json.dumps(str(out)), json.dumps(states)] for out in outs],
    )
    ranks = [json.loads(out.read_text()) for out in outs]
    return {name: [rank[name] for rank in ranks] for name in made}


def in_order(ranks: list[dict[str, Any]]) -> list[list[Any]]:
    turns = zip(*(rank["seen"] for rank in ranks), strict=True)
    return [sample for turn in turns for batch in turn for sample in batch]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return prepare_in_all_ways(tmp_path_factory.mktemp("ranks"), COUNT)


@pytest.fixture(scope="module")
def runs(
    made: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what two ranks have seen of the first steps, and then three of the rest."""
    folder = tmp_path_factory.mktemp("groups")
    first = run_ranks(folder / "two", made, 2, None)
    states = {name: ranks[0]["state"] for name, ranks in first.items()}
    return first, run_ranks(folder / "three", made, 3, states)


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_ranks_share_an_epoch_in_step_and_others_go_on(
    made: dict[str, Path], runs: tuple[dict[str, Any], dict[str, Any]], name: str
) -> None:
    dataset = open_dataset(made[name])
    first, second = (run[name] for run in runs)
    for ranks in (first, second):
        assert len({rank["count"] for rank in ranks}) == 1
        assert len({len(rank["seen"]) for rank in ranks}) == 1
        assert all(rank["state"] == ranks[0]["state"] for rank in ranks)
        for every in (step for rank in ranks for step in rank["shapes"]):
            assert all(shape == every[0] for shape in every)
        share = max(1, usable_processors() // len(ranks))
        assert all(rank["decoding"] < share for rank in ranks)
    assert first[0]["state"]["samples"] <= 3 * 2 * STEPS
    found = in_order(first) + in_order(second)
    expected = {
        sample["key"]: zlib.crc32(sample["image"].permute(1, 2, 0).numpy().tobytes())
        for sample in map(dataset.__getitem__, range(COUNT))
    }
    assert len(found) == COUNT
    assert dict(found) == expected
    if dataset.groups is None:
        alone = Loader(dataset, 1, seed=5)
        assert [key for key, _ in found] == [batch["key"][0] for batch in alone]
    else:
        assert len({tuple(every[0][2:]) for every in second[0]["shapes"]}) > 1
