"""A hundred runs, and a hundred loaders that are dropped half-way, leave the process as it was."""

import gc
import os
import re
import resource
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from loaders import Loader, open_dataset, open_table, open_tokens
from preprocess import ImageOptions, RunOptions, images_to_shards
from tests.small_datasets import Made

ROUNDS = 100
WARM = 15
GROWTH = 24 << 20
"""Bytes that allocators may take meanwhile; one leaked batch or map a round is more."""


def held() -> tuple[int, int, list[str]]:
    """Return the process's descriptors, threads, and shared memory of its own."""
    gc.collect()
    shared = sorted(os.listdir("/dev/shm")) if Path("/dev/shm").is_dir() else []
    mine = [name for name in shared if str(os.getpid()) in re.split(r"[\W_]+", name)]
    return len(os.listdir("/proc/self/fd")), threading.active_count(), mine


def children() -> str:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


def resident_nbytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def repeat(work: Callable[[int], None]) -> None:
    """Call work again and again, and compare what the process holds."""
    for number in range(WARM):
        work(number)
    before, processes, resident = held(), children(), resident_nbytes()
    for number in range(WARM, ROUNDS):
        work(number)
    assert (held(), children()) == (before, processes)
    assert resident_nbytes() - resident < GROWTH


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_a_hundred_runs_leave_nothing(made: Made, tmp_path: Path) -> None:
    source, _ = made("images", "tensor")
    options = ImageOptions(sizes=((16, 16),))

    def work(number: int) -> None:
        out = tmp_path / str(number)
        images_to_shards(source, out, options, RunOptions(workers=2, shard_nbytes=3000))
        shutil.rmtree(out)

    repeat(work)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("kind", ["images", "tokens", "table"])
def test_a_hundred_loaders_that_are_dropped_half_way_leave_nothing(kind: str, made: Made) -> None:
    _, out = made(kind, "tensor")

    def work(number: int) -> None:
        if kind == "images":
            data = open_dataset(out, size=24)
        else:
            data = open_table(out) if kind == "table" else open_tokens(out).documents()
        batches = iter(Loader(data, 2, seed=number))
        next(batches)
        del batches, data

    repeat(work)
