"""The order of a seed and epoch never changes: a saved state stands for the samples it left."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from loaders.groups import Groups
from loaders.order import Epoch, permute_blocks
from loaders.sampling import Share, derived_seed, permute
from loaders.schedule import Schedule
from loaders.weighted import uniform

GOLDEN = json.loads(Path(__file__).with_name("order.json").read_text())


@pytest.mark.parametrize(
    "case", GOLDEN["orders"], ids=lambda case: "{count}-{seed}-{epoch}".format(**case)
)
def test_orders_are_what_they_always_were(case: dict) -> None:
    count = case["count"]
    positions = np.arange(min(count, 100_000))
    found = permute(positions, count, case["seed"], case["epoch"]).astype("<i8")
    assert found[:10].tolist() == case["first"]
    assert hashlib.sha256(found.tobytes()).hexdigest() == case["sha256"]


@pytest.mark.parametrize(
    "case", GOLDEN["blocks"], ids=lambda case: "{count}-{window}-{seed}-{epoch}".format(**case)
)
def test_orders_of_blocks_are_what_they_always_were(case: dict) -> None:
    options = case["count"], case["seed"], case["epoch"], case["window"]
    found = permute_blocks(np.arange(min(case["count"], 100_000)), *options).astype("<i8")
    assert found[:10].tolist() == case["first"]
    assert hashlib.sha256(found.tobytes()).hexdigest() == case["sha256"]


@pytest.mark.parametrize(
    "case", GOLDEN["buckets"], ids=lambda case: "{seed}-{epoch}".format(**case)
)
def test_batches_of_buckets_are_what_they_always_were(case: dict) -> None:
    codes = (np.arange(case["count"]) ** 2 % 11 % 5).astype(np.uint16)
    groups = Groups.of(codes, tuple("abcde"))
    epoch = Epoch(shuffle=True, seed=case["seed"], number=case["epoch"])
    share = Share(count=len(codes), batch_size=case["step"], last="pad")
    schedule = Schedule.of(share, groups, seed=epoch.seed, shuffle=True)
    steps = [*schedule.steps(epoch.number, schedule.nothing)]
    places = [(s.group, schedule.shares[s.group].positions([s.start])[0][0]) for s in steps]
    found = np.array([groups.visit(group, own, epoch) for group, own in places], "<i8")
    assert "".join(groups.names[step.group] for step in steps[:20]) == case["buckets"]
    assert found[0].tolist() == case["first"]
    assert hashlib.sha256(found.tobytes()).hexdigest() == case["sha256"]


@pytest.mark.parametrize("case", GOLDEN["draws"], ids=lambda case: "{seed}-{epoch}".format(**case))
def test_draws_are_what_they_always_were(case: dict) -> None:
    found = uniform(np.arange(1000) * (2**29 + 1), case["seed"], case["epoch"]).astype("<f8")
    assert found[:3].tolist() == case["first"]
    assert hashlib.sha256(found.tobytes()).hexdigest() == case["sha256"]


def test_derived_seeds_are_what_they_always_were() -> None:
    assert derived_seed(0, 1, 2) == GOLDEN["derived_seed"]
