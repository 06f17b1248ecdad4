"""Selections of selections are what NumPy's indexing makes of the indices, whatever their form."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loaders.selection import Chosen, narrow, pick, selection_facts, stored_indices


@st.composite
def wanted(draw: st.DrawFn, count: int) -> Any:
    """Draw a selection of at least one of `count` samples."""
    kind = draw(st.sampled_from(["list", "mask", "range", "slice"]))
    if kind == "list":
        return draw(st.lists(st.integers(-count, count - 1), min_size=1, max_size=30))
    if kind == "mask":
        mask = np.array(draw(st.lists(st.booleans(), min_size=count, max_size=count)))
        mask[draw(st.integers(0, count - 1))] = True
        return mask
    first, last = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
    step = draw(st.integers(1, 4)) * (1 if first <= last else -1)
    end = last + (1 if step > 0 else -1)
    if kind == "range":
        return range(first, end, step)
    return slice(first, None if end < 0 else end, step)


@given(st.integers(1, 60), st.data())
def test_selecting_again_and_again_is_indexing_again_and_again(
    count: int, data: st.DataObject
) -> None:
    chosen: Chosen = range(count)
    expected = np.arange(count)
    for _ in range(data.draw(st.integers(1, 4))):
        asked = data.draw(wanted(len(chosen)))
        chosen = narrow(chosen, asked, "here")
        expected = expected[np.array(asked) if isinstance(asked, range | list) else asked]
        assert len(chosen) == len(expected)
        places = np.arange(len(chosen))
        assert np.array_equal(stored_indices(chosen, places), expected)
        assert np.array_equal(pick(np.arange(count) * 3, chosen), expected * 3)
        neighbours = bool((np.diff(expected) == 1).all())
        assert isinstance(chosen, range) or not neighbours
    assert (selection_facts(chosen, count) == []) == np.array_equal(expected, np.arange(count))
