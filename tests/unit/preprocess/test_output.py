"""The output folder: what prep takes, refuses and removes; files of others stay as they are."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from loaders.errors import ShardsError
from loaders.format.containers import CONTAINERS
from loaders.format.files import MANIFEST, REPORT, SKIPPED, WORK
from loaders.format.spec import Container, read_manifest
from preprocess.errors import NoSpaceError, OutputError
from preprocess.output import check_paths, claim
from preprocess.plan import RunOptions
from preprocess.removal import dataset_files
from preprocess.report import Report
from preprocess.room import check_room, saying_what_is_wanted
from preprocess.run import run
from preprocess.shard_writer import write_shard
from tests.recipes import (
    DigestRecipe,
    numbered_items,
    plan_digests,
    read_tree,
    row_nbytes,
    write_items,
)

CONTAINER_NAMES: tuple[Container, ...] = ("tensor", "zarr")


def prepare(
    source: Path,
    out: Path,
    *,
    container: Container = "tensor",
    overwrite: bool = False,
    recipe: DigestRecipe | None = None,
) -> Report:
    options = RunOptions(
        container=container, shard_nbytes=3 * row_nbytes(), workers=1, overwrite=overwrite
    )
    return run(plan_digests(source, out, options, recipe), options)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_items(tmp_path / "source", numbered_items(7, bad=(1,)))
    return tmp_path / "source"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    write_items(tmp_path / "other", {**numbered_items(11), **numbered_items(2, split="validation")})
    return tmp_path / "other"


FOREIGN = {"notes.txt": b"mine", "train/notes.txt": b"mine too", "holiday/photo.jpg": b"\xff\xd8"}


@pytest.mark.parametrize("container", CONTAINER_NAMES)
@pytest.mark.parametrize("old_container", CONTAINER_NAMES)
def test_overwriting_removes_what_prep_wrote_and_nothing_else(
    container: Container, old_container: Container, source: Path, other: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    prepare(other, out, container=old_container)
    write_items(out, FOREIGN)

    prepare(source, out, container=container, overwrite=True)

    prepare(source, tmp_path / "whole", container=container)
    assert read_tree(out) == read_tree(tmp_path / "whole") | FOREIGN


def test_the_files_of_a_dataset_are_all_that_is_there(source: Path, tmp_path: Path) -> None:
    for container in CONTAINER_NAMES:
        out = tmp_path / container
        prepare(source, out, container=container)
        named = {
            path.relative_to(out).as_posix() for path in dataset_files(out, read_manifest(out))
        }
        assert named | {MANIFEST, SKIPPED} == set(read_tree(out))


def test_overwriting_an_unfinished_run_removes_its_shards(
    source: Path, other: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    write_items(other, {"validation/001": b"fault"})
    with pytest.raises(RuntimeError, match="the recipe failed"):
        prepare(other, out, recipe=DigestRecipe(fault="exception"))
    assert (out / "train" / "00000.key.npy").exists()
    with pytest.raises(
        OutputError, match="an unfinished run of other input: train/001 had 6 bytes"
    ):
        prepare(source, out)
    write_items(out, FOREIGN)

    prepare(source, out, overwrite=True)

    prepare(source, tmp_path / "whole")
    assert read_tree(out) == read_tree(tmp_path / "whole") | FOREIGN


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"format":"prepshards","format_version":99}', b"\xff"]
)
def test_a_manifest_that_cannot_be_read_is_never_overwritten(
    data: bytes, overwrite: bool, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    prepare(source, out)
    (out / MANIFEST).write_bytes(data)
    before = read_tree(out)

    with pytest.raises(OutputError, match=r"out: holds a manifest\.json that cannot be read"):
        prepare(source, out, overwrite=overwrite)

    assert read_tree(out) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_dataset_of_other_input_or_options_is_refused_without_overwrite(
    overwrite: bool, source: Path, other: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    prepare(source, out)
    before = read_tree(out)
    if not overwrite:
        write_items(tmp_path / "fewer", numbered_items(6))
        with pytest.raises(OutputError, match="made from other input"):
            prepare(tmp_path / "fewer", out)
        with pytest.raises(OutputError, match="made with other options"):
            prepare(source, out, recipe=DigestRecipe(side=3))
        assert read_tree(out) == before
    else:
        prepare(other, out, overwrite=True)
        assert read_manifest(out).splits["train"].count == 11


@pytest.mark.parametrize("container", CONTAINER_NAMES)
def test_a_strangers_file_in_the_way_is_refused_by_name_and_stays(
    container: Container, source: Path, tmp_path: Path
) -> None:
    prepare(source, tmp_path / "whole", container=container)
    names = set(read_tree(tmp_path / "whole")) - {MANIFEST, SKIPPED}
    assert "zarr.json" in names or container == "tensor"
    for number, name in enumerate(sorted(names | {REPORT})):
        out = tmp_path / str(number)
        write_items(out, {name: b"mine"})
        for _ in range(2):
            with pytest.raises(OutputError, match="is there already, and prep did not write it"):
                prepare(source, out, container=container, overwrite=True)
            assert read_tree(out) == ({} if name == REPORT else {name: b"mine"})
            assert (out / name).read_bytes() == b"mine"
            assert not (out / WORK).exists()
        with pytest.raises(OutputError, match="not empty"):
            prepare(source, out, container=container)


def test_a_folder_that_holds_something_else_is_refused(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_items(out, FOREIGN)
    with pytest.raises(OutputError, match=r"out: not empty \(holds 'holiday'\)"):
        prepare(source, out)
    assert read_tree(out) == FOREIGN
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match=r"file: not a folder"):
        prepare(source, tmp_path / "file")
    with pytest.raises(OutputError, match=r"file/below/\.prep: cannot write: Not a dir"):
        prepare(source, tmp_path / "file" / "below")


def test_an_empty_folder_and_one_that_is_not_there_are_taken(source: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    prepare(source, tmp_path / "empty")
    prepare(source, tmp_path / "a" / "b" / "c")

    assert read_tree(tmp_path / "empty") == read_tree(tmp_path / "a" / "b" / "c")


def test_paths_that_overlap_are_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "source")
    for said, outs in {
        "is the source": ("source", "link", "source/../source"),
        "lies inside the source": ("source/out", "link/out"),
    }.items():
        for out in outs:
            with pytest.raises(OutputError, match=f"{tmp_path / out}: {said} {tmp_path}/source; "):
                check_paths(tmp_path / "source", tmp_path / out)
    with pytest.raises(OutputError, match="holds the source"):
        check_paths(tmp_path / "source", tmp_path)
    check_paths(tmp_path / "source", tmp_path / "source2")


def test_a_disk_without_room_is_refused_before_anything_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(total=10**12, used=10**12, free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)

    with pytest.raises(OutputError, match=r" MB to be written, 0 B free; make room"):
        prepare(source, tmp_path / "out")

    assert not (tmp_path / "out").exists()
    with pytest.raises(OutputError, match=r"1\.01 GB to be written"):
        check_room(tmp_path, 10**9)
    monkeypatch.undo()
    check_room(tmp_path, 0)
    prepare(source, tmp_path / "out")


def test_overwriting_without_room_leaves_the_old_dataset_as_it_was(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(source, tmp_path / "out")
    before = read_tree(tmp_path / "out")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(OutputError, match="to be written, 0 B free"):
        prepare(source, tmp_path / "out", overwrite=True)
    assert read_tree(tmp_path / "out") == before


def test_an_input_file_of_the_same_size_and_another_time_is_another_input(
    source: Path, tmp_path: Path
) -> None:
    prepare(source, tmp_path / "out")
    first = next(path for path in sorted(source.rglob("*")) if path.is_file())
    os.utime(first, ns=(5, 5))
    with pytest.raises(OutputError, match="changed since this dataset was made: train/000 was"):
        prepare(source, tmp_path / "out")
    for name in ("report.json", "items.jsonl"):  # no parts of the dataset
        (tmp_path / "out" / name).unlink()
    assert prepare(source, tmp_path / "out").backend == ""


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_a_dataset_with_a_damaged_shard_is_not_taken_for_complete(
    source: Path, tmp_path: Path, damage: str
) -> None:
    prepare(source, tmp_path / "out")
    whole = read_tree(tmp_path / "out")
    shard = tmp_path / "out" / "train" / "00000.key.npy"
    if damage == "missing":
        shard.unlink()
    else:
        os.truncate(shard, 5)
    with pytest.raises(OutputError, match=r"00000\.key\.npy: .*--overwrite, which prepares"):
        prepare(source, tmp_path / "out")
    prepare(source, tmp_path / "out", overwrite=True)
    assert read_tree(tmp_path / "out") == whole


def test_a_worker_whose_run_lost_the_folder_writes_nothing(source: Path, tmp_path: Path) -> None:
    options = RunOptions(shard_nbytes=10**6)
    plan = plan_digests(source, tmp_path / "out", options)
    held = claim(plan, overwrite=False)
    task = replace(next(plan.tasks()), owner=held.owner)
    held.release(finished=False)
    other = claim(plan, overwrite=False)
    with pytest.raises(OutputError, match="taken by another run"):
        write_shard(task)
    assert not list((tmp_path / "out").glob("train/*"))
    assert write_shard(replace(task, owner=other.owner)).count
    other.release(finished=True)


def test_an_empty_folder_of_the_user_stays_when_a_run_fails(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    with pytest.raises(OutputError, match="to be written"):
        prepare(source, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_named(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o500)

    with pytest.raises(OutputError, match=r"out/\.prep: cannot write: Permission denied"):
        prepare(source, tmp_path / "out")


def test_a_receipt_that_names_a_file_outside_removes_nothing(
    source: Path, other: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    write_items(other, {"validation/001": b"fault"})
    with pytest.raises(RuntimeError, match="the recipe failed"):
        prepare(other, out, recipe=DigestRecipe(fault="exception"))
    (tmp_path / "precious").write_bytes(b"mine")
    path = out / WORK / "train.00000.receipt.json"
    receipt = json.loads(path.read_bytes())
    for outside in ("../precious", str(tmp_path / "precious"), "train/../../precious"):
        receipt["files"]["key"][0] = outside
        path.write_text(json.dumps(receipt))
        with pytest.raises(ShardsError, match="outside the dataset"):
            prepare(source, out, overwrite=True)
        assert (tmp_path / "precious").read_bytes() == b"mine"


def test_limiting_changes_whose_the_dataset_is(source: Path, tmp_path: Path) -> None:
    options = RunOptions()
    whole = plan_digests(source, tmp_path / "out", options)
    fewer = whole.listing.limited(3)

    assert fewer.count == 3
    assert fewer.fingerprint() != whole.listing.fingerprint()
    assert set(CONTAINERS) == set(CONTAINER_NAMES)


def test_a_disk_that_fills_up_says_what_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("preprocess.room.free_nbytes", lambda _: 5_000)
    with (
        pytest.raises(NoSpaceError, match=r"^full; about 3,020,000 bytes are still to be written$"),
        saying_what_is_wanted(tmp_path, lambda: 2_000_000),
    ):
        raise NoSpaceError("full")
    monkeypatch.setattr("preprocess.room.free_nbytes", lambda _: 5_000_000)
    with (
        pytest.raises(NoSpaceError, match=r"^full; .* more than the 3,020,000 bytes that were exp"),
        saying_what_is_wanted(tmp_path, lambda: 2_000_000),
    ):
        raise NoSpaceError("full")
