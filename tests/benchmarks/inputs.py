"""Photos and processes that the benchmarks work on."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SUFFIXES = {".jpg", ".jpeg", ".png"}
PAINTED = 12  # distinct pictures of a painted set; the rest are copies under other names


def usable_photos(folder: Path | None, scratch: Path, count: int, size: tuple[int, int]) -> Path:
    """Give a folder of exactly `count` photos: copies of given ones, or painted ones.

    Args:
        folder: Real photos, at least `count` of them in its whole tree; None paints some.
        scratch: Where the folder is made.
        count: Photos wanted.
        size: Width and height of painted photos, in pixels.
    """
    chosen = scratch / f"photos_{count}"
    chosen.mkdir(parents=True)
    if folder is None:
        _paint(chosen, count, size)
        return chosen
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES)
    if len(found) < count:
        raise ValueError(f"{folder}: {len(found)} photos, {count} are needed")
    for index, path in enumerate(found[:: len(found) // count][:count]):
        shutil.copyfile(path, chosen / f"{index:05d}{path.suffix.lower()}")
    return chosen


def _paint(folder: Path, count: int, size: tuple[int, int]) -> None:
    from preprocess.demo.scenes import PAINTERS, paint_photo, paint_tiles
    from tests.synthetic import encode_image

    tiles = paint_tiles(0, size)
    encoded = [
        encode_image(paint_photo(tiles, list(PAINTERS)[i % len(PAINTERS)], (0, i), size), ".jpg")
        for i in range(min(count, PAINTED))
    ]
    for index in range(count):
        (folder / f"{index:05d}.jpg").write_bytes(encoded[index % len(encoded)])


def prep_images(source: Path, out: Path, sizes: Sequence[int], *options: str) -> list[str]:
    """Make the command line of `prep images`, as its console script would run it."""
    script = "from preprocess.cli import main; main()"
    arguments = ["images", str(source), str(out), "--sizes", *map(str, sizes), *options]
    return [sys.executable, "-c", script, *arguments]


def run_command(command: Sequence[str]) -> str:
    """Run a command to its end and give its stderr; fail with its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stderr


def empty(folder: Path) -> None:
    """Remove a folder and what it holds; flush, so that no run pays for another's writes."""
    shutil.rmtree(folder, ignore_errors=True)
    os.sync()


def claim_memory(nbytes: int) -> None:
    """Touch so much memory and free it: what runs next finds it ready.

    A virtual machine hands free memory back to its host within seconds, and asks for each page
    again when it is next written to: that took up to a sixth of a run that follows one which
    writes nothing, and nothing of a run that follows a writing one.
    """
    import numpy as np

    np.ones(nbytes, np.uint8)
