"""Batches of encoded pictures from the page cache: raw, JPEG and compressed, by 1 and 2 threads.

A gather of whole batches in the calling thread alone, and with one thread beside it; then whole
epochs through `loaders.Loader` as it is. Encoded pictures are decoded, raw ones copied.

Run: python -m tests.benchmarks.decode_rate
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.inputs import usable_photos
from tests.benchmarks.rounds import Runs, alternate, paired_ratios, report, show

WAYS: Mapping[str, tuple[str, dict[str, str]]] = {
    "raw": ("tensor", {}),
    "jpeg": ("tensor", {"store": "jpeg"}),
    "zstd": ("zarr", {"compress": "zstd"}),
    "blosc-lz4": ("zarr", {"compress": "blosc-lz4"}),
}
"""Name -> container and options."""


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


def _gather(dataset: Any, threads: int, batch_size: int) -> None:
    from loaders.decode_threads import DecodeThreads

    dataset._columns._threads = DecodeThreads(threads)
    for first in range(0, len(dataset), batch_size):
        dataset.__getitems__(range(first, min(first + batch_size, len(dataset))))


def _one_epoch(loader: Any, count: int) -> None:
    if sum(len(batch["image"]) for batch in loader) != count:
        raise RuntimeError(f"the loader did not give {count} pictures")


def measure(made: Mapping[str, Path], *, batch_size: int, rounds: int) -> tuple[Runs, int]:
    """Time epochs in turns, everything in the page cache; give the runs and the pictures."""
    from loaders import Loader, open_dataset

    contenders = {}
    count = 0
    for name, path in made.items():
        dataset = open_dataset(path)
        count = len(dataset)
        for threads in (1, 2) if name != "raw" else ():
            gather = partial(_gather, open_dataset(path), threads, batch_size)
            contenders[f"{name}, {threads} thread{'s' * (threads > 1)}"] = gather
        loader = Loader(dataset, batch_size, drop_last=False)
        contenders[f"{name}, Loader"] = partial(_one_epoch, loader, count)
    alternate(contenders, 1)  # the maps come into the page cache
    return alternate(contenders, rounds), count


def scaling(runs: Runs) -> list[str]:
    """Write how much faster two threads were than one, of each round, as lines of text."""
    lines = []
    for name in WAYS:
        if f"{name}, 2 threads" in runs:
            ratios = paired_ratios(runs, f"{name}, 1 thread", f"{name}, 2 threads")
            best = min(runs[f"{name}, 1 thread"]) / min(runs[f"{name}, 2 threads"])
            lines.append(
                f"  {name}: 2 threads {statistics.median(ratios):.2f} times as fast as 1 "
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
    from loaders import open_dataset

    dataset = open_dataset(path)
    taken = []
    for _ in range(tries + 1):  # the maps come into the page cache
        begin = time.process_time()
        _gather(dataset, threads, len(dataset))
        taken.append(time.process_time() - begin)
    return min(taken) / len(dataset) * 1e6


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--count", type=int, default=256)
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=64)
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
