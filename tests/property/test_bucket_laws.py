"""Buckets: each picture in the nearest, each batch of one, the same one at a step on every rank."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.groups import Groups
from loaders.order import Epoch
from loaders.sampling import Share
from loaders.schedule import Schedule, Step
from preprocess.images.buckets import bucket_shapes, nearest_bucket

STEPS = st.sampled_from([1, 8, 32, 64])
RATIOS = st.sampled_from([1.0, 1.5, 2.0, 4.0, 16.0])
SEEDS = st.integers(0, 2**70)


@given(STEPS, st.integers(1, 24), RATIOS)
def test_shapes_are_the_largest_of_each_width_and_come_turned_too(
    step: int, steps: int, ratio: float
) -> None:
    side = step * steps
    shapes = bucket_shapes(side, step, ratio)
    expected = set()
    for short in range(step, side + 1, step):
        long = max(n for n in range(step, 17 * side, step) if short * n <= side * side)
        if long <= ratio * short:
            expected |= {(short, long), (long, short)}
    assert set(shapes) == expected
    assert (side, side) in expected
    proportions = [Fraction(w, h) for w, h in shapes]
    assert proportions == sorted(set(proportions))


@given(STEPS, st.integers(1, 24), RATIOS, st.tuples(st.integers(1, 20_000), st.integers(1, 20_000)))
def test_a_picture_goes_to_the_bucket_of_the_nearest_logarithm(
    step: int, steps: int, ratio: float, size: tuple[int, int]
) -> None:
    shapes = bucket_shapes(step * steps, step, ratio)

    def apart(shape: tuple[int, int]) -> Fraction:  # e to the distance of the logarithms
        found = Fraction(size[0], size[1]) / Fraction(*shape)
        return max(found, 1 / found)

    assert nearest_bucket(shapes, *size) == min(shapes, key=apart)  # the first, if there are two


def test_half_way_between_two_the_taller_one_is_taken() -> None:
    shapes = bucket_shapes(128, 64, 4.0)
    assert shapes == ((64, 256), (128, 128), (256, 64))
    assert nearest_bucket(shapes, 50, 100) == (64, 256)
    assert nearest_bucket(shapes, 51, 100) == nearest_bucket(shapes, 100, 50) == (128, 128)
    assert nearest_bucket(shapes, 101, 50) == nearest_bucket(shapes, 9000, 5) == (256, 64)


class Epochs:
    """The batches of some samples in groups, for any batch size and number of ranks."""

    def __init__(self, codes: list[int], seed: int, shuffle: bool) -> None:
        names = tuple(str(group) for group in range(5))
        self.codes, self.seed, self.shuffle = np.array(codes, np.uint16), seed, shuffle
        self.groups = Groups.of(self.codes, names)

    def rank(self, batch_size: int, rank: int, world: int, last: str | None) -> Schedule:
        share = Share(
            count=len(self.codes), batch_size=batch_size, rank=rank, world_size=world, last=last
        )
        return Schedule.of(share, self.groups, seed=self.seed, shuffle=self.shuffle)

    def samples(self, schedule: Schedule, step: Step, epoch: int) -> tuple[list[int], list[bool]]:
        """Return the samples of a rank's batch, and which of them are no fillers."""
        share = schedule.shares[step.group]
        (places,), (valid,) = share.positions([step.start])
        order = Epoch(shuffle=self.shuffle, seed=self.seed, number=epoch)
        found = self.groups.visit(step.group, places, order)
        return found.tolist(), valid.tolist()


@st.composite
def epochs(draw: st.DrawFn) -> Epochs:
    codes = draw(st.lists(st.integers(0, 4), max_size=80))
    return Epochs(codes, draw(SEEDS), draw(st.booleans()))


@settings(deadline=None)
@given(
    epochs(),
    st.integers(1, 7),
    st.integers(1, 4),
    st.sampled_from(["drop", "pad", "wrap"]),
    st.integers(0, 9),
)
def test_all_ranks_have_the_same_bucket_at_a_step_and_every_sample_comes_once(
    made: Epochs, batch_size: int, world: int, last: str, epoch: int
) -> None:
    ranks = [made.rank(batch_size, rank, world, last) for rank in range(world)]
    steps = [*ranks[0].steps(epoch, ranks[0].nothing)]
    assert len(steps) == len(ranks[0])
    seen: list[int] = []
    for rank in ranks:
        assert [*rank.steps(epoch, rank.nothing)] == steps
        for step in steps:
            found, valid = made.samples(rank, step, epoch)
            assert len(found) == batch_size
            assert set(made.codes[found].tolist()) == {step.group}
            seen += [sample for sample, known in zip(found, valid, strict=True) if known]
    assert len(set(seen)) == len(seen)
    counts = made.groups.counts
    if last == "drop":
        assert len(seen) == sum(count - count % (batch_size * world) for count in counts)
    else:
        assert sorted(seen) == [*range(len(made.codes))]


@settings(deadline=None)
@given(epochs(), st.integers(1, 7), st.sampled_from(["drop", "pad", None]), st.data())
def test_an_epoch_goes_on_from_every_step_as_if_it_had_not_been_left(
    made: Epochs, batch_size: int, last: str | None, data: st.DataObject
) -> None:
    schedule = made.rank(batch_size, 0, 1, last)
    steps = [*schedule.steps(3, schedule.nothing)]
    stop = data.draw(st.integers(0, len(steps)))
    taken = steps[stop - 1].taken if stop else schedule.nothing
    assert [*schedule.steps(3, taken)] == steps[stop:]


@settings(deadline=None)
@given(epochs(), st.data())
def test_with_other_batch_sizes_and_ranks_midway_no_sample_is_lost_or_comes_twice(
    made: Epochs, data: st.DataObject
) -> None:
    taken: tuple[int, ...] = (0,) * 5
    seen: list[int] = []
    while sum(taken) < len(made.codes):
        world, batch_size = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
        ranks = [made.rank(batch_size, rank, world, "pad") for rank in range(world)]
        steps = [*ranks[0].steps(0, taken)][: data.draw(st.integers(1, 4))]
        for step in steps:
            for rank in ranks:
                found, valid = made.samples(rank, step, 0)
                seen += [sample for sample, known in zip(found, valid, strict=True) if known]
        taken = steps[-1].taken
    assert sorted(seen) == [*range(len(made.codes))]


def test_an_equal_global_batch_is_the_same_however_it_is_divided() -> None:
    made = Epochs([number * 7 % 5 % 4 for number in range(200)], 9, shuffle=True)

    def batches(batch_size: int, world: int) -> list[list[int]]:
        ranks = [made.rank(batch_size, rank, world, "drop") for rank in range(world)]
        steps = [*ranks[0].steps(2, ranks[0].nothing)]
        return [[i for rank in ranks for i in made.samples(rank, step, 2)[0]] for step in steps]

    assert batches(12, 1) == batches(6, 2) == batches(3, 4)


def test_buckets_come_in_any_order_with_batches_in_proportion() -> None:
    made = Epochs([0] * 600 + [1] * 300 + [2] * 100, 4, shuffle=True)
    schedule = made.rank(1, 0, 1, "drop")
    early = np.zeros(3)
    for epoch in range(40):
        steps = [step.group for step in schedule.steps(epoch, schedule.nothing)]
        assert sorted(steps) == sorted(made.codes.tolist())
        early += np.bincount(steps[:100], minlength=3)
    assert np.abs(early / early.sum() - [0.6, 0.3, 0.1]).max() < 0.03
