import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.sampling import epoch_order

GOLDEN_TEN = [4, 6, 2, 7, 3, 5, 9, 0, 8, 1]
GOLDEN_DIGEST = "49ea2dcbfbd7c2f75370ba36bbf92ae2017ec6d62298f9fb8653ff5714e9784c"


@given(st.integers(0, 3000), st.integers(0, 2**63), st.integers(0, 2**31))
def test_every_epoch_visits_every_sample_once(count: int, seed: int, epoch: int) -> None:
    order = epoch_order(count, shuffle=True, seed=seed, epoch=epoch)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(count))
    assert np.array_equal(order, epoch_order(count, shuffle=True, seed=seed, epoch=epoch))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {
        epoch_order(100, shuffle=True, seed=seed, epoch=epoch).tobytes()
        for seed in range(10)
        for epoch in range(10)
    }
    assert len(orders) == 100


def test_without_shuffling_the_order_is_as_stored() -> None:
    assert epoch_order(5, shuffle=False, seed=3, epoch=2).tolist() == [0, 1, 2, 3, 4]


def test_the_order_of_a_seed_and_epoch_never_changes() -> None:
    assert epoch_order(10, shuffle=True, seed=0, epoch=0).tolist() == GOLDEN_TEN
    order = epoch_order(100_000, shuffle=True, seed=7, epoch=3).astype("<i8")
    assert hashlib.sha256(order.tobytes()).hexdigest() == GOLDEN_DIGEST


@pytest.mark.parametrize(("seed", "epoch"), [(-1, 0), (0, -1)])
def test_negative_seeds_and_epochs_are_refused(seed: int, epoch: int) -> None:
    with pytest.raises(ValueError, match="integers >= 0"):
        epoch_order(5, shuffle=True, seed=seed, epoch=epoch)
