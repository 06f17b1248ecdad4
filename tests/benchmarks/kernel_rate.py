"""How fast `prep images` is when everything is imported and warm, and what its parts could do.

Contenders: our whole job; the recipe's decode and resize alone, results dropped (the limit); a
process pool with the same two calls and `np.save`; the same pool with Pillow; img2dataset's
resizer.

Run: python -m tests.benchmarks.kernel_rate [--photos DIR] [--img2dataset-python PYTHON]
"""

import argparse
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.inputs import claim_memory, empty, run_command, usable_photos
from tests.benchmarks.peers import IMG2DATASET, Kernel, SavingPool, pictures_ours, warm
from tests.benchmarks.rounds import Runs, alternate, report, show

if TYPE_CHECKING:
    from collections.abc import Callable

SAVING: dict[str, Kernel] = {
    "same kernel, np.save pool": "ours",
    "Pillow, np.save pool": "pillow",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is measured."""

    photos: Path | None = None
    count: int = 300
    photo_size: tuple[int, int] = (2048, 1536)
    sizes: tuple[int, ...] = (512, 1024)
    workers: int = 2
    backend: str = "threading"
    rounds: int = 5
    img2dataset_python: Path | None = None


def _ours(setting: Setting, source: Path, out: Path) -> None:
    from preprocess import ImageOptions, RunOptions, images_to_shards

    options = ImageOptions(sizes=tuple((size, size) for size in setting.sizes))
    run = RunOptions(workers=setting.workers, backend=setting.backend)
    images_to_shards(source, out, options, run)


def _kernel_alone(setting: Setting, files: list[Path]) -> None:
    with ThreadPoolExecutor(setting.workers) as pool:
        for _ in pool.map(lambda path: len(pictures_ours(path, setting.sizes)), files):
            pass


def _img2dataset(setting: Setting, source: Path, out: Path) -> float:
    out.mkdir(parents=True, exist_ok=True)
    sizes, seconds = ",".join(map(str, setting.sizes)), out / "seconds"
    command = [str(setting.img2dataset_python), "-c", IMG2DATASET, str(setting.workers)]
    run_command([*command, str(out), sizes, str(source), str(seconds)])
    return float(seconds.read_text())


def _make_ready(out: Path, nbytes: int) -> None:
    empty(out)
    claim_memory(nbytes)


def measure(setting: Setting, scratch: Path) -> Runs:
    """Run the contenders in turns, everything imported and every pool warm.

    Each has done all photos once before the rounds, and finds memory for their bytes ready.
    """
    source = usable_photos(setting.photos, scratch, setting.count, setting.photo_size)
    files, out = sorted(source.iterdir()), scratch / "out"
    warm("ours")
    _ours(setting, source, out)
    empty(out)
    contenders: dict[str, Callable[[], float | None]] = {
        "prep images": partial(_ours, setting, source, out),
        "decode + resize alone": partial(_kernel_alone, setting, files),
    }
    with ExitStack() as stack:
        for name, kernel in SAVING.items():
            pool = stack.enter_context(SavingPool(kernel, setting.workers, setting.sizes))
            pool.run(files, out)
            empty(out)
            contenders[name] = partial(pool.run, files, out)
        if setting.img2dataset_python is not None:
            contenders["img2dataset resizer"] = partial(_img2dataset, setting, source, out)
        nbytes = setting.count * sum(3 * size**2 for size in setting.sizes)
        return alternate(contenders, setting.rounds, between=partial(_make_ready, out, nbytes))


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, help="folder of photos; painted ones if absent")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--backend", default="threading")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--img2dataset-python", type=Path, help="a Python that has img2dataset")
    setting = Setting(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory() as scratch:
        runs = measure(setting, Path(scratch))
    title = (
        f"{setting.count} photos to {setting.sizes}, {setting.workers} workers, "
        f"{setting.backend}, imports outside"
    )
    show(report(title, runs, count=setting.count, unit="photos", reference="prep images"))


if __name__ == "__main__":
    main()
