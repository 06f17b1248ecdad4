"""The engine: what a run leaves does not depend on how it ran, and a bad recipe ends it clearly."""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from loaders.errors import FormatError, ShardsError
from loaders.format.containers import CONTAINERS
from loaders.format.files import MANIFEST, REPORT, SKIPPED, WORK, checksum
from loaders.format.spec import Container, read_manifest
from preprocess.errors import SourceError
from preprocess.plan import RunOptions
from preprocess.report import Report
from preprocess.run import run
from tests.recipes import (
    DigestRecipe,
    numbered_items,
    plan_digests,
    read_tree,
    row_nbytes,
    write_items,
)

BACKENDS = ["threading", "loky"]


def prepare(
    source: Path,
    out: Path,
    *,
    per_shard: int = 3,
    container: Container = "tensor",
    backend: str = "auto",
    workers: int = 2,
    recipe: DigestRecipe | None = None,
    overwrite: bool = False,
) -> Report:
    options = RunOptions(
        container=container,
        shard_nbytes=per_shard * row_nbytes(recipe),
        workers=workers,
        backend=backend,
        overwrite=overwrite,
    )
    return run(plan_digests(source, out, options, recipe), options)


def rows_of(out: Path) -> dict[str, list[tuple[bytes, ...]]]:
    """Return the samples of a dataset, split by split, whatever its shards."""
    manifest = read_manifest(out)
    layout = CONTAINERS[manifest.container]
    found = {}
    for name, split in manifest.splits.items():
        columns = []
        for field in split.fields:
            rows: list[bytes] = []
            for index, count in enumerate(split.counts):
                if count:
                    path = layout.shard_path(out, name, index, field, split.capacity)
                    opened = layout.open_rows(path, field, count, split.capacity)
                    rows += [row.tobytes() for row in opened]
            columns.append(rows)
        found[name] = list(zip(*columns, strict=True))
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    items = numbered_items(20, bad=(3, 9, 10, 11)) | {"train/005": b"zero"}
    write_items(
        tmp_path / "source",
        {**items, **numbered_items(1, split="validation"), **numbered_items(4, split="test")},
    )
    return tmp_path / "source"


@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_the_bytes_do_not_depend_on_workers_or_backend(
    container: Container, source: Path, tmp_path: Path
) -> None:
    prepare(source, tmp_path / "one", container=container, workers=1)
    expected = read_tree(tmp_path / "one")
    for backend in BACKENDS:
        for workers in (1, 2, 5):
            out = tmp_path / f"{backend}{workers}"
            prepare(source, out, container=container, backend=backend, workers=workers)
            assert read_tree(out) == expected


def test_the_samples_do_not_depend_on_shard_size_or_container(source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "one", per_shard=1)
    expected = rows_of(tmp_path / "one")
    assert [len(rows) for rows in expected.values()] == [16, 1, 4]
    first = read_manifest(tmp_path / "one")
    for container in CONTAINERS:
        for per_shard in (1, 2, 7, 1000):
            out = tmp_path / f"{container}{per_shard}"
            prepare(source, out, per_shard=per_shard, container=container)  # type: ignore[arg-type]
            assert rows_of(out) == expected
            for name, split in read_manifest(out).splits.items():
                assert split.statistics == first.splits[name].statistics
                assert split.class_counts == first.splits[name].class_counts


def test_the_manifest_describes_what_is_there(source: Path, tmp_path: Path) -> None:
    report = prepare(source, tmp_path / "out")
    manifest = read_manifest(tmp_path / "out")

    split = manifest.splits["train"]
    assert split.counts == (3, 2, 3, 0, 3, 3, 2)
    assert (split.items, split.capacity) == (20, 3)
    for field in split.fields:
        files = split.files[field.name]
        for index, (nbytes, digits) in enumerate(zip(files.nbytes, files.crc32c, strict=True)):
            path = CONTAINERS["tensor"].shard_path(tmp_path / "out", "train", index, field, 3)
            if split.counts[index]:
                assert (path.stat().st_size, checksum(path)) == (nbytes, digits)
            else:
                assert not path.exists()
                assert (nbytes, digits) == (0, "00000000")
    assert report.samples == {"train": 16, "validation": 1, "test": 4}
    assert report.made == 21
    assert list(report.skipped) == [(f"train/{index:03d}", "it is bad") for index in (3, 9, 10, 11)]
    lines = (tmp_path / "out" / SKIPPED).read_text().splitlines()
    assert [json.loads(line)["key"] for line in lines] == [key for key, _ in report.skipped]
    assert manifest.skipped == 4
    assert report.too_many_skipped
    assert not (tmp_path / "out" / WORK).exists()


