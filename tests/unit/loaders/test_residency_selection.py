"""Of a selection its samples alone are resident, each once, and batches are those of disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loaders import Loader, Mix, SelectionError, Weighted, estimate_residency, open_dataset
from loaders import residency as residency_module
from loaders.resident import Resident
from loaders.selection import narrow, places_in, stored_indices, taken_once
from loaders.views import Gatherable

PICKS: dict[str, Any] = {
    "a range": range(4, 13),
    "every third": slice(1, None, 3),
    "backwards": slice(None, 3, -2),
    "some, in any order": [9, 2, 17, 0, 11],
    "repeated": [7, 7, 3, 7, 3, 12],
    "one": [16],
    "all, as they are": range(18),
    "all, turned about": [*range(17, -1, -1)],
}
ONCE = {"repeated": 3, "all, turned about": 18}


@pytest.fixture(scope="module")
def dataset(make_dataset: Callable[..., Path]) -> Any:
    return open_dataset(make_dataset(), size=32)


def row_nbytes(dataset: Any) -> int:
    whole = estimate_residency(dataset).row_nbytes
    assert whole is not None
    return whole // len(dataset)


def rows_kept(dataset: Gatherable) -> list[int]:
    told: list[int] = []
    resident = Resident(dataset, "device", torch.device("cpu"), told.append)
    parts = resident._kept.values()
    assert told[-1] == sum(rows.nbytes for rows in parts)
    return sorted({len(rows) for rows in parts})


def assert_same(one: Loader, other: Loader) -> None:
    for batch, expected in zip(one, other, strict=True):
        assert batch["key"] == expected["key"]
        assert torch.equal(batch["image"], expected["image"])
        assert torch.equal(batch["label"], expected["label"])


@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"shuffle": "block", "window": 3}])
def test_batches_of_a_resident_selection_are_those_of_disk(
    dataset: Any, pick: str, options: dict[str, Any]
) -> None:
    some = dataset.select(PICKS[pick])
    disk = Loader(some, 2, drop_last=False, **options)
    kept = Loader(some, 2, drop_last=False, residency="device", **options)
    for _ in range(2):
        assert_same(kept, disk)


@pytest.mark.parametrize("pick", PICKS)
def test_only_the_selected_rows_are_kept_and_estimated_each_once(dataset: Any, pick: str) -> None:
    some = dataset.select(PICKS[pick])
    count = ONCE.get(pick, len(some))
    assert rows_kept(some) == [count]
    assert estimate_residency(some).row_nbytes == count * row_nbytes(dataset)
    stored, whole = (estimate_residency(each).stored_nbytes for each in (some, dataset))
    assert stored is not None
    assert whole is not None
    assert count * row_nbytes(dataset) <= stored <= whole


def test_draws_and_mixes_of_selections_keep_these_alone(dataset: Any) -> None:
    cats, rest = dataset.select([1, 3, 5, 3]), dataset.select(range(6, 18))
    drawn = Weighted(cats, [1.0, 5.0, 1.0, 0.0], num_samples=11)
    mixed = Mix({cats: 1, Mix({rest: 1, dataset: 1}): 1})
    part = Mix([(cats, 1), (drawn, 1), (rest, 2)])
    for made, count in ((drawn, 3), (mixed, 3 + 12 + 18), (part, 3 + 3 + 12)):
        assert rows_kept(made) == [count]
        assert estimate_residency(made).row_nbytes == count * row_nbytes(dataset)
        assert_same(Loader(made, 3, residency="device"), Loader(made, 3))
    whole = Mix({dataset: 1, dataset.select(range(18)): 1})
    assert whole.indices == range(36)


def test_a_selection_that_fits_is_taken_where_the_split_does_not(
    dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = dataset.select([2, 9, 16])
    wanted = 3 * row_nbytes(dataset)
    monkeypatch.setattr(residency_module, "free_ram", lambda: wanted)
    with pytest.raises(SelectionError, match=r"fewer samples: ds.select\(\.\.\.\)"):
        Loader(dataset, 1, residency="device")
    assert_same(Loader(few, 1, residency="device"), Loader(few, 1))


@given(
    span=st.integers(1, 40),
    picks=st.lists(st.lists(st.integers(0, 1 << 30), min_size=1, max_size=30), max_size=3),
    cut=st.tuples(st.integers(0, 9), st.integers(1, 5), st.booleans()),
)
def test_every_index_taken_has_one_place_of_its_own(
    span: int, picks: list[list[int]], cut: tuple[int, int, bool]
) -> None:
    class Picked:
        def __init__(self) -> None:
            self.span = span
            self.indices: Any = range(span)

    picked = Picked()
    ranges = range(min(cut[0], span - 1), span, cut[1])
    picked.indices = narrow(picked.indices, ranges[::-1] if cut[2] else ranges, "law")
    for pick in picks:
        count = len(picked.indices)
        picked.indices = narrow(picked.indices, [index % count for index in pick], "law")
    taken = taken_once(picked)
    asked = stored_indices(picked.indices, np.arange(len(picked.indices), dtype=np.int64))
    places = places_in(taken, asked)
    assert sorted(set(places.tolist())) == [*range(len(taken))]
    assert np.array_equal(stored_indices(taken, places), asked)
    assert places.dtype == np.int64
