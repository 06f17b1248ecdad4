"""Statistics are exact, and do not depend on how the values are cut into blocks."""

import statistics
from fractions import Fraction
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.format.table_statistics import QUANTILES
from preprocess.tables.column_statistics import Tally, column_statistics, tally
from preprocess.tables.quantiles import (
    order_image,
    order_statistics,
    quantiles,
    value_of_image,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SMALL = st.integers(-50, 50)
COLUMNS = st.one_of(
    st.lists(st.one_of(INT64, SMALL), min_size=1).map(lambda v: np.array(v, np.int64)),
    st.lists(FLOATS, min_size=1).map(lambda v: np.array(v, np.float64)),
    st.lists(st.sampled_from([0.1, -0.0, 0.0, 1e300, 5e-324, -2.5]), min_size=1).map(
        lambda v: np.array(v, np.float64)
    ),
)
CUTS = st.lists(st.integers(0, 100), max_size=4)


def parts_of(values, cuts, *, counted):
    parts = np.split(values, sorted(min(cut, len(values)) for cut in cuts))
    if not counted:
        return [(part, None) for part in parts]
    found = []
    for part in parts:
        different, counts = np.unique(part, return_counts=True)
        # A value that no row has must not count.
        different = np.append(different, np.array([7], values.dtype))
        found.append((different, np.append(counts, 0).astype(np.int64)))
    return found


@given(COLUMNS, CUTS, st.booleans())
def test_sums_are_exact_for_any_cut(values, cuts, counted):
    parts = parts_of(values, cuts, counted=counted)
    found = reduce(add, (tally(part, counts) for part, counts in parts), Tally())
    exact = [Fraction(value) for value in values.tolist()]
    assert found.count == len(values)
    assert Fraction(found.total, 1 << found.scale) == sum(exact)
    assert Fraction(found.squares, 1 << (2 * found.scale)) == sum(v * v for v in exact)
    assert (found.minimum, found.maximum) == (min(values.tolist()), max(values.tolist()))


@given(COLUMNS)
def test_mean_and_deviation_are_those_of_exact_fractions(values):
    found = tally(values)
    exact = [Fraction(value) for value in values.tolist()]
    assert found.mean() == float(sum(exact) / len(exact))
    assert found.std() == statistics.pstdev(exact)


@given(st.lists(st.integers(-(10**12), 10**12), min_size=1), st.integers(-6, 3))
def test_an_exponent_scales_the_mean_and_the_deviation_before_they_are_rounded(values, exponent):
    found = tally(np.array(values, np.int64))
    exact = [Fraction(value) * Fraction(10) ** exponent for value in values]
    assert found.mean(exponent) == float(sum(exact) / len(exact))
    assert found.std(exponent) == statistics.pstdev(exact)


def test_counts_beyond_what_float64_adds_exactly_are_added_exactly():
    values = np.array([0.1, -1e-300, 3e200])
    counts = np.array([(1 << 40) + 1, (1 << 33) + 7, 3], np.int64)
    found = tally(values, counts)
    exact = [(Fraction(v), c) for v, c in zip(values.tolist(), counts.tolist(), strict=True)]
    assert Fraction(found.total, 1 << found.scale) == sum(v * c for v, c in exact)
    assert Fraction(found.squares, 1 << (2 * found.scale)) == sum(v * v * c for v, c in exact)


def test_many_large_numbers_do_not_overflow():
    values = np.full(200_000, (1 << 63) - 1, np.int64)
    values[::2] = -(1 << 63)
    found = tally(values)
    assert found.total == -100_000
    assert found.squares == 100_000 * (((1 << 63) - 1) ** 2 + (1 << 126))


def test_tallies_of_integers_and_floats_do_not_merge():
    with pytest.raises(ValueError, match="integers and floats"):
        tally(np.array([1])) + tally(np.array([1.0]))


def test_the_largest_floats_have_a_finite_deviation():
    found = tally(np.array([1.7e308, -1.7e308]))
    assert (found.mean(), found.std()) == (0.0, 1.7e308)


def test_a_constant_has_no_deviation_and_no_values_have_no_statistics():
    assert tally(np.full(1000, 0.1)).std() == 0.0
    found = column_statistics(Tally(), (), missing=3, infinite=1)
    assert (found.count, found.missing, found.mean, found.quantiles) == (4, 3, None, ())


@given(COLUMNS)
def test_images_are_in_the_order_of_their_values_and_give_them_back(values):
    images = order_image(values)
    order = np.argsort(images, kind="stable")
    assert (values[order] == np.sort(values)).all()
    back = [value_of_image(image, values.dtype) for image in images.tolist()]
    assert back == values.tolist()


@given(COLUMNS, CUTS, st.booleans(), st.sampled_from([0, 3, 1000]))
def test_order_statistics_are_those_of_the_sorted_list(values, cuts, counted, held):
    parts = parts_of(values, cuts, counted=counted)
    ranks = sorted({0, len(values) // 3, len(values) - 1})
    found = order_statistics(lambda: parts, ranks, held)
    expected = sorted(values.tolist())
    assert found == {rank: expected[rank] for rank in ranks}


@given(COLUMNS, CUTS, st.booleans())
def test_quantiles_interpolate_between_neighbours_exactly(values, cuts, counted):
    parts = parts_of(values, cuts, counted=counted)
    exact = [Fraction(value) for value in sorted(values.tolist())]
    expected = []
    for share in QUANTILES:
        place = Fraction(str(share)) * (len(exact) - 1)
        low, high = exact[int(place)], exact[min(int(place) + 1, len(exact) - 1)]
        expected.append(float(low + (place - int(place)) * (high - low)))
    assert quantiles(lambda: parts, len(values)) == tuple(expected)


def test_quantiles_agree_with_numpy():
    values = np.random.default_rng(0).normal(size=5001)
    found = quantiles(lambda: [(values, None)], len(values))
    np.testing.assert_allclose(found, np.quantile(values, QUANTILES), rtol=1e-12)


def test_quantiles_of_no_values_are_none():
    assert quantiles(list, 0) == ()