@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_a_split_and_a_shard_without_any_sample_are_kept_as_empty(
    container: Container, tmp_path: Path
) -> None:
    items = {
        **numbered_items(6, bad=(2, 3)),
        **numbered_items(3, split="validation", bad=(0, 1, 2)),
        **numbered_items(1, split="test"),
    }
    write_items(tmp_path / "source", items)

    prepare(tmp_path / "source", tmp_path / "out", per_shard=2, container=container)

    manifest = read_manifest(tmp_path / "out")
    assert manifest.splits["train"].counts == (2, 0, 2)
    assert manifest.splits["validation"].counts == (0, 0)
    assert manifest.splits["validation"].statistics["image_4"].pixels == 0
    assert manifest.splits["test"].counts == (1,)
    assert [len(rows) for rows in rows_of(tmp_path / "out").values()] == [4, 0, 1]


@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_when_no_item_can_be_read_the_cause_is_listed_and_nothing_else_is_left(
    container: Container, tmp_path: Path
) -> None:
    write_items(tmp_path / "source", numbered_items(5, bad=range(5)))
    for _ in range(2):
        with pytest.raises(SourceError, match=r"none of 5 items .* train/000: it is bad"):
            prepare(tmp_path / "source", tmp_path / "out", container=container)
        assert os.listdir(tmp_path / "out") == [SKIPPED]

    write_items(tmp_path / "source", numbered_items(5))
    prepare(tmp_path / "source", tmp_path / "out", container=container)
    prepare(tmp_path / "source", tmp_path / "whole", container=container)
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "whole")


def test_a_complete_dataset_is_left_as_it_is(source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}

    report = prepare(source, tmp_path / "out")

    assert (report.made, report.backend) == (0, "")
    assert report.samples["train"] == 16
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


def test_a_complete_dataset_still_says_what_was_skipped(source: Path, tmp_path: Path) -> None:
    first = prepare(source, tmp_path / "out")

    again = prepare(source, tmp_path / "out")

    assert list(again.skipped) == list(first.skipped)
    assert again.too_many_skipped


