"""One flipped bit, in any file that a dataset promises, is found by a full check, and named."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from loaders.errors import FormatError
from preprocess.check import check_dataset
from tests.small_datasets import KINDS, Made, flip_bit

CONTAINERS = ["tensor", "zarr"]


def flips(out: Path, count: int, seed: str) -> Iterator[tuple[Path, bool]]:
    """Flip one bit after another, each in the next file; yield which, and whether it was found."""
    random_ = random.Random(seed)
    not_promised = {"report.json", "skipped.jsonl", "items.jsonl"}
    files = [path for path in sorted(out.rglob("*")) if path.is_file()]
    files = [path for path in files if path.stat().st_size and path.name not in not_promised]
    for number in range(count):
        path = files[number % len(files)]
        bit = random_.randrange(8 * path.stat().st_size)
        flip_bit(path, bit)
        try:
            problems = check_dataset(out, full=True, workers=1).problems
        except FormatError as error:
            problems = (str(error),)
        flip_bit(path, bit)
        yield path, any(problem.startswith(f"{path}:") for problem in problems)


def find_all(made: Made, folder: Path, kind: str, container: str, count: int) -> None:
    out = Path(shutil.copytree(made(kind, container)[1], folder / "out"))
    assert not [path for path, found in flips(out, count, f"{kind} {container}") if not found]
    assert check_dataset(out, full=True).problems == ()


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_flipped_bit_is_found_and_its_file_named(
    kind: str, container: str, made: Made, tmp_path: Path
) -> None:
    find_all(made, tmp_path, kind, container, 40)


@pytest.mark.thorough
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_flipped_bits_are_found(
    kind: str, container: str, made: Made, tmp_path: Path
) -> None:
    find_all(made, tmp_path, kind, container, 850)  # 10,000 over all kinds
