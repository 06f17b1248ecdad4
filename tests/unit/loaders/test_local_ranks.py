"""Ranks on one machine divide its processors."""

import threading
from collections import Counter

import pytest

from loaders import SelectionError, estimate_residency, local_ranks, open_dataset
from loaders.decode_threads import DecodeThreads
from tests.benchmarks.device_set import write_images
from tests.waiting import SECONDS

TOLD = "LOCAL_WORLD_SIZE"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be on 8 processors, with nothing said by a launcher."""
    monkeypatch.setattr(local_ranks, "usable_processors", lambda: 8)
    monkeypatch.delenv(TOLD, raising=False)


@pytest.mark.parametrize(
    ("told", "devices", "world_size", "ranks"),
    [
        ("4", 0, None, 4),
        ("4", 8, 16, 4),
        ("4", 1, 2, 2),  # fewer take part
        (None, 0, None, 1),
        (None, 4, 1, 1),
        (None, 4, 16, 4),
        (None, 4, 3, 3),
        (None, 0, 3, 3),
    ],
)
def test_a_launcher_says_how_many_ranks_are_here_or_else_the_devices(
    told: str | None,
    devices: int,
    world_size: int | None,
    ranks: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_ranks, "_devices", lambda: devices)
    if told is not None:
        monkeypatch.setenv(TOLD, told)
    assert local_ranks.local_ranks(world_size) == ranks
    assert local_ranks.own_processors(world_size) == 8 // ranks


def test_more_ranks_than_processors_have_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOLD, "9")
    assert local_ranks.own_processors() == 1


@pytest.mark.parametrize("told", ["", "0", "-1", "two", "1.0"])
def test_what_is_no_number_of_ranks_is_refused(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOLD, told)
    with pytest.raises(SelectionError, match=r"LOCAL_WORLD_SIZE=.*an integer of at least 1"):
        local_ranks.local_ranks()


@pytest.mark.parametrize(("told", "threads"), [("1", 8), ("3", 2), ("8", 1)])
def test_as_many_threads_decode_as_are_a_ranks_share(
    told: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOLD, told)
    together = threading.Barrier(threads, timeout=SECONDS)
    seen: Counter[int] = Counter()

    def work(_: int) -> None:
        together.wait()  # passes when so many are here at a time
        seen[threading.get_ident()] += 1

    DecodeThreads().run(3 * threads, work)
    assert len(seen) == threads
    assert seen.total() == 3 * threads


def test_copies_of_all_ranks_here_have_to_fit_in_ram(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = open_dataset(write_images(tmp_path_factory.mktemp("images") / "out", 3, 8))
    monkeypatch.setenv(TOLD, "2")
    estimate = estimate_residency(dataset, world_size=4)
    assert estimate.ranks == 2
    assert estimate.row_nbytes is not None
    monkeypatch.setattr("loaders.residency.free_ram", lambda: 2 * estimate.row_nbytes - 1)
    with pytest.raises(SelectionError, match=r"\(2 ranks, .* each\), RAM has"):
        estimate_residency(dataset, world_size=4).check("device", dataset)
