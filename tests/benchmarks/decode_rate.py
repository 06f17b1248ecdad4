"""Batches of encoded pictures from the page cache: raw, JPEG and compressed, by 1 and 2 threads.

A gather of whole batches into memory that was used before, as a `Loader` does it: in one thread
alone; with one thread beside it; and in two processes of one thread each, which share
nothing, half of the pictures each: what this machine allows just then. Then whole epochs through
`loaders.Loader` as it is, on all processors and on one. Encoded pictures are decoded, raw ones
copied.

Run: python -m tests.benchmarks.decode_rate
"""

import argparse
import itertools
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.inputs import usable_photos
from tests.benchmarks.rounds import Runs, alternate, paired_ratios, report, show

WAYS: Mapping[str, tuple[str, dict[str, str]]] = {
    "raw": ("tensor", {}),
    "jpeg": ("tensor", {"store": "jpeg"}),
    "zstd": ("zarr", {"compress": "zstd"}),
    "blosc-lz4": ("zarr", {"compress": "blosc-lz4"}),
}
"""Name -> container and options."""

_BATCH_SIZE = 64
_ONE, _TWO, _APART = ", 1 thread", ", 2 threads", ", 2 processes"
_LOADER, _LOADER_ON_ONE = ", Loader", ", Loader on 1 processor"


def prepare(scratch: Path, photos: Path | None, count: int, side: int) -> dict[str, Path]:
    """Make a dataset of the same photos in each way, and say what each takes."""
    from preprocess import ImageOptions, RunOptions, images_to_shards

    source = usable_photos(photos, scratch, count, (side, side))
    made: dict[str, Path] = {}
    for name, (container, options) in WAYS.items():
        chosen = ImageOptions(sizes=((side, side),), labels="none", **options)  # type: ignore[arg-type]
        run = RunOptions(container=container, workers=2, backend="threading")  # type: ignore[arg-type]
        made[name] = scratch / name
        report = images_to_shards(source, made[name], chosen, run)
        show([f"{name}: {report.nbytes / count / 1000:.1f} kB a picture"])
    return made


class Gather:
    """Gathers the pictures of a dataset, batch after batch, into the same memory.

    Not in the main thread, where Blosc would use threads of its own, and neither does a `Loader`.
    Each thread has a processor of its own, so that no other program moves one to that of another.

    Args:
        path: Of the dataset.
        threads: That decode, the gathering one among them.
        batch_size: Pictures of a batch.
        first: Which picture is the first.
        step: From one picture to the next.
    """

    def __init__(
        self, path: Path, threads: int, batch_size: int, first: int = 0, step: int = 1
    ) -> None:
        from loaders import open_dataset
        from loaders.decode_threads import DecodeThreads

        self._dataset = open_dataset(path)
        self._dataset._columns._threads = decode = DecodeThreads(threads)
        self._indices = np.arange(first, len(self._dataset), step)
        self._batch_size = batch_size
        image = next(view for view in self._dataset.views if view.name == "image")
        self._rows = np.zeros(*image.layout(self._indices[:batch_size]))
        self._caller = ThreadPoolExecutor(1)
        self.run()  # starts the threads, and brings the maps into the page cache
        pools = [self._caller, *decode._pools.values()]
        usable = itertools.islice(itertools.cycle(sorted(os.sched_getaffinity(0))), first, None)
        for thread in (thread for pool in pools for thread in pool._threads):
            os.sched_setaffinity(thread.native_id or 0, {next(usable)})

    @property
    def count(self) -> int:
        """Pictures."""
        return len(self._indices)

    def run(self) -> None:
        """Gather each picture once."""
        self._caller.submit(self._gather).result()

    def _gather(self) -> None:
        for first in range(0, len(self._indices), self._batch_size):
            indices = self._indices[first : first + self._batch_size]
            self._dataset.gather_into(indices, {"image": self._rows[: len(indices)]})


class TwoProcesses:
    """Two processes that gather half of the pictures each, in one thread, when they are told to.

    Args:
        batch_size: Pictures of a batch.
    """

    def __init__(self, batch_size: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes, self._processes = [], []
        for half in range(2):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, half, batch_size), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    def run(self, path: Path) -> None:
        """Have all pictures of a dataset gathered once."""
        for pipe in self._pipes:
            pipe.send(path)
        for pipe in self._pipes:
            pipe.recv()

    def close(self) -> None:
        """End them."""
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()


