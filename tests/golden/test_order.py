"""The order of a seed and epoch never changes: a saved state stands for the samples it left."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from loaders.order import permute_blocks
from loaders.sampling import derived_seed, permute
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


@pytest.mark.parametrize("case", GOLDEN["draws"], ids=lambda case: "{seed}-{epoch}".format(**case))
def test_draws_are_what_they_always_were(case: dict) -> None:
    found = uniform(np.arange(1000) * (2**29 + 1), case["seed"], case["epoch"]).astype("<f8")
    assert found[:3].tolist() == case["first"]
    assert hashlib.sha256(found.tobytes()).hexdigest() == case["sha256"]


def test_derived_seeds_are_what_they_always_were() -> None:
    assert derived_seed(0, 1, 2) == GOLDEN["derived_seed"]
