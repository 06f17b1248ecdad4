"""How long a short job takes from the shell, process start included, and where the start goes.

Run: python -m tests.benchmarks.short_job [--photos DIR]
"""

import argparse
import re
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.inputs import empty, prep_images, run_command, usable_photos
from tests.benchmarks.rounds import Runs, alternate, report, show

if TYPE_CHECKING:
    from collections.abc import Callable

IMPORT_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")  # self, cumulative, module
OURS = {"preprocess", "loaders"}
NAMED = {"torch", "cv2", "numpy", "PIL", "joblib", "click", "rich", "zarr", "simplejpeg"}


def measure(
    source: Path, scratch: Path, *, sizes: tuple[int, ...], workers: int, rounds: int
) -> Runs:
    """Run whole commands in turns."""
    out = scratch / "out"
    shared = ["--sizes", *map(str, sizes), "--workers", str(workers)]
    peer = [sys.executable, "-m", "tests.benchmarks.peers"]
    backend = ("--workers", str(workers), "--backend", "threading")
    commands = {
        "prep images": prep_images(source, out, sizes, *backend),
        "same kernel, np.save pool": [*peer, "ours", str(source), str(out), *shared],
        "Pillow, np.save pool": [*peer, "pillow", str(source), str(out), *shared],
    }

    def run(command: list[str]) -> None:
        run_command(command)

    contenders: dict[str, Callable[[], None]] = {
        name: partial(run, command) for name, command in commands.items()
    }
    return alternate(contenders, rounds, between=partial(empty, out))


def import_microseconds(command: list[str]) -> Counter[str]:
    """Run a Python command and add up the time of its imports by package."""
    stderr = run_command([command[0], "-X", "importtime", *command[1:]])
    microseconds: Counter[str] = Counter()
    for own, module in IMPORT_LINE.findall(stderr):
        package = module.partition(".")[0]
        group = "ours" if package in OURS else package if package in NAMED else "others"
        microseconds[group] += int(own)
    return microseconds


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, help="folder of photos; painted ones if absent")
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    sizes = (512, 1024)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        source = usable_photos(chosen.photos, scratch, chosen.count, (2048, 1536))
        runs = measure(source, scratch, sizes=sizes, workers=chosen.workers, rounds=chosen.rounds)
        one = usable_photos(None, scratch / "one", 1, (640, 480))
        imports = import_microseconds(prep_images(one, scratch / "one_out", sizes))
    title = f"{chosen.count} photos to {sizes}, {chosen.workers} workers, whole command"
    show(report(title, runs, count=chosen.count, unit="photos", reference="prep images"))
    show(["imports of one `prep images`, seconds (the tracing adds to each):"])
    show(
        [
            f"  {package:10}  {microseconds / 1e6:.3f}"
            for package, microseconds in imports.most_common()
        ]
    )


if __name__ == "__main__":
    main()
