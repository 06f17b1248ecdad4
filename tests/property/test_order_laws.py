"""Every sample once, for every number of samples, batch size, number of ranks and last batch."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loaders.sampling import MOST, Share, permute

SEEDS = st.integers(0, 2**70)
EPOCHS = st.integers(0, 2**40)


@settings(deadline=None)
@given(st.integers(0, 30_000), SEEDS, EPOCHS)
def test_every_epoch_visits_every_sample_once(count: int, seed: int, epoch: int) -> None:
    found = permute(np.arange(count), count, seed, epoch)
    assert found.dtype == np.int64
    assert np.array_equal(np.sort(found), np.arange(count))
    assert np.array_equal(found, permute(np.arange(count), count, seed, epoch))


def test_every_small_number_of_samples_is_permuted() -> None:
    for count in range(2000):
        found = permute(np.arange(count), count, 1, count % 5)
        assert np.array_equal(np.sort(found), np.arange(count)), count


@settings(deadline=None)
@given(st.integers(30_000, MOST), SEEDS, EPOCHS, st.integers(0, 2**62))
@example(MOST, 0, 0, 0)
@example(MOST - 1, 0, 0, 0)
@example(2**32 + 1, 0, 0, 0)
def test_in_large_datasets_no_sample_has_two_positions(
    count: int, seed: int, epoch: int, where: int
) -> None:
    start = where % (count - 9_999)
    spread = (np.arange(10_000) * (count // 10_001) + where) % count
    positions = np.unique(np.concatenate([np.arange(start, start + 9_999), spread]))
    found = permute(positions, count, seed, epoch)
    assert found.min() >= 0
    assert found.max() < count
    assert len(np.unique(found)) == len(positions)


@st.composite
def shares(draw: st.DrawFn) -> list[Share]:
    """Draw the shares of all ranks."""
    world = draw(st.integers(1, 9))
    last = draw(st.sampled_from(["drop", "pad", "wrap", *([None] if world == 1 else [])]))
    options = {"count": draw(st.integers(0, 200)), "batch_size": draw(st.integers(1, 17))}
    return [Share(rank=rank, world_size=world, last=last, **options) for rank in range(world)]


@given(shares(), st.integers(0, 200))
def test_all_ranks_get_the_same_number_of_full_batches(ranks: list[Share], taken: int) -> None:
    first = ranks[0]
    taken = min(taken, first.count)
    left = first.count - taken
    assert len({share.starts(taken) for share in ranks}) == 1
    starts = first.starts(taken)
    batches = left / first.step
    assert len(starts) == int(batches if first.last == "drop" else np.ceil(batches))
    if not starts:
        return
    found = [share.positions(starts) for share in ranks]
    positions = np.concatenate([rows for rows, _ in found], axis=1).reshape(-1)  # [batches * step]
    valid = np.concatenate([known for _, known in found], axis=1).reshape(-1)
    assert all(
        rows.shape == (len(starts), share.batch_size)
        for share, (rows, _) in zip(ranks, found, strict=True)
    )
    real = np.arange(taken, first.count)[: len(positions)]
    assert np.array_equal(positions[valid], real)
    assert valid[: len(real)].all()
    fillers = positions[len(real) :]
    assert np.array_equal(fillers, np.arange(len(fillers)) % first.count)
    if first.last == "drop":
        assert not len(fillers)
    else:
        assert len(real) == left


@given(shares(), st.data())
def test_a_change_of_batch_size_and_ranks_goes_on_with_the_next_position(
    ranks: list[Share], data: st.DataObject
) -> None:
    taken = 0
    seen: list[int] = []
    count = ranks[0].count
    while taken < count:
        world = data.draw(st.integers(1, 5))
        batch_size = data.draw(st.integers(1, 20))
        part = [
            Share(count=count, batch_size=batch_size, rank=r, world_size=world, last="pad")
            for r in range(world)
        ]
        starts = part[0].starts(taken)[: data.draw(st.integers(1, 4))]
        rows, known = zip(*[share.positions(starts) for share in part], strict=True)
        seen += np.concatenate(rows, axis=1)[np.concatenate(known, axis=1)].tolist()
        taken = min(starts[-1] + part[0].step, count)
    assert seen == list(range(count))
