"""Epochs from a cold disk through `loaders.Loader`, against reading the same files in sequence.

Before each run the kernel forgets the files. The limit is a plain read of all shards of the images,
one after the other, in pieces of 1 MiB. "not announced" is the same `Loader` over a dataset that
does not say where its samples lie, so that the kernel learns of them when they are copied.

Run: python -m tests.benchmarks.cold_rate
"""

import argparse
import gc
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.gather_rate import SIDE, prepare
from tests.benchmarks.rounds import Runs, alternate, report, show
from tests.page_cache import forget

_PIECE_NBYTES = 1 << 20


def forget_all(dataset: Path) -> None:
    """Have the kernel forget all files of a dataset, which nobody may have mapped."""
    gc.collect()
    for file in dataset.rglob("*"):
        if file.is_file():
            forget(file)


def _read_in_sequence(files: list[Path]) -> None:
    buffer = bytearray(_PIECE_NBYTES)
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while opened.readinto(buffer):
                pass


class _Silent:
    """A dataset of images without `stretches`: the calls that a `Loader` needs, and no more."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.path, self.split, self.views = dataset.path, dataset.split, dataset.views
        self.made_nbytes = dataset.made_nbytes

    def __len__(self) -> int:
        return len(self._dataset)

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        self._dataset.gather_into(indices, buffers)

    def show(self, *given: Any) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._dataset.show(*given)
        return found


def _batches(dataset: Path, options: Mapping[str, Any], *, announced: bool) -> Iterator[Any]:
    from loaders import Loader, open_dataset

    data = open_dataset(dataset, split="train", size=SIDE)
    return iter(Loader(data if announced else _Silent(data), drop_last=False, **options))


def _one_epoch(
    dataset: Path, count: int, options: Mapping[str, Any], *, announced: bool = True
) -> None:
    seen = sum(len(batch["image"]) for batch in _batches(dataset, options, announced=announced))
    if seen != count:
        raise RuntimeError(f"the loader gave {seen} images, {count} were expected")


def measure(dataset: Path, *, batch_size: int, window: int, rounds: int) -> tuple[Runs, int]:
    """Time whole epochs in turns, each from a cold disk; give the runs and the images."""
    from loaders import open_dataset

    count = len(open_dataset(dataset, split="train", size=SIDE))
    files = sorted((dataset / "train").glob(f"*.image_{SIDE}.npy"))
    options = {"batch_size": batch_size, "seed": 0}
    blocks = {**options, "shuffle": "block", "window": window}
    epoch = partial(_one_epoch, dataset, count)
    contenders = {
        "sequential read": partial(_read_in_sequence, files),
        "Loader": partial(epoch, options),
        "Loader, blocks": partial(epoch, blocks),
        "Loader, as stored": partial(epoch, {**options, "shuffle": False}),
        "Loader, not announced": partial(epoch, options, announced=False),
        "Loader, blocks, not announced": partial(epoch, blocks, announced=False),
    }
    return alternate(contenders, rounds, between=partial(forget_all, dataset)), count


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=8192)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--window", type=int, default=2048, help="samples of a window of blocks")
    parser.add_argument("--shard-nbytes", type=int, default=256_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scratch", type=Path, help="a folder on the disk to be measured")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.scratch) as scratch:
        dataset = prepare(Path(scratch), chosen.count, chosen.shard_nbytes)
        runs, count = measure(
            dataset, batch_size=chosen.batch_size, window=chosen.window, rounds=chosen.rounds
        )
    title = f"{count} images of {SIDE}x{SIDE}x3 from a cold disk, batch {chosen.batch_size}"
    show(report(title, runs, count=count, unit="images", reference="sequential read"))


if __name__ == "__main__":
    main()
