"""How fast `prep check --full` reads a dataset, beside `cat` of the same files, page cache warm.

Run: python -m tests.benchmarks.check_rate [--photos DIR]
"""

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.benchmarks.inputs import usable_photos
from tests.benchmarks.rounds import Runs, alternate, report, show

OURS = "prep check --full"
CAT = "cat"
SIZES = (512, 1024)
_FILES = 500
"""Files that one `cat` is given: a command line holds no more than some thousand."""


def prepare(photos: Path | None, scratch: Path, count: int, photo_size: tuple[int, int]) -> Path:
    """Prepare a dataset of photos."""
    from preprocess import ImageOptions, RunOptions, images_to_shards

    source = usable_photos(photos, scratch, count, photo_size)
    options = ImageOptions(sizes=tuple((size, size) for size in SIZES))
    images_to_shards(source, scratch / "out", options, RunOptions(workers=2))
    return scratch / "out"


def _check(dataset: Path, workers: int) -> None:
    from preprocess.check import check_dataset

    problems = check_dataset(dataset, full=True, workers=workers).problems
    if problems:
        raise RuntimeError("\n".join(problems))


def _cat(files: Sequence[Path]) -> None:
    for first in range(0, len(files), _FILES):
        command = ["cat", *map(str, files[first : first + _FILES])]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def measure(dataset: Path, *, workers: int, rounds: int) -> tuple[Runs, int]:
    """Read in turns, after each has read all once; return seconds, and bytes that each reads."""
    files = sorted(path for path in dataset.rglob("*") if path.is_file())
    contenders = {OURS: partial(_check, dataset, workers), CAT: partial(_cat, files)}
    for read in contenders.values():
        read()
    return alternate(contenders, rounds), sum(path.stat().st_size for path in files)


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, help="folder of photos; painted ones if absent")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dataset", type=Path, help="read this one, instead of one of photos")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        dataset = chosen.dataset or prepare(
            chosen.photos, Path(scratch), chosen.count, (2048, 1536)
        )
        runs, nbytes = measure(dataset, workers=chosen.workers, rounds=chosen.rounds)
    title = f"{nbytes / 1e6:,.0f} MB from the page cache, {chosen.workers} threads of ours"
    show(report(title, runs, count=round(nbytes / 1e6), unit="MB", reference=CAT))


if __name__ == "__main__":
    main()
