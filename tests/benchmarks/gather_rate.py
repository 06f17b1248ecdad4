"""Shuffled batches from warm maps through `loaders.Loader`, against the memory's own speed.

The limit is a plain copy of the same rows from the same maps into one buffer that nobody keeps. For
comparison `np.take` of as many random rows from one array in memory, which lies in huge pages: into
a fresh buffer a batch; into as many in turn as a loader holds that is ahead of its user; into one.

Run: python -m tests.benchmarks.gather_rate
"""

import argparse
import itertools
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.inputs import usable_photos
from tests.benchmarks.rounds import Runs, alternate, report, show

SIDE = 224


def prepare(scratch: Path, count: int, shard_nbytes: int) -> Path:
    """Make a dataset of `count` images of 224x224x3 in tensor shards."""
    from preprocess import ImageOptions, RunOptions, images_to_shards

    out = scratch / "prepared"
    source = usable_photos(None, scratch, count, (SIDE, SIDE))
    run = RunOptions(workers=2, backend="threading", shard_nbytes=shard_nbytes)
    images_to_shards(source, out, ImageOptions(sizes=((SIDE, SIDE),)), run)
    return out


def _one_epoch(loader: Any, count: int) -> None:
    seen = sum(len(batch["image"]) for batch in loader)
    if seen != count:
        raise RuntimeError(f"the loader gave {seen} images, {count} were expected")


def _copy_rows(maps: list[NDArray[np.uint8]], batch_size: int) -> None:
    shard_of = np.repeat(np.arange(len(maps)), [len(rows) for rows in maps]).tolist()
    row_of = np.concatenate([np.arange(len(rows)) for rows in maps]).tolist()
    order = np.random.default_rng(0).permutation(len(shard_of)).tolist()
    buffer = np.empty((batch_size, *maps[0].shape[1:]), np.uint8)
    for start in range(0, len(order), batch_size):
        for place, index in enumerate(order[start : start + batch_size]):
            buffer[place] = maps[shard_of[index]][row_of[index]]


def _gather(array: NDArray[np.uint8], batch_size: int, *, buffers: int) -> None:
    order = np.random.default_rng(0).permutation(len(array))
    shape = (batch_size, *array.shape[1:])
    turns = itertools.cycle([np.empty(shape, np.uint8) for _ in range(buffers)])
    for start in range(0, len(array), batch_size):
        rows = order[start : start + batch_size]
        buffer = next(turns) if buffers else np.empty(shape, np.uint8)
        # The default mode="raise" copies through a hidden buffer at half the speed.
        np.take(array, rows, axis=0, out=buffer[: len(rows)], mode="clip")


def measure(dataset: Path, *, batch_size: int, rounds: int) -> tuple[Runs, int]:
    """Time whole epochs in turns, everything in the page cache; give the runs and the images."""
    from loaders import Loader, open_dataset

    data = open_dataset(dataset, split="train", size=SIDE)
    count = len(data)
    array = np.empty((count, SIDE, SIDE, 3), np.uint8)
    array[:] = np.arange(SIDE, dtype=np.uint8)[:, None, None]  # every page is written, so present
    loader = Loader(data, batch_size=batch_size, shuffle=True, seed=0, drop_last=False)
    files = sorted((dataset / "train").glob(f"*.image_{SIDE}.npy"))
    maps = [np.asarray(np.load(file, mmap_mode="r")) for file in files]
    contenders = {
        "loaders.Loader": partial(_one_epoch, loader, count),
        "copy of the same rows": partial(_copy_rows, maps, batch_size),
        "take, fresh buffers": partial(_gather, array, batch_size, buffers=0),
        "take, four in turn": partial(_gather, array, batch_size, buffers=4),
        "take, one buffer": partial(_gather, array, batch_size, buffers=1),
    }
    alternate(contenders, 1)  # the maps come into the page cache
    return alternate(contenders, rounds), count


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=4096)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--shard-nbytes", type=int, default=64_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        dataset = prepare(Path(scratch), chosen.count, chosen.shard_nbytes)
        runs, count = measure(dataset, batch_size=chosen.batch_size, rounds=chosen.rounds)
    title = f"{count} images of {SIDE}x{SIDE}x3 from the page cache, batch {chosen.batch_size}"
    show(report(title, runs, count=count, unit="images", reference="loaders.Loader"))


if __name__ == "__main__":
    main()