def _serve(pipe: Connection, half: int, batch_size: int) -> None:
    gathers: dict[Path, Gather] = {}
    while (path := pipe.recv()) is not None:
        if path not in gathers:
            gathers[path] = Gather(path, 1, batch_size, half, 2)
        gathers[path].run()
        pipe.send(path)


def _one_epoch(loader: Any, count: int) -> None:
    if sum(len(batch["image"]) for batch in loader) != count:
        raise RuntimeError(f"the loader did not give {count} pictures")


def _on_one_processor(loader: Any, count: int) -> None:
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})  # threads that are started now have it too
    try:
        _one_epoch(loader, count)
    finally:
        os.sched_setaffinity(0, usable)


def measure(made: Mapping[str, Path], *, batch_size: int, rounds: int) -> tuple[Runs, int]:
    """Time epochs in turns, everything in the page cache; give the runs and the pictures."""
    from loaders import Loader, open_dataset

    contenders: dict[str, Callable[[], None]] = {}
    count = 0
    processes = TwoProcesses(batch_size)
    for name, path in made.items():
        count = len(open_dataset(path))
        loader = Loader(open_dataset(path), batch_size, drop_last=False)
        if name != "raw":
            contenders[name + _ONE] = Gather(path, 1, batch_size).run
            contenders[name + _TWO] = Gather(path, 2, batch_size).run
            contenders[name + _APART] = partial(processes.run, path)
            other = Loader(open_dataset(path), batch_size, drop_last=False)
            contenders[name + _LOADER_ON_ONE] = partial(_on_one_processor, other, count)
        contenders[name + _LOADER] = partial(_one_epoch, loader, count)
    try:
        alternate(contenders, 1)  # the maps come into the page cache
        return alternate(contenders, rounds), count
    finally:
        processes.close()


def scaling(runs: Runs) -> list[str]:
    """Write how much faster two were than one, of each round, as lines of text."""
    lines = []
    for name in WAYS:
        for what, one, two in (
            ("2 threads", _ONE, _TWO),
            ("2 processes", _ONE, _APART),
            ("a Loader on all processors", _LOADER_ON_ONE, _LOADER),
        ):
            if name + one in runs:
                ratios = paired_ratios(runs, name + one, name + two)
                best = min(runs[name + one]) / min(runs[name + two])
                lines.append(
                    f"  {name}: {what} {statistics.median(ratios):.2f} times as fast as 1 "
                    f"({min(ratios):.2f} to {max(ratios):.2f}); the best rounds of each {best:.2f}"
                )
    return lines


def processor_time(made: Mapping[str, Path], tiny: Mapping[str, Path], tries: int) -> list[str]:
    """Write the processor's microseconds for a picture, also where other programs use the cores.

    What tiny pictures take is Python's, which threads have in turns; the rest runs side by side.

    Args:
        made: As `prepare` returns them.
        tiny: Likewise, of pictures of next to no pixels.
        tries: Of which the least is taken.
    """
    lines = []
    for name in WAYS:
        if name == "raw":
            continue
        one, two = (_least(made[name], threads, tries) for threads in (1, 2))
        python = _least(tiny[name], 1, tries)
        both = 2 / (1 + python / one) * one / two
        lines.append(
            f"  {name}: {one:.0f} microseconds of a processor by 1 thread, {two:.0f} by 2, "
            f"of which in turns {python:.0f}: with two cores free {both:.2f} times as fast"
        )
    return lines


def _least(path: Path, threads: int, tries: int) -> float:
    gather = Gather(path, threads, _BATCH_SIZE)
    taken = []
    for _ in range(tries + 1):  # the maps come into the page cache
        begin = time.process_time()
        gather.run()
        taken.append(time.process_time() - begin)
    return min(taken) / gather.count * 1e6


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--count", type=int, default=256)
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=_BATCH_SIZE)
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        made = prepare(Path(scratch), chosen.photos, chosen.count, chosen.side)
        runs, count = measure(made, batch_size=chosen.batch_size, rounds=chosen.rounds)
        title = f"{count} pictures of {chosen.side}x{chosen.side}x3 from the page cache"
        show(report(title, runs, count=count, unit="pictures", reference="raw, Loader"))
        show(scaling(runs))
        (Path(scratch) / "tiny").mkdir()
        tiny = prepare(Path(scratch) / "tiny", None, 32, 2)
        show(processor_time(made, tiny, chosen.rounds))


if __name__ == "__main__":
    main()
