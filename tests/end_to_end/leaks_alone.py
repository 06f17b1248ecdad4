"""A hundred runs, and a hundred loaders that are dropped half-way, leave the process as it was.

`test_leaks` runs each of these in a process of its own: what the allocators of one that has run
hundreds of other tests take, and when, says nothing of these.
"""

import contextlib
import ctypes
import gc
import os
import re
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa  # noqa: TID253 - a test may load it
import pytest
from joblib.externals.loky import get_reusable_executor  # noqa: TID253 - a test may load it

from loaders import Loader, open_dataset, open_table, open_tokens
from loaders.residency import Residency
from preprocess import ImageOptions, RunOptions, images_to_shards
from tests.small_datasets import Made, prepare
from tests.waiting import SECONDS

ROUNDS = 100
WARM = 15
SLOW = (20, 6)
"""Rounds, and how many of them come first, of what takes long."""

GROWTH = 24 << 20
"""Bytes that allocators may take meanwhile; one leaked batch or map a round is more."""

FEW = 4

_ALIKE, _LOOK = 10, 0.02
"""Times that the same must be seen, and the seconds between two looks."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")


def held() -> dict[str, object]:
    """Return the process's descriptors, threads, and files of its own in memory and beside."""
    gc.collect()
    places = [Path("/dev/shm"), Path(tempfile.gettempdir())]
    names = sorted(name for place in places if place.is_dir() for name in os.listdir(place))
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "files": [name for name in names if str(os.getpid()) in re.split(r"[\W_]+", name)],
    }


def children() -> str:
    """Return the processes that any thread of this one has started."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found.append((task / "children").read_text())
    return " ".join(sorted(found)).strip()


def look() -> tuple[dict[str, object], str]:
    """Return what the process holds, and the processes that it has started."""
    return held(), children()


def at_rest() -> tuple[dict[str, object], str]:
    """Return what is seen several times in a row: a thread may still be on its way out."""
    seen, alike = look(), 1
    while alike < _ALIKE:
        time.sleep(_LOOK)
        last, seen = seen, look()
        alike = alike + 1 if seen == last else 1
    return seen


def after(before: tuple[dict[str, object], str]) -> tuple[dict[str, object], str]:
    """Return what is seen once it is as it was; what has leaked stays, and is seen at last."""
    end = time.monotonic() + SECONDS
    while (seen := look()) != before and time.monotonic() < end:
        time.sleep(_LOOK)
    return seen


def resident_nbytes() -> int:
    """Return the memory of the process, without what allocators keep for later."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError):  # of the GNU C library
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@contextmanager
def frozen() -> Iterator[None]:
    """Look for garbage in what is made meanwhile alone; among all modules that takes 0.1 s."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def repeat(work: Callable[[int], None], rounds: int = ROUNDS, warm: int = WARM) -> None:
    """Call work again and again, and compare what the process holds.

    Its memory goes up and down by some tens of MB, as allocators give pages back when they like:
    the least after some of the first rounds is compared with the least after some of the last.
    """
    for number in range(warm):
        work(number)
    gc.collect()
    with frozen():
        before, resident = at_rest(), [resident_nbytes()]
        for number in range(warm, rounds):
            work(number)
            resident.append(resident_nbytes())
        assert after(before) == before
    assert min(resident[-FEW:]) - min(resident[:FEW]) < GROWTH, resident


def test_a_hundred_runs_leave_nothing(made: Made, tmp_path: Path) -> None:
    source, _ = made("images", "tensor")
    options = ImageOptions(sizes=((16, 16),))

    def work(number: int) -> None:
        out = tmp_path / str(number)
        images_to_shards(source, out, options, RunOptions(workers=2, shard_nbytes=3000))
        shutil.rmtree(out)

    repeat(work)


@pytest.mark.parametrize(
    ("kind", "container"),
    [("images", "zarr"), ("tokens", "tensor"), ("shuffled tokens", "zarr"), ("table", "tensor"),
     ("list table", "zarr")],
)  # fmt: skip
def test_runs_of_every_kind_leave_nothing(
    kind: str, container: str, made: Made, tmp_path: Path
) -> None:
    source, _ = made(kind, container)
    (tmp_path / "runs").mkdir()

    def work(number: int) -> None:
        out = tmp_path / "runs" / str(number)
        prepare(kind, container, source, out, "--limit", "15", "--workers", "2")
        shutil.rmtree(out)
        assert not os.listdir(out.parent)

    repeat(work, *SLOW)


@pytest.mark.parametrize("kind", ["images", "tokens"])
def test_runs_in_processes_leave_nothing_but_the_pool_that_is_used_again(
    kind: str, made: Made, tmp_path: Path
) -> None:
    source, _ = made(kind, "tensor")

    def work(number: int) -> None:
        out = tmp_path / str(number)
        words = ("--limit", "15", "--workers", "2", "--backend", "loky")
        prepare(kind, "tensor", source, out, *words)
        shutil.rmtree(out)

    try:
        repeat(work, *SLOW)
    finally:
        get_reusable_executor().shutdown(wait=True, kill_workers=True)


def opened(kind: str, out: Path, *, verify: bool) -> Any:
    """Open the training split of a dataset."""
    if kind == "images":
        return open_dataset(out, size=24, verify=verify)
    if kind == "table":
        return open_table(out, verify=verify)
    return open_tokens(out, verify=verify).documents()


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("container", ["tensor", "zarr"])
@pytest.mark.parametrize("kind", ["images", "tokens", "table"])
def test_a_hundred_loaders_that_are_dropped_half_way_leave_nothing(
    kind: str, container: str, verify: bool, made: Made
) -> None:
    _, out = made(kind, container)

    def work(number: int) -> None:
        batches = iter(Loader(opened(kind, out, verify=verify), 2, seed=number))
        next(batches)
        del batches

    repeat(work)


@pytest.mark.parametrize(
    ("kind", "residency"),
    [("images", "ram"), ("images", "device"), ("tokens", "ram"), ("table", "ram")],
)
def test_a_hundred_loaders_that_hold_their_samples_leave_nothing(
    kind: str, residency: Residency, made: Made
) -> None:
    _, out = made(kind, "tensor")

    def work(number: int) -> None:
        data = opened(kind, out, verify=True)
        batches = iter(Loader(data, 2, seed=number, residency=residency, device="cpu"))
        next(batches)
        del batches, data

    repeat(work)
