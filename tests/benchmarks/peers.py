"""What others would write instead: pools that decode, resize and save each picture.

Run as a script (`python -m tests.benchmarks.peers KERNEL SOURCE OUT`) it is a whole short job,
imports included. Nothing heavy is imported before it is needed.
"""

import argparse
import atexit
import multiprocessing
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

Pictures = list[Any]  # [side, side, 3] uint8 each

_HELD = ExitStack()  # settings for the life of the process
Kernel = Literal["ours", "pillow"]

# Runs in the virtual environment of img2dataset, which has none of our packages. Writes the seconds
# of one run over all files to a file (the resizer closes stdout for a while), imports, forks and
# first pictures outside. PNG level 0 is the nearest it has to uncompressed pixels.
IMG2DATASET = """
import io, multiprocessing, os, sys, time
from pathlib import Path
os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"
from img2dataset.resizer import Resizer
workers, out, sizes = int(sys.argv[1]), Path(sys.argv[2]), [int(s) for s in sys.argv[3].split(",")]
files = sorted(Path(sys.argv[4]).iterdir())
resizers = {size: Resizer(size, "center_crop", False, encode_format="png", encode_quality=0)
            for size in sizes}
def one(path):
    data = path.read_bytes()
    for size, resizer in resizers.items():
        image, _, _, _, _, error = resizer(io.BytesIO(data))
        if error is not None:
            raise RuntimeError(f"{path}: {error}")
        (out / f"{path.stem}.{size}.png").write_bytes(image)
with multiprocessing.get_context("fork").Pool(workers) as pool:
    pool.map(one, files[: 2 * workers], chunksize=1)
    begin = time.perf_counter()
    for _ in pool.imap_unordered(one, files, chunksize=4):
        pass
    seconds = time.perf_counter() - begin
Path(sys.argv[5]).write_text(repr(seconds))
"""


def pictures_ours(path: Path, sizes: Sequence[int]) -> Pictures:
    """Decode and resize one photo with the functions that the image recipe calls."""
    from preprocess.images.decode import decode_image
    from preprocess.images.resize import fit_sizes

    image = decode_image(path.read_bytes(), key=path.name)
    return list(fit_sizes(image, [(size, size) for size in sizes]))


def pictures_pillow(path: Path, sizes: Sequence[int]) -> Pictures:
    """Decode and resize one photo as most scripts do: Pillow, centre crop, bicubic."""
    import numpy as np
    from PIL import Image

    with Image.open(path) as opened:
        image = opened.convert("RGB")
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side))
    bicubic = Image.Resampling.BICUBIC
    return [np.asarray(square.resize((size, size), bicubic, reducing_gap=None)) for size in sizes]


KERNELS: dict[str, Callable[[Path, Sequence[int]], Pictures]] = {
    "ours": pictures_ours,
    "pillow": pictures_pillow,
}


def warm(kernel: Kernel) -> None:
    """Import what a kernel needs and keep its libraries at one thread: the pool has the cores."""
    if kernel == "ours":
        import preprocess.images.resize  # noqa: F401
        from preprocess.images.decoder_settings import decoder_settings

        _HELD.enter_context(decoder_settings())
        atexit.register(_HELD.close)
    else:
        import numpy as np  # noqa: F401
        from PIL import Image  # noqa: F401


def save_pictures(path: Path, *, kernel: Kernel, out: Path, sizes: tuple[int, ...]) -> None:
    """Prepare one photo and save each size as a file of its own."""
    import numpy as np

    for size, picture in zip(sizes, KERNELS[kernel](path, sizes), strict=True):
        np.save(out / f"{path.stem}.{size}.npy", picture)  # noqa: TID251 - the way peers write


class SavingPool:
    """A multiprocessing pool, started and warm, that saves pictures with `np.save`."""

    def __init__(self, kernel: Kernel, workers: int, sizes: tuple[int, ...]) -> None:
        self.kernel, self.sizes = kernel, sizes
        # Spawned: OpenCV's and torch's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self.pool = context.Pool(workers, initializer=warm, initargs=(kernel,))

    def run(self, files: Sequence[Path], out: Path) -> None:
        """Prepare every file into `out`."""
        out.mkdir(parents=True, exist_ok=True)
        save = partial(save_pictures, kernel=self.kernel, out=out, sizes=self.sizes)
        for _ in self.pool.imap_unordered(save, files, chunksize=4):
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *_: object) -> None:
        if exc_type is None:
            self.pool.close()
        else:
            self.pool.terminate()
        self.pool.join()


def main() -> None:
    """Prepare a folder from the command line, start-up included."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel", choices=sorted(KERNELS))
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    with SavingPool(chosen.kernel, chosen.workers, tuple(chosen.sizes)) as pool:
        pool.run(sorted(chosen.source.iterdir()), chosen.out)


if __name__ == "__main__":
    main()
