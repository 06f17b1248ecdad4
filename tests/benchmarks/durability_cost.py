"""What fsync and checksums cost `prep images`: the same runs with and without them, in turns.

Without fsync the bytes still go to the page cache and the disk is still told to begin, so what is
measured is the waiting.

Run: python -m tests.benchmarks.durability_cost [--photos DIR]
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

from tests.benchmarks.inputs import claim_memory, empty, usable_photos
from tests.benchmarks.peers import warm
from tests.benchmarks.rounds import Runs, alternate, report, show

OURS = "prep images"
WITHOUT: dict[str, dict[str, Callable[..., int | None]]] = {
    OURS: {},
    "without fsync": {"os.fsync": lambda _: None},
    "without checksums": {
        "loaders.format.row_writer.extend": lambda *_: 0,
        "loaders.format.row_writer.with_other_start": lambda *_: 0,
    },
    "without both": {
        "os.fsync": lambda _: None,
        "loaders.format.row_writer.extend": lambda *_: 0,
        "loaders.format.row_writer.with_other_start": lambda *_: 0,
    },
}
SIZES = (512, 1024)


@contextmanager
def _turned_off(names: dict[str, Callable[..., int | None]]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, instead in names.items():
            stack.enter_context(patch(name, instead))
        yield


def _run(source: Path, out: Path, without: str) -> None:
    from preprocess import ImageOptions, RunOptions, images_to_shards

    options = ImageOptions(sizes=tuple((size, size) for size in SIZES))
    with _turned_off(WITHOUT[without]):
        images_to_shards(source, out, options, RunOptions(workers=2, backend="threading"))


def measure(
    photos: Path | None,
    scratch: Path,
    *,
    count: int = 300,
    photo_size: tuple[int, int] = (2048, 1536),
    rounds: int = 5,
) -> Runs:
    """Run in turns, everything imported; each finds memory for its bytes ready."""
    source, out = usable_photos(photos, scratch, count, photo_size), scratch / "out"
    warm("ours")
    _run(source, out, OURS)

    def make_ready() -> None:
        empty(out)
        claim_memory(count * sum(3 * size**2 for size in SIZES))

    contenders = {name: partial(_run, source, out, name) for name in WITHOUT}
    return alternate(contenders, rounds, between=make_ready)


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, help="folder of photos; painted ones if absent")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs = measure(chosen.photos, Path(scratch), count=chosen.count, rounds=chosen.rounds)
    title = f"{chosen.count} photos to {SIZES}, 2 threads, imports outside"
    show(report(title, runs, count=chosen.count, unit="photos", reference=OURS))


if __name__ == "__main__":
    main()
