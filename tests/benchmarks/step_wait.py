"""What a training loop feels of `loaders.Loader`: its wait for a batch under a step, and the first.

The step is slept through, as by a processor that waits for a GPU; all is in the page cache. A wait
is the time of `next`, the processors' time that of all threads of this process. For comparison the
loop copies as many random rows from the same maps by itself, into one buffer that nobody keeps. The
first batch is timed with the dataset opened anew, so that its shards are mapped in it.

Run: python -m tests.benchmarks.step_wait
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.device_set import write_images
from tests.benchmarks.rounds import show


@dataclass(frozen=True, slots=True)
class Steps:
    """An epoch of steps.

    Attributes:
        waits: Milliseconds of each wait for a batch but the first.
        cpu: Microseconds of processors an image.
        seconds: From the first batch to the end of the last step.
    """

    waits: list[float]
    cpu: float
    seconds: float


def step_through(batches: Iterator[Any], batch_size: int, step_seconds: float) -> Steps:
    """Take every batch of an epoch, and sleep for a step after each."""
    batch = next(batches)
    waits: list[float] = []
    begin, cpu = time.perf_counter(), time.process_time()
    while batch is not None:
        due = time.perf_counter() + step_seconds
        time.sleep(max(0.0, due - time.perf_counter()))
        asked = time.perf_counter()
        batch = next(batches, None)
        waits.append((time.perf_counter() - asked) * 1e3)
    waits.pop()  # there was no batch any more
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return Steps(waits, cpu / (len(waits) * batch_size) * 1e6, seconds)


def _copies(dataset: Path, batch_size: int) -> Iterator[Any]:
    maps = [np.load(file, mmap_mode="r") for file in sorted(dataset.glob("train/*.image_*.npy"))]
    shard_of = np.repeat(np.arange(len(maps)), [len(rows) for rows in maps])
    row_of = np.concatenate([np.arange(len(rows)) for rows in maps])
    order = np.random.default_rng(0).permutation(len(shard_of))
    buffer = np.empty((batch_size, *maps[0].shape[1:]), np.uint8)
    for start in range(0, len(order) - batch_size + 1, batch_size):
        for place, index in enumerate(order[start : start + batch_size].tolist()):
            buffer[place] = maps[shard_of[index]][row_of[index]]
        yield buffer


def first_batch_milliseconds(dataset: Path, side: int, batch_size: int) -> tuple[float, float]:
    """Return the time from the construction of a `Loader` to its first batch: clock, processors."""
    from loaders import Loader, open_dataset

    data = open_dataset(dataset, size=side)
    begin, cpu = time.perf_counter(), time.process_time()
    batches = iter(Loader(data, batch_size))
    batch = next(batches)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    del batch, batches
    return seconds * 1e3, cpu * 1e3


def measure(
    dataset: Path, side: int, *, batch_size: int, step_seconds: float, rounds: int
) -> tuple[dict[str, list[Steps]], list[tuple[float, float]]]:
    """Give the epochs of ours and of plain copies, in turns, and milliseconds to first batches."""
    from loaders import Loader, open_dataset

    loader = Loader(open_dataset(dataset, size=side), batch_size)
    found: dict[str, list[Steps]] = {"loaders.Loader": [], "copy of as many rows": []}
    for _ in loader:  # the maps come into the page cache
        pass
    for _ in range(rounds):
        for name, steps in found.items():
            ours = name == "loaders.Loader"
            batches: Iterator[Any] = iter(loader) if ours else _copies(dataset, batch_size)
            steps.append(step_through(batches, batch_size, step_seconds))
    firsts = [first_batch_milliseconds(dataset, side, batch_size) for _ in range(3 * rounds)]
    return found, firsts


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=8192)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--step", type=float, default=5.0, help="milliseconds")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        dataset = write_images(Path(scratch), chosen.count, chosen.side)
        found, firsts = measure(
            dataset,
            chosen.side,
            batch_size=chosen.batch_size,
            step_seconds=chosen.step / 1e3,
            rounds=chosen.rounds,
        )
    sizes = f"{chosen.count} images of {chosen.side}, batch {chosen.batch_size}"
    show([f"{sizes}, step {chosen.step} ms"])
    for name, epochs in found.items():
        waits = [f"{statistics.mean(epoch.waits):.3f}" for epoch in epochs]
        longest = [f"{max(epoch.waits):.2f}" for epoch in epochs]
        cpu = [f"{epoch.cpu:.1f}" for epoch in epochs]
        show([f"  {name}: mean wait {' '.join(waits)} ms, longest {' '.join(longest)} ms"])
        show([f"    processors {' '.join(cpu)} microseconds an image"])
    for name, values in zip(("clock", "processors"), zip(*firsts, strict=True), strict=True):
        shown = f"median {statistics.median(values):.1f} ms: {' '.join(f'{v:.1f}' for v in values)}"
        show([f"  first batch after construction, {name}, {shown}"])


if __name__ == "__main__":
    main()
