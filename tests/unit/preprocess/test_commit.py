"""The end of a run: the manifest comes last, and what cannot be committed leaves the shards."""

from pathlib import Path

import pytest

from loaders.format.files import MANIFEST, REPORT, SKIPPED, WORK
from loaders.format.spec import Container, read_manifest
from preprocess.errors import OutputError, SampleError
from preprocess.plan import RunOptions, plan_run
from preprocess.run import run
from tests.recipes import (
    DigestRecipe,
    list_items,
    numbered_items,
    plan_digests,
    read_tree,
    row_nbytes,
    write_items,
)


def test_what_cannot_be_committed_leaves_the_shards_for_the_same_command(tmp_path: Path) -> None:
    write_items(tmp_path / "source", numbered_items(5))
    options = RunOptions(shard_nbytes=2 * row_nbytes(), workers=1)
    plan = plan_digests(tmp_path / "source", tmp_path / "out", options)
    (tmp_path / "out" / SKIPPED).mkdir(parents=True)  # where a file is to be

    with pytest.raises(OutputError, match=r"cannot write: Is a directory"):
        run(plan, options)

    assert not (tmp_path / "out" / MANIFEST).exists()
    assert len(list((tmp_path / "out" / WORK).glob("*.receipt.json"))) == 3
    (tmp_path / "out" / SKIPPED).rmdir()
    assert run(plan, options).made == 0
    run(plan_digests(tmp_path / "source", tmp_path / "whole", options), options)
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "whole")


def test_entries_that_were_never_items_are_listed_first(tmp_path: Path) -> None:
    write_items(tmp_path / "source", numbered_items(3, bad=(0,)))
    listing = list_items(tmp_path / "source")
    listed = type(listing)(
        root=listing.root,
        splits=listing.splits,
        classes=listing.classes,
        skipped=(SampleError("zz\udcff\n", "a symbolic link"),),
    )
    options = RunOptions(workers=1)
    recipes = dict.fromkeys(listed.splits, DigestRecipe())

    report = run(plan_run(listed, tmp_path / "out", recipes, options), options)
    again = run(plan_run(listed, tmp_path / "out", recipes, options), options)

    expected = [("zz\udcff\n", "a symbolic link"), ("train/000", "it is bad")]
    assert list(report.skipped) == list(again.skipped) == expected
    assert read_manifest(tmp_path / "out").skipped == 2


@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_a_split_without_items_is_described(container: Container, tmp_path: Path) -> None:
    write_items(tmp_path / "source", numbered_items(1))
    listing = list_items(tmp_path / "source")
    listing.splits["test"] = ()
    options = RunOptions(container=container, workers=1)
    recipes = dict.fromkeys(listing.splits, DigestRecipe())

    run(plan_run(listing, tmp_path / "out", recipes, options), options)

    split = read_manifest(tmp_path / "out").splits["test"]
    assert (split.items, split.counts, split.count) == (0, (), 0)
    assert split.statistics["image_4"].pixels == 0
    assert split.class_counts == (0, 0, 0)


@pytest.mark.parametrize("data", [b"{", b'{"key":1}\n', b"[]\n"])
def test_a_damaged_list_of_what_is_missing_is_named(data: bytes, tmp_path: Path) -> None:
    write_items(tmp_path / "source", numbered_items(3, bad=(0,)))
    options = RunOptions(workers=1)
    plan = plan_digests(tmp_path / "source", tmp_path / "out", options)
    run(plan, options)
    (tmp_path / "out" / SKIPPED).write_bytes(data)

    with pytest.raises(OutputError, match=r"skipped\.jsonl: the dataset is there"):
        run(plan, options)


def test_the_manifest_holds_nothing_of_this_run(tmp_path: Path) -> None:
    write_items(tmp_path / "source", numbered_items(3))
    options = RunOptions(workers=1)
    run(plan_digests(tmp_path / "source", tmp_path / "out", options), options)

    text = (tmp_path / "out" / MANIFEST).read_text()

    assert str(tmp_path) not in text
    assert (tmp_path / "out" / REPORT).exists()
