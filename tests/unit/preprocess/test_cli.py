"""The commands, called as functions: exit codes, messages, dry runs and JSON."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from preprocess import cli
from preprocess.cli import prep
from preprocess.images import prepare as images
from preprocess.item_contents import ItemFiles
from preprocess.items import Listing
from preprocess.sources import list_folder
from tests.synthetic import write_damaged, write_image_tree


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a folder of 6 photos of 2 classes."""
    write_image_tree(tmp_path / "photos", ["cat", "dog"], 3)
    return tmp_path / "photos"


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(prep, [str(word) for word in words])


def prepare(source: Path, out: Path, *words: str) -> Result:
    return call("images", source, out, "--sizes", "16", *words)


def assert_one_line(result: Result, code: int, *parts: str) -> None:
    """Check that a command ended with one line on stderr and nothing else."""
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    for part in parts:
        assert part in result.stderr


def entries(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# -------------------------------------------------------------------------------------- usage


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["image", "a", "b"], "Did you mean 'images'?"),
        (["images", "a", "b", "--size", "8"], "'--sizes'"),
        (["images", "a", "b", "--sizes", "8", "--grayscle"], "Did you mean '--grayscale'?"),
        (["images", "a", "b", "--sizes", "8", "--fit", "zoom"], "'zoom' is not one of 'crop'"),
        (["images", "a", "b", "--sizes", "8", "--workers", "0"], "0 is not in the range x>=1"),
        (["images", "a", "b", "--sizes", "8", "--limit", "0"], "0 is not in the range x>=1"),
        (["images", "a", "b", "--sizes", "8", "--max-skipped", "-1"], "-1 is not in the range"),
        (["images", "a", "b", "--sizes", "20000"], "1..16384"),
        (["images", "a", "b", "--sizes", "8", "--backend", "no"], "Invalid backend: no"),
        (
            ["images", "a", "b", "--sizes", "8", "--backend", "multiprocessing"],
            "loky or threading",
        ),
        (["images", "a"], "Missing argument 'OUT'"),
        (["images", "--sizes", "8"], "Missing argument 'SRC'"),
        (["info"], "Missing argument 'OUT'"),
        (["check", "a", "b"], "unexpected extra argument (b)"),
    ],
)
def test_a_wrong_call_exits_with_2_and_a_hint(words: list[str], said: str) -> None:
    result = call(*words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "--help' for help" in result.stderr


@pytest.mark.parametrize("command", ["images", "info", "check", "demo"])
def test_every_command_explains_itself(command: str) -> None:
    result = call(command, "-h")
    assert result.exit_code == 0
    assert "..." not in call("--help").stdout.partition("Commands:")[2]
    assert result.stdout.startswith(f"Usage: prep {command} ")


def test_the_version_is_printed() -> None:
    assert call("--version").stdout.startswith("prep, version ")


# ------------------------------------------------------------------------------- source and output


def test_a_source_that_is_no_folder_of_images_is_an_error(tmp_path: Path, photos: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "empty").mkdir()
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("words")
    for source, said in {
        "nowhere": "no such folder",
        "photos/cat/0000.jpg": "not a folder",
        "empty": "the folder is empty",
        "texts": "no image among 1 file: 1 not an image (.txt)",
        "x" * 300: "File name too long",
    }.items():
        assert_one_line(prepare(tmp_path / source, out), 1, f"{tmp_path / source}: ", said)
        assert not out.exists()


def test_an_output_that_cannot_be_taken_is_an_error_and_stays_as_it_was(
    tmp_path: Path, photos: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = entries(tmp_path)
    for out, said in {
        "full": "not empty (holds 'mine.txt')",
        "file": "not a folder",
        "photos/out": "lies inside the source",
        "photos": "is the source",
        ".": "holds the source",
        "file/out": "Not a directory",
        "x" * 300: "File name too long",
    }.items():
        for more in ([], ["--dry-run"]):
            assert_one_line(prepare(photos, tmp_path / out, *more), 1, str(tmp_path / out), said)
    assert entries(tmp_path) == before


def test_a_disk_without_room_is_told_of_the_output_folder(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    out = tmp_path / "not" / "there"
    for more in ([], ["--dry-run"]):
        assert_one_line(prepare(photos, out, *more), 1, f"{out}: ", "to be written, 0 B free")


def test_the_same_command_again_has_nothing_to_do(tmp_path: Path, photos: Path) -> None:
    out = tmp_path / "out"
    assert prepare(photos, out).exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    again = prepare(photos, out)
    assert again.exit_code == 0
    assert "nothing to do" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_other_options_need_overwrite(tmp_path: Path, photos: Path) -> None:
    out = tmp_path / "out"
    assert prepare(photos, out).exit_code == 0
    assert_one_line(
        prepare(photos, out, "--grayscale"), 1, "made with other options", "--overwrite"
    )
    assert prepare(photos, out, "--grayscale", "--overwrite").exit_code == 0
    assert "[16, 16, 1]" in call("info", out).stdout


def test_a_disk_that_is_too_small_is_an_error_before_anything_is_written(tmp_path: Path) -> None:
    write_image_tree(tmp_path / "photos", ["a"], 1)
    for number in range(2000):
        os.link(tmp_path / "photos/a/0000.jpg", tmp_path / f"photos/a/{number + 1:04d}.jpg")
    sizes = ["--shard-size", "900TB", "--sizes", *map(str, range(16000, 16030))]  # 46 TB
    for more in ([], ["--dry-run"]):
        result = call("images", tmp_path / "photos", tmp_path / "out", *sizes, *more)
        assert_one_line(result, 1, " TB to be written", "make room")
        assert not (tmp_path / "out").exists()


def test_too_many_classes_are_an_error(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def list_many(*words: Any, **options: Any) -> Listing:
        classes = tuple(f"{number:05d}" for number in range((1 << 16) + 1))
        return replace(list_folder(*words, **options), classes=classes)

    monkeypatch.setattr(images, "list_folder", list_many)
    result = prepare(photos, tmp_path / "out")
    assert_one_line(result, 1, "65,537 class folders, labels hold up to 65,536", "--labels none")
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------ skipped items


def test_one_bad_photo_among_many_is_listed_and_the_rest_is_done(
    tmp_path: Path, photos: Path
) -> None:
    write_damaged(photos / "cat/bad\n.jpg", "html_named_jpeg")
    out = tmp_path / "out"
    result = prepare(photos, out)
    assert result.exit_code == 3
    assert "6 samples (train 6)" in result.stdout
    assert "  cat/bad\\n.jpg: an HTML page, not an image\n" in result.stdout
    assert "--max-skipped 1 accepts as many" in result.stderr
    (line,) = (out / "skipped.jsonl").read_text().splitlines()
    assert json.loads(line) == {"key": "cat/bad\n.jpg", "reason": "an HTML page, not an image"}
    assert call("check", out, "--full").exit_code == 0
    accepted = prepare(photos, tmp_path / "out2", "--max-skipped", "1")
    assert (accepted.exit_code, accepted.stderr) == (0, "")


def test_when_every_photo_is_bad_there_is_no_dataset(tmp_path: Path) -> None:
    for number in range(3):
        write_damaged(tmp_path / f"photos/{number}.jpg", "truncated_jpeg")
    result = prepare(tmp_path / "photos", tmp_path / "out", "--max-skipped", "9")
    assert_one_line(result, 1, "none of 3 items could be read", "0.jpg: ", "skipped.jsonl")
    assert entries(tmp_path / "out") == ["skipped.jsonl"]
    assert "no manifest.json" in call("info", tmp_path / "out").stderr


# ------------------------------------------------------------------------------ dry runs and JSON


@pytest.mark.parametrize("container", ["tensor", "zarr"])
@pytest.mark.parametrize("shard", ["1B", "2kB", "256MB"])
def test_a_dry_run_says_the_bytes_to_the_byte_and_touches_nothing(
    tmp_path: Path, photos: Path, container: str, shard: str
) -> None:
    out = tmp_path / "out"
    words = ["--format", container, "--shard-size", shard, "--json"]
    planned = json.loads(prepare(photos, out, *words, "--dry-run").stdout)
    assert not out.exists()
    made = json.loads(prepare(photos, out, *words).stdout)
    shards = [path for path in (out / "train").rglob("*") if path.is_file()]
    nbytes = sum(p.stat().st_size for p in shards if not {"zarr.json", "valid"} & set(p.parts))
    assert planned["nbytes"] == planned["nbytes_left"] == made["nbytes"] == nbytes
    assert planned["nbytes_free"] > 0


def test_a_dry_run_reads_the_same_for_people(tmp_path: Path, photos: Path) -> None:
    (photos / "notes.txt").write_text("words")
    (photos / "link.jpg").symlink_to("cat/0000.jpg")
    result = call("images", photos, tmp_path / "out", "--sizes", "16", "24x20", "--dry-run")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:5] == [
        "train: 6 samples in 1 shard of up to 6",
        "  image_16         uint8   [16, 16, 3]",
        "  image_24x20      uint8   [20, 24, 3]",
        "  label            uint8",
        "  key              uint8   [12]",
    ]
    assert lines[5:9] == [
        "classes: 2 (cat, dog)",
        "ignored: 1 not an image (.txt)",
        "skipped: 1 that are not readable files",
        "  link.jpg: a symbolic link; give --follow-links to take what links point to",
    ]
    assert lines[9].startswith("to be written: ")
    assert lines[10].startswith("free there: ")


def test_a_dry_run_of_a_finished_dataset_has_nothing_left(tmp_path: Path, photos: Path) -> None:
    out = tmp_path / "out"
    assert prepare(photos, out).exit_code == 0
    planned = json.loads(prepare(photos, out, "--dry-run", "--json").stdout)
    assert planned["nbytes_left"] == 0
    assert "still to do: 0 B" in prepare(photos, out, "--dry-run").stdout
    again = json.loads(prepare(photos, out, "--dry-run", "--json", "--overwrite").stdout)
    assert again["nbytes_left"] == again["nbytes"]


def test_json_has_the_documented_keys(tmp_path: Path, photos: Path) -> None:
    out = tmp_path / "out"
    planned = json.loads(prepare(photos, out, "--dry-run", "--json").stdout)
    assert set(planned) == {
        "out", "container", "splits", "classes", "skipped", "ignored", "notes", "nbytes",
        "nbytes_beside", "nbytes_left", "nbytes_free", "storage",
    }  # fmt: skip
    assert planned["classes"] == ["cat", "dog"]
    made = json.loads(prepare(photos, out, "--json").stdout)
    assert made["samples"] == {"train": 6}
    assert made["skipped"] == 0
    assert {"out", "nbytes", "seconds", "samples_made", "ignored", "notes", "tools"} <= set(made)
    shown = json.loads(call("info", out, "--json").stdout)
    assert shown["splits"]["train"]["samples"] == 6
    assert shown["nbytes"] == made["nbytes"] == planned["nbytes"]


def test_labels_and_limit_reach_the_listing(tmp_path: Path, photos: Path) -> None:
    bare = json.loads(
        prepare(photos, tmp_path / "o", "--dry-run", "--json", "--labels", "none").stdout
    )
    assert set(bare["splits"]["train"]["fields"]) == {"image_16", "key"}
    few = json.loads(prepare(photos, tmp_path / "o", "--dry-run", "--json", "--limit", "4").stdout)
    assert few["splits"]["train"]["samples"] == 4
    (photos / "stray.jpg").write_bytes((photos / "cat/0000.jpg").read_bytes())
    result = prepare(photos, tmp_path / "o", "--labels", "folders")
    assert_one_line(result, 1, "stray.jpg lies in no class folder")
    noted = prepare(photos, tmp_path / "o", "--dry-run")
    assert "note: train: no labels, since 1 of 7 items lie in no class folder" in noted.stdout


@pytest.mark.parametrize("command", ["info", "check"])
def test_looking_at_what_is_no_dataset_is_an_error(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("x")
    assert_one_line(call(command, tmp_path), 1, f"{tmp_path}: no manifest.json")
    assert_one_line(call(command, tmp_path / "no"), 1, "no: no such folder")
    assert_one_line(call(command, tmp_path / "file"), 1, str(tmp_path / "file"))
    (tmp_path / ".prep").mkdir()
    assert_one_line(call(command, tmp_path), 1, "has not finished", "the same prep command again")


# ------------------------------------------------------------------------------------- interruption


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("list_folder", "interrupted\n"),
        (
            "read",
            "interrupted; finished shards are kept, the same command goes on from there\n",
        ),
    ],
)
def test_an_interrupt_exits_with_130_and_says_truly_what_is_kept(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, place: str, said: str
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ItemFiles if place == "read" else images, place, interrupt)
    result = prepare(photos, tmp_path / "out")
    assert result.exit_code == cli.EXIT_INTERRUPTED == 130
    assert (result.stdout, result.stderr) == ("", said)
    monkeypatch.undo()
    assert prepare(photos, tmp_path / "out").exit_code == 0


def test_memory_that_runs_out_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("preprocess.images.prepare.plan_images", fail)
    result = CliRunner().invoke(prep, ["images", str(tmp_path), str(tmp_path / "out"), "--sizes=8"])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: not enough memory; fewer --workers")
