"""`check_dataset` and `prep check`: every kind of damage is found and named."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from loaders.errors import FormatError, IncompleteError
from preprocess import check_dataset
from preprocess.cli import prep
from tests.synthetic import write_image_tree


@pytest.fixture
def dataset(dataset_path: Path, tmp_path: Path) -> Path:
    """Return a copy of a dataset, to be damaged."""
    return Path(shutil.copytree(dataset_path, tmp_path / "dataset"))


def shard_of(root: Path) -> Path:
    """Return the largest file: a shard of images."""
    return max((p for p in root.rglob("*") if p.is_file()), key=lambda p: (p.stat().st_size, p))


def check(root: Path, *options: str) -> Result:
    return CliRunner().invoke(prep, ["check", str(root), *options])


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def extend(path: Path) -> None:
    os.truncate(path, path.stat().st_size + 1)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def test_an_untouched_dataset_is_all_good(dataset: Path) -> None:
    for full in (False, True):
        report = check_dataset(dataset, full=full)
        assert (report.problems, report.foreign) == ((), ())
    result = check(dataset, "--full", "--workers", "2")
    assert result.exit_code == 0
    assert result.stdout.endswith("sizes and checksums: all good\n")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (remove, "missing"),
        (cut, "manifest says"),
        (extend, "manifest says"),
        (replace_by_folder, "not a regular file"),
        (replace_by_fifo, "not a regular file"),
    ],
)
def test_a_shard_of_another_size_or_kind_is_named(
    dataset: Path, damage: Callable[[Path], None], said: str
) -> None:
    shard = shard_of(dataset)
    damage(shard)
    result = check(dataset)
    assert result.exit_code == 1
    (problem, *_) = result.stdout.splitlines()
    assert problem.startswith(f"{shard}: ")
    assert said in problem
    assert result.stdout.endswith("sizes: 1 problem\n")


@pytest.mark.parametrize("position", [0, -1, 3000])
def test_one_flipped_bit_is_found_by_a_full_check(dataset: Path, position: int) -> None:
    shard = shard_of(dataset)
    flip(shard, position)
    assert check(dataset).exit_code == 0
    result = check(dataset, "--full")
    assert result.exit_code == 1
    assert f"{shard}: CRC-32C " in result.stdout


def test_every_bad_file_is_listed(dataset: Path) -> None:
    shards = sorted(p for p in dataset.rglob("*") if p.is_file() and p.stat().st_size > 4096)[:3]
    remove(shards[0])
    cut(shards[1])
    flip(shards[2], 200)
    problems = check_dataset(dataset, full=True).problems
    assert [any(str(shard) in problem for problem in problems) for shard in shards] == [True] * 3
    assert len(problems) == 3


def test_files_of_others_are_listed_and_do_no_harm(dataset: Path) -> None:
    (dataset / "notes.txt").write_text("mine")
    (dataset / "train/manifest.json").write_text("{}")
    (dataset / "link").symlink_to(dataset / "train", target_is_directory=True)
    (dataset / "bad\udcff\n").write_text("")
    result = check(dataset)
    assert result.exit_code == 0
    lines = [line for line in result.stdout.splitlines() if line.startswith("not part of")]
    assert [line.rpartition(": ")[2] for line in lines] == [
        "bad\\udcff\\n", "link", "notes.txt", "train/manifest.json",
    ]  # fmt: skip


def test_swapped_shards_are_named_with_whose_bytes_they_have(dataset: Path) -> None:
    shards = [path for path in dataset.rglob("*") if path.stat().st_size == shard_size(dataset)]
    first, second = sorted(path for path in shards if path.is_file())[:2]
    held = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(held)
    assert check_dataset(dataset).problems == ()
    problems = check_dataset(dataset, full=True).problems
    assert len(problems) == 2
    assert any(p.startswith(f"{first}: ") and f"that of {second}: swapped" in p for p in problems)
    assert any(p.startswith(f"{second}: ") and f"that of {first}: swapped" in p for p in problems)


def shard_size(root: Path) -> int:
    return shard_of(root).stat().st_size


def test_a_shard_that_the_manifest_does_not_name_is_named(dataset: Path) -> None:
    shard = shard_of(dataset)
    extra = shard.with_name(shard.name.replace("00002", "00077").replace("2", "77"))
    if shard.suffix != ".npy":
        extra = shard.parent.parent.parent.parent / "77/0/0/0"
    extra.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(shard, extra)
    result = check(dataset)
    assert result.exit_code == 1
    assert f"{extra}: a shard that the manifest does not name" in result.stdout


def test_what_a_stopped_run_left_is_one_line(dataset: Path) -> None:
    (dataset / ".prep").mkdir()
    for name in ("lock", "run.json", "train.00000.receipt.json", "train.00001.receipt.json"):
        (dataset / ".prep" / name).write_text("{}")
    (problem,) = check_dataset(dataset).problems
    left = (
        f"{dataset}/.prep: left by a run that was stopped, with the receipts of 2 finished shards;"
    )
    assert problem.startswith(left)


def test_a_file_that_a_link_leads_out_to_is_named(dataset: Path, tmp_path: Path) -> None:
    shard = shard_of(dataset)
    shutil.move(shard, tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    (problem,) = check_dataset(dataset).problems
    assert problem.startswith(f"{shard}: a link leads out of the dataset, to {tmp_path}/elsewhere")


def test_the_report_file_and_the_list_of_skipped_may_be_removed(dataset: Path) -> None:
    (dataset / "report.json").unlink()
    (dataset / "skipped.jsonl").unlink()
    assert check(dataset).exit_code == 0


def test_a_changed_description_of_a_zarr_group_is_found(make_dataset: Callable[..., Path]) -> None:
    dataset = make_dataset("zarr", fresh=True)
    described = sorted(dataset.rglob("zarr.json"))
    remove(described[0])
    flip(described[1], 2)
    described[2].write_bytes(described[2].read_bytes() + b" ")
    problems = check_dataset(dataset).problems
    assert len(problems) == 3
    for path in described[:3]:
        remedy = 'copy it again, or make it again with "prep repair"'
        assert f"{path}: missing or changed; {remedy}" in problems


def test_json_has_the_documented_keys(dataset: Path) -> None:
    shard = shard_of(dataset)
    cut(shard)
    result = check(dataset, "--json", "--full")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert set(found) == {
        "path", "files", "nbytes", "shard_nbytes", "full", "problems", "foreign",
    }  # fmt: skip
    assert found["full"] is True
    assert len(found["problems"]) == 1


def test_a_damaged_manifest_is_an_error_in_one_line(dataset: Path) -> None:
    cut(dataset / "manifest.json")
    (dataset / "manifest.json").write_bytes((dataset / "manifest.json").read_bytes()[:-50])
    with pytest.raises(FormatError):
        check_dataset(dataset)
    result = check(dataset)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {dataset}/manifest.json: ")
    assert result.stderr.count("\n") == 1


def test_a_folder_that_is_no_dataset_is_an_error_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError):
        check_dataset(tmp_path)
    result = check(tmp_path)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert f"{tmp_path}: no manifest.json" in result.stderr


def test_what_a_damaged_manifest_is_said_to_need_can_be_done(dataset: Path, tmp_path: Path) -> None:
    (dataset / "manifest.json").write_text("not JSON")
    result = CliRunner().invoke(prep, ["check", str(dataset)])
    assert result.exit_code == 1
    assert "copy it again, or prepare the dataset again in an empty folder" in result.stderr
    write_image_tree(tmp_path / "photos", ["cat"], 2)
    command = ["images", str(tmp_path / "photos"), str(dataset), "--sizes", "8", "--overwrite"]
    refused = CliRunner().invoke(prep, command)
    assert refused.exit_code == 1
    assert "give another folder, or empty this one yourself" in refused.stderr
    shutil.rmtree(dataset)
    assert CliRunner().invoke(prep, command).exit_code == 0
