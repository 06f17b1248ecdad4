"""Laws of a number that no row has: it is not among them, whatever they are and in what parts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from preprocess.tables.unused import unused_number


@st.composite
def crowds(draw: st.DrawFn) -> np.ndarray:
    """Return numbers of 64 bits, in some places each that begins with the same bits."""
    few = draw(st.lists(st.integers(0, (1 << 64) - 1), max_size=20))
    parts = [np.array(few, np.uint64)]
    begin = np.uint64(0)
    for shift in range(48, -1, -16)[: draw(st.integers(0, 3))]:
        # Every digit here, so that the next has to be looked at; one of them is the rarest.
        digits = np.arange(1 << 16, dtype=np.uint64)
        rare = draw(st.integers(0, (1 << 16) - 1))
        twice = np.delete(digits, rare)
        parts += [begin | (each << np.uint64(shift)) for each in (digits, twice)]
        begin |= np.uint64(rare << shift)
    return np.concatenate(parts)


@given(numbers=crowds(), unsigned=st.booleans(), seed=st.integers(0, 99))
def test_the_number_is_not_among_them_and_the_same_in_any_order(
    numbers: np.ndarray, unsigned: bool, seed: int
) -> None:
    values = numbers if unsigned else numbers.view(np.int64)

    found = unused_number(lambda: [(values, None)], unsigned=unsigned)

    limits = np.iinfo(values.dtype)
    assert limits.min <= found <= limits.max
    assert not (values == found).any()
    mixed = np.random.default_rng(seed).permutation(values)
    parts = [(part, None) for part in np.array_split(mixed, 3)]
    assert unused_number(lambda: parts, unsigned=unsigned) == found
