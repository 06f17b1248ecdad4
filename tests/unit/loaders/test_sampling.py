import numpy as np
import pytest

from loaders import SelectionError
from loaders.sampling import MOST, Share, derived_seed, permute


def order(count: int, seed: int = 0, epoch: int = 0) -> np.ndarray:
    return permute(np.arange(count), count, seed, epoch)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {order(100, seed, epoch).tobytes() for seed in range(10) for epoch in range(10)}
    assert len(orders) == 100


def test_a_position_is_permuted_the_same_alone_and_among_any_others() -> None:
    positions = np.random.default_rng(0).permutation(20_011)
    whole = permute(positions, 20_011, 3, 4)
    alone = [permute(positions[i : i + 7], 20_011, 3, 4) for i in range(0, 20_011, 7)]
    assert np.array_equal(whole, np.concatenate(alone))


def test_samples_are_moved_as_far_as_by_chance() -> None:
    count = 100_003
    for seed in range(5):
        found = order(count, seed)
        moved = np.abs(found - np.arange(count)).mean() / count
        assert moved == pytest.approx(1 / 3, abs=0.01)
        assert abs(np.corrcoef(np.arange(count), found)[0, 1]) < 0.02
        assert (found == np.arange(count)).sum() < 10


def test_neighbours_end_up_anywhere() -> None:
    count, cells = 100_003, 50
    steps = np.concatenate([np.diff(order(count, seed)) % count for seed in range(10)])
    found = np.bincount(steps * cells // count, minlength=cells)
    expected = len(steps) / cells
    assert ((found - expected) ** 2 / expected).sum() < 3 * cells


def test_every_place_gets_every_sample_equally_often() -> None:
    for count in (7, 10, 25, 101):
        found = np.zeros((count, count))
        for seed in range(2000):
            found[np.arange(count), order(count, seed)] += 1
        expected = 2000 / count
        assert ((found - expected) ** 2 / expected).sum() < 1.5 * (count - 1) ** 2


def test_orders_of_two_epochs_have_nothing_in_common() -> None:
    first, second = order(100_003, 5, 0), order(100_003, 5, 1)
    assert (first == second).sum() < 10
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02


@pytest.mark.parametrize(("seed", "epoch"), [(-1, 0), (0, -1)])
def test_negative_seeds_and_epochs_are_refused(seed: int, epoch: int) -> None:
    with pytest.raises(ValueError, match="integers >= 0"):
        order(5, seed, epoch)


@pytest.mark.parametrize("position", [-1, 5, MOST])
def test_positions_outside_are_refused(position: int) -> None:
    with pytest.raises(ValueError, match="positions from 0 to 4"):
        permute(np.array([0, position]), 5, 0, 0)


def test_more_samples_than_can_be_permuted_are_refused() -> None:
    assert permute(np.arange(3), MOST, 0, 0).max() < MOST
    with pytest.raises(ValueError, match="count="):
        permute(np.arange(3), MOST + 1, 0, 0)


def test_derived_seeds_depend_on_every_number_and_their_order() -> None:
    assert (
        len({derived_seed(1, 2), derived_seed(2, 1), derived_seed(12), derived_seed(1, 2, 0)}) == 4
    )


def test_ranks_take_consecutive_slices_of_each_global_batch() -> None:
    shares = [
        Share(count=11, batch_size=2, rank=rank, world_size=2, last="pad") for rank in range(2)
    ]
    assert shares[0].starts() == range(0, 12, 4)
    first, second = (share.positions(share.starts()) for share in shares)
    assert first[0].tolist() == [[0, 1], [4, 5], [8, 9]]
    assert second[0].tolist() == [[2, 3], [6, 7], [10, 0]]
    assert first[1].all()
    assert second[1].tolist() == [[True, True], [True, True], [True, False]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": True}, "batch_size=True"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"rank": 2, "world_size": 2}, "rank=2 of world_size=2"),
        ({"rank": -1, "world_size": 2}, "rank=-1"),
        ({"world_size": 0}, "world_size=0"),
        ({"last": None, "world_size": 2}, 'drop_last=False with world_size=2.*last="pad"'),
        ({"last": "short"}, "last='short'"),
    ],
)
def test_shares_that_cannot_be_are_refused(options: dict, message: str) -> None:
    with pytest.raises(SelectionError, match=message):
        Share(**{"count": 10, "batch_size": 2, **options})
