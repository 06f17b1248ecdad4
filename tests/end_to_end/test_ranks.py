"""Several processes that train together, as torch.distributed starts them."""

import json
from pathlib import Path

import pytest

from loaders import Loader, open_tokens
from tests.process_groups import run_group
from tests.token_stores import write_stream

WORKER = """
from loaders import Loader, open_tokens

data, out, state = arguments
loader = Loader(open_tokens(data).blocks(4), 3, seed=5, last="pad")
if state:
    loader.load_state_dict(json.loads(state))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
seen, steps = [], 0
for batch in loader:
    loss = (model(batch["x"].float())[:, 0] * batch["valid"]).sum()
    loss.backward()  # waits for every rank: it would hang if one had fewer batches
    seen.append(batch["x"][batch["valid"], 0].tolist())
    steps += 1
    if not state and steps == 2:
        break
result = {"rank": loader.rank, "seen": seen, "state": loader.state_dict()}
with open(out, "w") as file:
    json.dump(result, file)
"""


def run_ranks(folder: Path, data: Path, world: int, state: str) -> list[dict]:
    """Run the worker in `world` processes and return what each has seen."""
    folder.mkdir()
    outs = [folder / f"{rank}.json" for rank in range(world)]
    run_group(folder, WORKER, world, [[str(data), str(out), state] for out in outs])
    return [json.loads(out.read_text()) for out in outs]


def in_order(ranks: list[dict]) -> list[int]:
    turns = zip(*(rank["seen"] for rank in ranks), strict=True)
    return [i for turn in turns for batch in turn for i in batch]


@pytest.mark.slow
def test_ranks_train_in_step_and_go_on_as_another_number_of_ranks(tmp_path: Path) -> None:
    data = write_stream(tmp_path / "data", [[[*range(50)], [*range(50, 121)]]])  # 30 windows
    first = run_ranks(tmp_path / "two", data, 2, "")
    assert [rank["rank"] for rank in first] == [0, 1]
    assert first[0]["state"] == first[1]["state"]
    assert first[0]["state"]["samples"] == 12
    second = run_ranks(tmp_path / "three", data, 3, json.dumps(first[0]["state"]))
    assert len({len(rank["seen"]) for rank in second}) == 1
    found = in_order(first) + in_order(second)
    assert sorted(found) == [4 * window for window in range(30)]
    alone = Loader(open_tokens(data).blocks(4), 1, seed=5)
    assert found == [int(batch["x"][0, 0]) for batch in alone]
