"""What grey, colour profiles and masks add to `prep images`, and what each takes by itself.

Whole runs over the same photos take turns: plain, with each option, with all of them. In the same
rounds and by as many threads each option's own work is done alone: luma and conversion to sRGB of
pictures that lie decoded in memory; masks read, decoded, checked, fitted and written. What an
option adds is its run less the plain one of the same round, in wall time and in the processors'.

Run: python -m tests.benchmarks.options_cost [--photos DIR]
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.inputs import claim_memory, empty, usable_photos
from tests.benchmarks.paired_inputs import CLASSES, Inputs, pair
from tests.benchmarks.peers import warm
from tests.benchmarks.rounds import Runs, alternate, paired_ratios, report, show
from tests.colour_profiles import adobe_rgb

if TYPE_CHECKING:
    from preprocess import ImageOptions
    from preprocess.report import Report

PLAIN = "plain"
LUMA, CONVERSION, MASKS = "luma alone", "conversion alone", "masks alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to run.

    Attributes:
        options: Of the image recipe.
        profiled: The photos carry a colour profile.
        masked: They have masks.
        own: What the options do, by the names of what is measured alone.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    profiled: bool = False
    masked: bool = False
    own: tuple[str, ...] = ()


WAYS: Mapping[str, Way] = {
    PLAIN: Way(),
    "grey": Way(options={"grayscale": True}, own=(LUMA,)),
    "profiles ignored": Way(options={"icc": "ignore"}, profiled=True),
    "profiles to sRGB": Way(profiled=True, own=(CONVERSION,)),
    "masks": Way(masked=True, own=(MASKS,)),
    "all three": Way(
        options={"grayscale": True}, profiled=True, masked=True, own=(LUMA, CONVERSION, MASKS)
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is measured."""

    photos: Path | None = None
    count: int = 150
    photo_size: tuple[int, int] = (2048, 1536)
    sizes: tuple[int, ...] = (512, 1024)
    workers: int = 2
    rounds: int = 9


def prepare(setting: Setting, scratch: Path) -> Inputs:
    """Copy or paint the photos, and make of each one with a profile and a mask of its size."""
    photos = usable_photos(setting.photos, scratch, setting.count, setting.photo_size)
    return pair(photos, scratch)


def _image_options(setting: Setting, way: Way, inputs: Inputs) -> "ImageOptions":
    from preprocess import ImageOptions

    options = dict(way.options)
    if way.masked:
        options |= {"masks": inputs.masks, "mask_classes": CLASSES}
    return ImageOptions(sizes=tuple((size, size) for size in setting.sizes), **options)


def run_way(setting: Setting, way: Way, inputs: Inputs, out: Path) -> "Report":
    """Do the whole job one way."""
    from preprocess import RunOptions, images_to_shards

    source = inputs.profiled if way.profiled else inputs.photos
    run = RunOptions(workers=setting.workers, backend="threading")
    return images_to_shards(source, out, _image_options(setting, way, inputs), run)


def check(setting: Setting, way: Way, done: "Report") -> None:
    """Refuse to measure what is not what it is named for.

    Raises:
        RuntimeError: A photo is missing, is not converted or should not be, or has no mask.
    """
    from loaders import open_dataset

    dataset = open_dataset(done.out, size=setting.sizes[0])
    found = {
        "photos": len(dataset),
        "profiles": dict(done.tallies),
        "channels": dataset[0]["image"].shape[0],
        "masks": "mask" in dataset[0],
    }
    wanted = {
        "photos": setting.count,
        "profiles": {"icc_converted": (setting.count,)} if CONVERSION in way.own else {},
        "channels": 1 if LUMA in way.own else 3,
        "masks": way.masked,
    }
    if found != wanted:
        raise RuntimeError(f"{done.out}: {found} instead of {wanted}")


