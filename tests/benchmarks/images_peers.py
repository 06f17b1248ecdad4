"""Shuffled batches of images from the page cache through `loaders.Loader`, against other loaders.

Each of them runs in a Python of its own that has it (`images_peers_serve`), from the same random
images in its own format: raw uint8, uncompressed, read as its documentation advises. All stay open
and take turns, one epoch each; for every one its best setting counts, without and with 2 worker
processes. Epochs are timed whole; workers stay from one to the next where the package lets them.

Run: python -m tests.benchmarks.images_peers [--litdata-python PYTHON] ... (one for each)
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.device_set import write_images
from tests.benchmarks.rounds import Runs, alternate, paired_ratios, report, show

OURS = "loaders.Loader"
WORKERS = (0, 2)

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "litdata": ("LitData",),
    "streaming": ("Streaming",),
    "webdataset": ("WebDataset",),
    "datasets": ("datasets",),
    "grain": ("Grain, ArrayRecord", "Grain, mapped .npy"),
    "tensorstore": ("tensorstore, a file an image", "tensorstore, sharded zarr"),
    "tensordict": ("tensordict",),
}
"""Package -> what `images_peers_serve` calls its ways of serving images."""


class Server:
    """One way of serving the images, in a process that stays open.

    Args:
        command: Starts it.

    Attributes:
        version: Of its package.

    Raises:
        RuntimeError: It ended, and what it said.
    """

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self.version: str = json.loads(self._line())["version"]

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._said.seek(0)
            said = self._said.read()
            self.close()
            raise RuntimeError(f"{self._command}: exit code {code}\n{said}")
        return line

    def epoch(self) -> float:
        """Return the seconds of an epoch."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        """End it."""
        if not self._said.closed:
            self._process.communicate()
            self._said.close()


@contextmanager
def serving(
    dataset: Path, batch_size: int, pythons: Mapping[str, Path]
) -> Iterator[dict[str, Server]]:
    """Write the images for each of the given packages, and open every setting of each."""
    with ExitStack() as stack:
        servers = {}
        for package, python in pythons.items():
            for name in OPTIONS[package]:
                folder = dataset.parent / name.replace(" ", "_").replace(",", "")
                for workers in WORKERS:
                    module = ["-W", "ignore", "-m", "tests.benchmarks.images_peers_serve"]
                    words = [name, dataset, folder, batch_size, workers]
                    server = Server([str(python), *module, *map(str, words)])
                    stack.callback(server.close)
                    servers[f"{name}, {workers} workers"] = server
                show([f"  {name} is ready: {package} {server.version}"])
        yield servers


def _one_epoch(loader: Any) -> None:
    seen = sum(len(batch["image"]) for batch in loader)
    if seen != len(loader) * loader.batch_size:
        raise RuntimeError(f"the loader gave {seen} images of {len(loader)} batches")


def measure(
    dataset: Path, side: int, *, batch_size: int, rounds: int, pythons: Mapping[str, Path]
) -> tuple[Runs, int]:
    """Time whole epochs in turns, everything in the page cache; give the runs and the images."""
    from loaders import Loader, open_dataset

    loader = Loader(open_dataset(dataset, size=side), batch_size)
    with serving(dataset, batch_size, pythons) as servers:
        contenders: dict[str, Callable[[], float | None]] = {OURS: partial(_one_epoch, loader)}
        contenders |= {name: server.epoch for name, server in servers.items()}
        alternate(contenders, 1)
        return alternate(contenders, rounds), len(loader) * batch_size


def best_of_each(runs: Runs) -> list[str]:
    """Say of every package how many times the rate of its best setting ours is."""
    lines = []
    for package, names in OPTIONS.items():
        settings = [n for n in runs if n != OURS and n.rsplit(", ", 1)[0] in names]
        if settings:
            best = min(settings, key=lambda name: statistics.median(runs[name]))
            ratios = paired_ratios(runs, best, OURS)
            low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
            lines.append(
                f"  {OURS} has {middle:.1f} times ({low:.1f} to {high:.1f}) the rate of "
                f"{package}'s best: {best}"
            )
    return lines


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=4096)
    parser.add_argument("--side", type=int, default=224, help="224 or 512")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scratch", type=Path, help="folder for the images, in each format")
    for package in OPTIONS:
        parser.add_argument(f"--{package}-python", type=Path, help=f"has {package} and torch")
    chosen = parser.parse_args()
    given = {package: getattr(chosen, f"{package}_python") for package in OPTIONS}
    pythons = {package: python for package, python in given.items() if python is not None}
    with tempfile.TemporaryDirectory(dir=chosen.scratch) as scratch:
        dataset = write_images(Path(scratch) / "ours", chosen.count, chosen.side)
        runs, count = measure(
            dataset,
            chosen.side,
            batch_size=chosen.batch_size,
            rounds=chosen.rounds,
            pythons=pythons,
        )
    title = f"{count} images of {chosen.side}x{chosen.side}x3, batch {chosen.batch_size}"
    show(report(title, runs, count=count, unit="images", reference=OURS))
    show(best_of_each(runs))


if __name__ == "__main__":
    main()
