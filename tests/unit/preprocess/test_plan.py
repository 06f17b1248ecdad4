"""The plan: what it holds follows from the input and the options, and bad options are refused."""

import os
from pathlib import Path
from typing import Any

import pytest

from preprocess.plan import RunOptions, plan_run
from tests.recipes import (
    DigestRecipe,
    list_items,
    numbered_items,
    plan_digests,
    row_nbytes,
    write_items,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    items = {**numbered_items(7), **numbered_items(2, split="validation")}
    write_items(tmp_path / "source", items)
    return tmp_path / "source"


def test_every_item_lies_in_exactly_one_task_in_order(source: Path, tmp_path: Path) -> None:
    for per_shard in (1, 2, 3, 7, 8):
        options = RunOptions(shard_nbytes=per_shard * row_nbytes())
        plan = plan_digests(source, tmp_path / "out", options)
        tasks = list(plan.tasks())
        assert [item for task in tasks for item in task.items] == [
            item for items in plan.listing.splits.values() for item in items
        ]
        assert all(len(task.items) == task.capacity for task in tasks[:-2] if task.index == 0)
        assert plan.nbytes == sum(task.nbytes for task in tasks)


def test_a_shard_holds_at_least_one_sample(source: Path, tmp_path: Path) -> None:
    plan = plan_digests(source, tmp_path / "out", RunOptions(shard_nbytes=1))

    assert plan.capacities == {"train": 1, "validation": 1}
    assert len(list(plan.tasks())) == 9


def test_hashes_change_with_all_that_changes_bytes_and_with_nothing_else(
    source: Path, tmp_path: Path
) -> None:
    def hashes(recipe: DigestRecipe, out: str = "out", **options: Any) -> tuple[str, str]:
        plan = plan_digests(source, tmp_path / out, RunOptions(**options), recipe)
        return plan.recipe_hash, plan.run_hash

    usual = hashes(DigestRecipe())
    same = [
        hashes(DigestRecipe(), workers=7, backend="loky", max_skipped=3, overwrite=True),
        hashes(DigestRecipe(), out="elsewhere"),
    ]
    changed = [
        hashes(DigestRecipe(side=3)),
        hashes(DigestRecipe(dtype="uint16")),
        hashes(DigestRecipe(), container="zarr"),
        hashes(DigestRecipe(), shard_nbytes=1000),
    ]

    assert same == [usual, usual]
    assert len({usual, *changed}) == 5
    assert len({run for _, run in [usual, *changed]}) == 5

    os.utime(source / "train" / "003", ns=(1, 1))
    assert hashes(DigestRecipe())[0] == usual[0]
    assert hashes(DigestRecipe())[1] != usual[1]


def test_a_split_without_items_has_no_shard(source: Path, tmp_path: Path) -> None:
    listing = list_items(source)
    listing.splits["test"] = ()
    recipes = dict.fromkeys(listing.splits, DigestRecipe())

    plan = plan_run(listing, tmp_path / "out", recipes, RunOptions())

    assert plan.capacities["test"] == 1
    assert {task.split for task in plan.tasks()} == {"train", "validation"}


@pytest.mark.parametrize(
    "options",
    [{"container": "hdf5"}, {"shard_nbytes": 0}, {"workers": 0}, {"max_skipped": -1}],
)
def test_options_outside_their_range_are_refused_by_name(options: dict[str, Any]) -> None:
    name, value = next(iter(options.items()))

    with pytest.raises(ValueError, match=f"{name}={value!r}: expected"):
        RunOptions(**options)


def test_workers_are_the_usable_cores_unless_named() -> None:
    assert RunOptions(workers=3).worker_count() == 3
    assert RunOptions().worker_count() >= 1
