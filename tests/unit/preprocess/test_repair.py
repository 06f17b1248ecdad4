"""`prep repair`: whatever files are bad, the dataset is as it was, to the byte, or all is left."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from loaders.errors import FormatError
from loaders.format.promised import promised_files
from loaders.format.spec import read_manifest
from preprocess.check import check_dataset
from preprocess.errors import OutputError, SourceError
from preprocess.repair import repair_dataset
from tests.recipes import read_tree
from tests.small_datasets import KINDS, Made, damage, prepare
from tests.token_commands import call


@pytest.mark.parametrize("container", ["tensor", "zarr"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_bad_is_made_again_and_nothing_else_is_touched(
    kind: str, container: str, made: Made, tmp_path: Path
) -> None:
    source, whole = made(kind, container)
    out = Path(shutil.copytree(whole, tmp_path / "out"))
    expected = read_tree(whole)
    random_ = random.Random(f"{kind} {container}")
    kept = ("manifest.json", "skipped.jsonl")
    chosen = random_.sample(sorted(set(expected) - set(kept)), len(expected) // 3)
    for name in chosen:
        damage(out / name, random_)
    whole_ones = {name: (out / name).stat().st_ino for name in expected if name not in chosen}

    result = call("repair", out, source)

    assert result.exit_code == 0, result.stderr
    assert read_tree(out) == expected
    assert {name: (out / name).stat().st_ino for name in whole_ones} == whole_ones
    repaired = {line.removesuffix(": made again") for line in result.stdout.splitlines()[:-1]}
    assert repaired == {str(out / name) for name in chosen}
    assert not (out / ".prep").exists()


def test_a_dataset_without_fault_is_left_alone(made: Made) -> None:
    source, out = made("images", "tensor")
    report = repair_dataset(out, source)
    assert (report.repaired, report.check.problems) == ((), ())


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_that_has_changed_is_refused_and_nothing_is_put_in_place(
    kind: str, made: Made, tmp_path: Path
) -> None:
    source, _ = made(kind, "tensor")
    folder = Path(shutil.copytree(source.parent, tmp_path / "other"))
    changed = folder / source.name
    out = folder / "out"
    for file in promised_files(out, read_manifest(out)):
        if file.shard is not None:
            damage(file.path, random.Random(1))
    before = read_tree(out)
    item = next(path for path in sorted(changed.rglob("*")) if path.is_file())
    data = item.read_bytes()

    item.write_bytes(data + b"\n\n")
    with pytest.raises(SourceError, match="names or sizes differ"):
        repair_dataset(out, changed)
    assert read_tree(out) == before

    # Of the same size: known by what it gives.
    # Only the first rows of a table are taken.
    at = next((data.index(word) for word in (b"dog", b"red") if word in data), len(data) // 2)
    item.write_bytes(data[:at] + b"7" + data[at + 1 :])
    with pytest.raises(SourceError, match=r"gives other bytes for .*nothing was put in place"):
        repair_dataset(out, changed)
    assert read_tree(out) == before


def test_without_its_report_the_defaults_are_tried_and_else_the_dataset_is_refused(
    made: Made, tmp_path: Path
) -> None:
    source, whole = made("images", "tensor")
    out = Path(shutil.copytree(whole, tmp_path / "out"))
    (out / "report.json").unlink()
    next(out.rglob("*.npy")).unlink()
    with pytest.raises(OutputError, match="what its options were is not known"):
        repair_dataset(out, source)  # it had another size of shards

    plain = tmp_path / "plain"
    assert call("images", source, plain, "--sizes", "8", "--max-skipped", "1").exit_code == 0
    expected = read_tree(plain)
    (plain / "report.json").unlink()
    next(plain.rglob("*.npy")).unlink()
    assert call("repair", plain, source).exit_code == 0
    assert read_tree(plain) == expected


def test_a_tokenizer_that_is_gone_is_taken_from_the_dataset(made: Made, tmp_path: Path) -> None:
    source, _ = made("tokens", "tensor")
    folder = Path(shutil.copytree(source.parent, tmp_path / "other"))
    out, texts = folder / "again", folder / source.name
    prepare("tokens", "tensor", texts, out)
    expected = read_tree(out)
    shutil.rmtree(folder / "tokenizer")
    next(out.rglob("*.npy")).unlink()
    assert call("repair", out, texts).exit_code == 0
    assert read_tree(out) == expected


def test_a_run_that_holds_the_folder_is_not_disturbed(made: Made, tmp_path: Path) -> None:
    from preprocess.output import hold

    source, whole = made("images", "tensor")
    out = Path(shutil.copytree(whole, tmp_path / "out"))
    next(out.rglob("*.npy")).unlink()
    held = hold(out)
    with pytest.raises(OutputError, match="another prep run is writing here"):
        repair_dataset(out, source)
    held.release(finished=True)
    assert repair_dataset(out, source).check.problems == ()


def test_a_folder_in_the_place_of_a_file_is_named(made: Made, tmp_path: Path) -> None:
    source, whole = made("images", "tensor")
    out = Path(shutil.copytree(whole, tmp_path / "out"))
    shard = next(out.rglob("*.npy"))
    shard.unlink()
    (shard / "mine").mkdir(parents=True)
    with pytest.raises(OutputError, match="a folder with files in it, where a file belongs"):
        repair_dataset(out, source)
    os.rmdir(shard / "mine")
    assert repair_dataset(out, source).check.problems == ()


def test_a_damaged_manifest_cannot_be_repaired(made: Made, tmp_path: Path) -> None:
    source, whole = made("images", "tensor")
    out = Path(shutil.copytree(whole, tmp_path / "out"))
    (out / "manifest.json").write_bytes((out / "manifest.json").read_bytes()[:-9])
    with pytest.raises(FormatError, match="not valid JSON"):
        repair_dataset(out, source)


@pytest.mark.parametrize("kind", ["images", "tokens", "table"])
def test_a_check_counts_the_shards_as_the_run_did_and_what_is_beside_them(
    made: Made, tmp_path: Path, kind: str
) -> None:
    _, out = made(kind, "tensor")
    found = json.loads(call("check", out, "--json").stdout)
    assert found["shard_nbytes"] == json.loads(call("info", out, "--json").stdout)["nbytes"]
    beside = sum(
        path.stat().st_size for name in ("tokenizer", "table") for path in (out / name).rglob("*.*")
    )
    assert found["nbytes"] == found["shard_nbytes"] + beside
    shown = call("check", out).stdout
    assert (" in shards, " in shown) == (kind != "images") == (beside > 0)


def test_json_has_the_documented_keys(made: Made, tmp_path: Path) -> None:
    source, whole = made("images", "tensor")
    out = Path(shutil.copytree(whole, tmp_path / "out"))
    shard = next(out.rglob("*.npy"))
    shard.unlink()
    found = json.loads(call("repair", out, source, "--json").stdout)
    assert found["repaired"] == [str(shard)]
    assert found["check"]["problems"] == []
    assert check_dataset(out, full=True).problems == ()