FAULTS = {
    "wrong dtype": "field image_4 is float32 (1, 2, 4, 3), promised was uint8 (1, 2, 4, 3)",
    "wrong shape": "field image_4 is uint8 (1, 1, 4, 3), promised was uint8 (1, 2, 4, 3)",
    "missing field": "fields ['image_4', 'key'], promised were ['image_4', 'key', 'label']",
    "extra field": "fields ['image_4', 'key', 'label', 'mask'], promised were",
    "a list": "field image_4 is no array: list",
    "label out of range": "label 3 and only 3 classes",
    "too few results": "1 results for 2 items",
    "too many results": "more results than the 2 items",
    "exception": "OSError: [Errno 5] the recipe failed",
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_recipe_that_breaks_its_promise_ends_the_run_with_one_error_that_names_the_item(
    fault: str, backend: str, tmp_path: Path
) -> None:
    write_items(tmp_path / "source", {**numbered_items(8), "train/005": b"fault"})
    out = tmp_path / "out"
    for tried in (backend, "threading"):
        with pytest.raises(RuntimeError) as caught:
            prepare(
                tmp_path / "source",
                out,
                per_shard=2,
                backend=tried,
                recipe=DigestRecipe(fault=fault),
            )
        message = str(caught.value)
        assert message.startswith("recipe images: train/005: ")
        assert FAULTS[fault] in message
        assert not list(out.rglob("tmp-*"))
        assert not (out / MANIFEST).exists()

    prepare(tmp_path / "source", out, per_shard=2, backend=backend)
    prepare(tmp_path / "source", tmp_path / "whole", per_shard=2)
    assert read_tree(out) == read_tree(tmp_path / "whole")


def test_a_worker_process_that_is_killed_ends_the_run_with_one_error(tmp_path: Path) -> None:
    write_items(tmp_path / "source", {**numbered_items(8), "train/005": b"die once"})
    recipe = DigestRecipe(block=str(tmp_path / "mark"))

    with pytest.raises(ShardsError, match=r"killed while it prepared .*train/005.*memory ran out"):
        prepare(tmp_path / "source", tmp_path / "out", per_shard=2, backend="loky", recipe=recipe)

    prepare(tmp_path / "source", tmp_path / "out", per_shard=2, recipe=recipe)
    prepare(tmp_path / "source", tmp_path / "whole", per_shard=2, recipe=recipe)
    assert read_tree(tmp_path / "out") == read_tree(tmp_path / "whole")


def test_no_thread_of_a_pool_of_processes_lives_on_after_an_error(tmp_path: Path) -> None:
    write_items(tmp_path / "source", {**numbered_items(8), "train/005": b"fault"})
    recipe = DigestRecipe(fault=next(iter(FAULTS)))
    for number in range(8):  # one in three was left, and could be cut off at the process's end
        out = tmp_path / f"out{number}"
        before = set(threading.enumerate())
        with pytest.raises(RuntimeError):
            prepare(tmp_path / "source", out, per_shard=2, backend="loky", recipe=recipe)
        assert set(threading.enumerate()) <= before


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    write_items(tmp_path / "source", {**numbered_items(8), "train/007": b"fault"})
    with pytest.raises(RuntimeError, match="the recipe failed"):
        prepare(
            tmp_path / "source",
            tmp_path / "out",
            per_shard=2,
            workers=1,
            recipe=DigestRecipe(fault="exception"),
        )
    # One of the two shards in work at a time may or may not be done: the first two are.
    assert {f"train.0000{index}.receipt.json" for index in (0, 1)} <= set(
        os.listdir(tmp_path / "out" / WORK)
    )
    return tmp_path


@pytest.mark.parametrize("damage", ["removed", "cut", "receipt removed"])
def test_a_shard_that_is_not_as_its_receipt_says_is_made_again(
    damage: str, unfinished: Path
) -> None:
    shard = unfinished / "out" / "train" / "00001.image_4.npy"
    if damage == "removed":
        shard.unlink()
    elif damage == "cut":
        shard.write_bytes(shard.read_bytes()[:-1])
    else:
        (unfinished / "out" / WORK / "train.00001.receipt.json").unlink()

    prepare(unfinished / "source", unfinished / "out", per_shard=2)

    prepare(unfinished / "source", unfinished / "whole", per_shard=2)
    assert read_tree(unfinished / "out") == read_tree(unfinished / "whole")


def mutated_receipts(receipt: dict[str, Any]) -> dict[str, bytes]:
    values: dict[str, Any] = {f"without {key}": {**receipt} for key in receipt}
    for key, value in receipt.items():
        del values[f"without {key}"][key]
        for wrong in ("text", 1.5, [[1]], {"a": 1}, -1, True):
            if type(wrong) is not type(value):
                values[f"{key} is {wrong}"] = {**receipt, key: wrong}
    values["too many"] = {**receipt, "count": 3}
    files = receipt["files"]
    outside = {**files, "label": ["../../outside", *files["label"][1:]]}
    values["outside"] = {**receipt, "files": outside}
    values["other contents"] = {**receipt, "contents": [["0123456g"], [""]]}
    values["few contents"] = {**receipt, "contents": [[""]]}
    del values["without contents"]  # those of earlier versions have none
    values["two fields"] = {**receipt, "files": dict(list(files.items())[:2])}
    found = {name: json.dumps(value).encode() for name, value in values.items()}
    return {**found, "cut": json.dumps(receipt).encode()[:-9], "empty": b""}


def others(out: Path) -> dict[str, bytes]:
    """Read all but the receipt in question and the name of who is at work."""
    mine = f"{WORK}/owner"
    return {k: v for k, v in read_tree(out).items() if "00001.receipt" not in k and k != mine}


def test_a_damaged_receipt_is_named_and_nothing_is_touched(unfinished: Path) -> None:
    path = unfinished / "out" / WORK / "train.00001.receipt.json"
    whole = json.loads(path.read_bytes())
    before = others(unfinished / "out")
    for what, data in mutated_receipts(whole).items():
        path.write_bytes(data)
        with pytest.raises(FormatError, match=r"train\.00001\.receipt\.json") as caught:
            prepare(unfinished / "source", unfinished / "out", per_shard=2)
        assert str(caught.value), what
        assert others(unfinished / "out") == before

    path.unlink()
    prepare(unfinished / "source", unfinished / "out", per_shard=2)
    prepare(unfinished / "source", unfinished / "whole", per_shard=2)
    assert read_tree(unfinished / "out") == read_tree(unfinished / "whole")


def test_a_work_folder_left_beside_a_manifest_is_cleared(source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "out")
    (tmp_path / "out" / WORK).mkdir()
    (tmp_path / "out" / WORK / "run.json").write_text('"0"')

    prepare(source, tmp_path / "out")

    assert not (tmp_path / "out" / WORK).exists()


def test_a_report_names_the_tools_and_no_shard(source: Path, tmp_path: Path) -> None:
    prepare(source, tmp_path / "out")

    report = json.loads((tmp_path / "out" / REPORT).read_bytes())

    assert report["samples_made"] == 21
    assert report["skipped_by_reason"] == {"it is bad": 4}
    assert report["tools"]["python"] == ".".join(map(str, sys.version_info[:3]))
