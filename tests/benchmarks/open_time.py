"""How long `loaders.open_dataset` takes on a dataset of many shards, and its first sample.

Run: python -m tests.benchmarks.open_time
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tests.benchmarks.rounds import show
from tests.synthetic import write_image_tree

SIDE = 8


def prepare(scratch: Path, shards: int) -> Path:
    """Make a dataset of one tiny image to a shard."""
    from preprocess import ImageOptions, RunOptions, images_to_shards

    source, out = scratch / "photos", scratch / "prepared"
    write_image_tree(source, ["only"], shards, size=(SIDE, SIDE))
    run = RunOptions(workers=2, backend="threading", shard_nbytes=1)  # never less than a sample
    images_to_shards(source, out, ImageOptions(sizes=((SIDE, SIDE),)), run)
    return out


def measure(dataset: Path, repeats: int) -> tuple[list[float], list[float]]:
    """Give milliseconds to open, and to open and read the first sample, once per repeat."""
    from loaders import open_dataset

    opened, first = [], []
    for _ in range(repeats):
        begin = time.perf_counter()
        data = open_dataset(dataset, split="train", size=SIDE)
        opened.append((time.perf_counter() - begin) * 1e3)
        data[0]
        first.append((time.perf_counter() - begin) * 1e3)
    return opened, first


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=20)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        dataset = prepare(Path(scratch), chosen.shards)
        files = sum(1 for path in dataset.rglob("*") if path.is_file())
        opened, first = measure(dataset, chosen.repeats)
    show([f"a dataset of {chosen.shards} shards ({files} files), warm, {chosen.repeats} times"])
    for name, values in (("open_dataset", opened), ("open + first sample", first)):
        shown = " ".join(f"{value:.2f}" for value in values)
        show([f"  {name:20} median {statistics.median(values):.2f} ms: {shown}"])


if __name__ == "__main__":
    main()
