"""Of a selection residency "ram" reads the files where its samples lie, and says so beforehand."""

import sys
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders import (
    Loader,
    Mix,
    Weighted,
    estimate_residency,
    feed,
    open_dataset,
    open_table,
    open_tokens,
    page_cache,
    samples,
    stretches,
)
from tests.benchmarks.device_set import write_images
from tests.page_cache import drop, resident
from tests.picture_stores import WAYS, prepare_in_all_ways
from tests.table_stores import write_people
from tests.token_stores import write_chat, write_fixed, write_packed, write_stream


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("selected")
    made = prepare_in_all_ways(folder, 13)
    found: dict[str, Any] = {name: open_dataset(path) for name, path in made.items()}
    documents = [[[*range(n)] for n in (5, 1, 9)], [[*range(n)] for n in (2, 2, 40, 7)]]
    short = [[[5, 6], [7, 8, 9]], [[1], [3, 4, 9]]]
    stream = open_tokens(write_stream(folder / "stream", documents))
    chats = [[([5, 6], [0, 1]), ([7, 8, 9], [1, 1, 0])], [([1], [1]), ([3, 4], [0, 1])]]
    fixed = open_tokens(write_fixed(folder / "fixed", short, 4))
    packed = open_tokens(write_packed(folder / "packed", [short], 9))
    found |= {
        "table": open_table(write_people(folder / "people", 50, shards=[20, 0, 1, 29])),
        "windows": stream.blocks(6),
        "overlapping windows": stream.blocks(30, stride=3, tail="pad"),
        "documents": stream.documents(),
        "rows": stream.padded(4),
        "fixed rows": fixed.padded(),
        "packed rows": packed.packed(),
        "chats": open_tokens(write_chat(folder / "chat", chats)).chat(5),
    }
    return found


NAMES = [
    *WAYS,
    *("table", "windows", "overlapping windows", "documents", "rows"),
    *("fixed rows", "packed rows", "chats"),
]


def extent(dataset: Any) -> list[tuple[int, int]]:
    """Return from which address to which each part goes that batches read."""
    parts = chain.from_iterable(dataset.all_stretches())
    return [(part.ctypes.data, part.ctypes.data + part.nbytes) for part in parts]


def read_by(dataset: Any) -> set[int]:
    """Return the addresses of all bytes that batches read."""
    return {at for first, end in extent(dataset) for at in range(first, end)}


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_what_is_read_of_a_selection_is_estimated_and_is_that_of_its_samples(
    datasets: dict[str, Any], name: str, data: st.DataObject
) -> None:
    whole = datasets[name]
    indices = st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=6)
    some = whole.select(data.draw(indices))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "_GAP_NBYTES", 0)
        patch.setattr(samples, "_AT_ONCE", data.draw(st.integers(1, 4)))
        assert estimate_residency(some).stored_nbytes == sum(b - a for a, b in extent(some))
        each = [whole.select([index]) for index in some.indices]
        assert read_by(some) == set().union(*map(read_by, each))
    assert estimate_residency(whole).stored_nbytes == len(read_by(whole))
    assert read_by(some) <= read_by(whole)


def test_mixes_and_draws_of_selections_read_these_alone(datasets: dict[str, Any]) -> None:
    raw = datasets["raw"]
    one, other = raw.select([1, 7]), raw.select(range(9, 12))
    drawn = Weighted(one, [1.0, 3.0])
    assert extent(Mix({one: 1, other: 1})) == extent(one) + extent(other)
    assert extent(Mix([(drawn, 1), (other, 2)])) == extent(one) + extent(other)
    assert estimate_residency(drawn).stored_nbytes == sum(b - a for a, b in extent(one))


@pytest.mark.parametrize("name", NAMES)
def test_the_estimate_is_what_is_read_and_batches_are_those_of_disk(
    datasets: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = datasets[name].select([0, len(datasets[name]) - 1])
    told: list[int] = []

    def keep(*given: Any) -> Any:
        kept = page_cache.keep_in_ram(*given)
        told.append(kept.nbytes)
        return kept

    monkeypatch.setattr(feed, "keep_in_ram", keep)
    loader, disk = Loader(some, 1, residency="ram"), Loader(some, 1)
    for batch, expected in zip(loader, disk, strict=True):
        assert repr(batch) == repr(expected)
    assert told == [estimate_residency(some).stored_nbytes]


@pytest.mark.skipif(sys.platform != "linux", reason="says what is in memory on Linux alone")
def test_rows_that_nobody_selected_stay_on_the_disk(tmp_path: Path) -> None:
    path = write_images(tmp_path / "images", 8, 1024)
    dataset = open_dataset(path)
    (shard,) = (path / "train").glob("*.image_1024.npy")
    width = 1024 * 1024 * 3
    head = shard.stat().st_size - 8 * width
    drop(shard)
    list(Loader(dataset.select([4, 6]), 1, residency="ram"))
    # The first ones a kernel may read along with the head of the file.
    found = [resident(shard, head + row * width + width // 2) for row in range(4, 8)]
    assert found == [True, False, True, False]


def test_pieces_that_lie_apart_are_locked_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_MOST_LOCKS", 3)
    monkeypatch.setattr(page_cache, "_PIECES", 2)
    parts = [np.zeros(10, np.uint8) for _ in range(9)]
    seen: list[int] = []
    kept = page_cache.keep_in_ram(iter(parts), 85, seen.append)
    assert kept.nbytes == 85
    assert seen == [*range(10, 81, 10), 85]
    assert kept.locked in {0, 10, 20, 30}
