"""An append that is stopped anywhere: the dataset is as it was or as it is to be, never between."""

from pathlib import Path

import pytest

from loaders.format.files import WORK
from loaders.format.spec import Container, read_manifest
from preprocess.check import check_dataset
from preprocess.plan import RunOptions
from preprocess.run import run
from tests.crash.append_bomb import SIDE
from tests.crash.children import output_of
from tests.recipes import DigestRecipe, numbered_items, plan_digests, row_nbytes, write_items


def prepare(container: Container, folder: Path) -> None:
    """Write a dataset of a part of the items, then the other items too, of two splits."""
    items = {
        **numbered_items(8, bad=(1, 6)),
        **numbered_items(3, split="validation", bad=(0,)),
    }
    before = ("train/000", "train/001", "train/003", "train/005", "validation/001")
    write_items(folder / "source", {name: items[name] for name in before})
    recipe = DigestRecipe(side=SIDE)
    options = RunOptions(container=container, shard_nbytes=3 * row_nbytes(recipe), workers=1)
    run(plan_digests(folder / "source", folder / "before", options, recipe), options)
    write_items(folder / "source", {**items, **numbered_items(1, split="test")})


@pytest.mark.parametrize(
    ("container", "stride"),
    [
        ("tensor", 5),
        ("zarr", 13),
        *(pytest.param(c, 1, marks=pytest.mark.thorough) for c in ("tensor", "zarr")),
    ],
)
def test_an_append_that_is_killed_at_any_call_leaves_one_whole_dataset_and_can_be_finished(
    container: Container, stride: int, tmp_path: Path
) -> None:
    prepare(container, tmp_path)

    calls = output_of("append_bomb", container, stride, tmp_path / "source", tmp_path)

    assert int(calls) > 60


@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_a_disk_that_is_full_at_any_byte_leaves_the_dataset_as_it_was(
    container: Container, tmp_path: Path
) -> None:
    prepare(container, tmp_path)
    sizes = (0, 1, 64, 127, 200, 400, 800, 1200)

    output_of("append_bomb", container, 1, tmp_path / "source", tmp_path, *sizes)


@pytest.mark.parametrize("nth", [45, 60, 75])
def test_what_a_killed_append_leaves_makes_room_for_one_of_more_items(
    nth: int, tmp_path: Path
) -> None:
    prepare("tensor", tmp_path)
    source, out = tmp_path / "source", tmp_path / "before"

    output_of("append_once", nth, source, out)
    left = sorted(path.name for path in (out / WORK).glob("*.receipt.json"))
    write_items(source, {"train/0005": b"item of another length"})
    output_of("append_once", 0, source, out)

    assert left
    assert not check_dataset(out, full=True).problems
    assert not (out / WORK).exists()
    manifest = read_manifest(out)
    assert {name: split.count for name, split in manifest.splits.items()} == {
        "train": 7,
        "validation": 2,
        "test": 1,
    }