class Alone:
    """Does what one option does, on all photos, by as many threads as a run has.

    Args:
        setting: What is measured.
        inputs: The photos; all of them are held decoded.
        scratch: Where masks are written.
    """

    def __init__(self, setting: Setting, inputs: Inputs, scratch: Path) -> None:
        from preprocess import RunOptions
        from preprocess.images.decode import decode_image
        from preprocess.images.prepare import plan_images

        self._setting, self._inputs, self._scratch = setting, inputs, scratch
        options = _image_options(setting, WAYS["masks"], inputs)
        plan = plan_images(inputs.photos, scratch / "none", options, RunOptions())
        (self._items,) = plan.listing.splits.values()
        self._pictures = [
            decode_image((inputs.photos / item.key).read_bytes(), key=item.key)
            for item in self._items
        ]
        self._icc = adobe_rgb()

    def luma(self) -> None:
        """Convert what is cut out of each picture to grey."""
        from preprocess.images.resize import fit_geometry, to_luma

        def convert(share: int) -> None:
            for picture in self._pictures[share :: self._setting.workers]:
                height, width = picture.shape[:2]
                left, top, right, bottom = fit_geometry(width, height, (1, 1), "crop").source
                to_luma(picture[top:bottom, left:right])

        self._in_threads(convert)

    def conversion(self) -> None:
        """Convert each picture to sRGB."""
        from preprocess.images.profiles import to_srgb

        def convert(share: int) -> None:
            for picture in self._pictures[share :: self._setting.workers]:
                to_srgb(picture, self._icc, grey=False)

        self._in_threads(convert)

    def masks(self) -> None:
        """Read, decode, check, fit and write the mask of each photo, fsync included."""
        from loaders.format.row_writer import RowWriter
        from preprocess.images.masks import check_mask, fit_mask, read_mask
        from preprocess.images.policy import MAX_ITEM_NBYTES, MAX_PIXELS
        from preprocess.images.resize import fit_geometry
        from preprocess.item_contents import ItemFiles

        def bring_along(share: int) -> None:
            writers = {
                size: RowWriter(self._scratch / f"masks.{share}.{size}", b"")
                for size in self._setting.sizes
            }
            limits = {"max_pixels": MAX_PIXELS, "max_nbytes": MAX_ITEM_NBYTES}
            step = self._setting.workers
            files = ItemFiles(self._inputs.masks)
            mine = zip(self._items[share::step], self._pictures[share::step], strict=True)
            for item, picture in mine:
                height, width = picture.shape[:2]
                mask = read_mask(files, item, self._inputs.masks, **limits)
                check_mask(mask, (width, height), classes=CLASSES, padding=255, depth=8)
                for size, writer in writers.items():
                    placement = fit_geometry(width, height, (size, size), "crop")
                    writer.append(fit_mask(mask, (width, height), placement, 255)[None])
            for writer in writers.values():
                writer.finish(b"", b"")

        self._in_threads(bring_along)

    def _in_threads(self, work: Callable[[int], None]) -> None:
        with ThreadPoolExecutor(self._setting.workers) as pool:
            list(pool.map(work, range(self._setting.workers)))


def _counted(call: Callable[[], object], seconds: list[float]) -> None:
    """Call, and keep the time that the processors took."""
    begin = time.process_time()
    call()
    seconds.append(time.process_time() - begin)


def measure(setting: Setting, inputs: Inputs, scratch: Path) -> tuple[Runs, Runs]:
    """Run in turns, everything imported; each finds memory for its bytes ready.

    Returns:
        Seconds of wall time and of the processors' time, by name, in the order of the rounds.
    """
    warm("ours")
    out = scratch / "out"
    alone = Alone(setting, inputs, scratch)
    calls: dict[str, Callable[[], object]] = {
        name: partial(run_way, setting, way, inputs, out) for name, way in WAYS.items()
    }
    calls |= {LUMA: alone.luma, CONVERSION: alone.conversion, MASKS: alone.masks}
    for way in WAYS.values():
        check(setting, way, run_way(setting, way, inputs, out))
        empty(out)

    def make_ready() -> None:
        empty(out)
        claim_memory(setting.count * sum(4 * size**2 for size in setting.sizes))

    spent: Runs = {name: [] for name in calls}
    contenders = {name: partial(_counted, call, spent[name]) for name, call in calls.items()}
    return alternate(contenders, setting.rounds, between=make_ready), spent


def added(runs: Runs, name: str, count: int) -> list[float]:
    """Return what a way adds to the plain run of the same round, in ms a photo."""
    return [1000 * (a - b) / count for a, b in zip(runs[name], runs[PLAIN], strict=True)]


def own(runs: Runs, name: str, count: int) -> list[float]:
    """Return what a way's options take alone, in ms a photo of each round."""
    parts = [runs[part] for part in WAYS[name].own]
    return [1000 * sum(seconds) / count for seconds in zip(*parts, strict=True)]


def table(title: str, runs: Runs, count: int) -> list[str]:
    """Write what each way adds and what it takes alone, as lines of text: medians and ranges."""
    head = ("", "time / plain", "added, ms a photo", "alone, ms a photo", "added / alone")
    rows = [head]
    for name in WAYS:
        more, alone = added(runs, name, count), own(runs, name, count)
        shares = [a / b for a, b in zip(more, alone, strict=False)]
        columns = (paired_ratios(runs, name, PLAIN), more, alone, shares)
        rows.append((name, *map(_median_and_range, columns)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return [title, *("  " + line.rstrip() for line in lines)]


def _median_and_range(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, help="folder of JPEG photos; painted ones if absent")
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    setting = Setting(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory() as scratch:
        inputs = prepare(setting, Path(scratch))
        wall, processors = measure(setting, inputs, Path(scratch))
    count = setting.count
    title = f"{count} photos to {setting.sizes}, {setting.workers} workers, imports outside"
    show(report(f"{title}: wall time", wall, count=count, unit="photos", reference=PLAIN))
    times = "the processors' time"
    show(report(f"{title}: {times}", processors, count=count, unit="photos", reference=PLAIN))
    show(table(f"{title}: wall time", wall, count))
    show(table(f"{title}: {times}", processors, count))


if __name__ == "__main__":
    main()
