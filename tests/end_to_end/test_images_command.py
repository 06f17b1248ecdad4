"""The installed command as a process: awkward names, terminals, pipes, interrupts."""

import json
import os
import signal
import socket
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaders.format.spec import read_manifest
from tests.synthetic import encode_image, smooth_image, write_damaged, write_image_tree
from tests.token_commands import call
from tests.waiting import SECONDS, until

PREP = (sys.executable, "-c", "from preprocess.cli import prep; prep()")


def prep(
    *words: str | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    variables = [f"{name}={value}" for name, value in (env or {}).items()]
    return subprocess.run(
        ["env", *variables, *PREP, *words],
        cwd=cwd,
        check=False,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=SECONDS,
    )


def read_field(out: Path, name: str, split: str = "train") -> np.ndarray[Any, Any]:
    """Read a field of a split with NumPy alone."""
    return np.concatenate([np.load(path) for path in sorted(out.glob(f"{split}/*.{name}.npy"))])


def read_keys(out: Path) -> list[bytes]:
    return [bytes(row).rstrip(b"\0") for row in read_field(out, "key")]


def read_skipped(out: Path) -> dict[bytes, str]:
    lines = (out / "skipped.jsonl").read_text().splitlines()
    return {os.fsencode(entry["key"]): entry["reason"] for entry in map(json.loads, lines)}


# ------------------------------------------------------------------------------------------ names

NFC, NFD = (unicodedata.normalize(form, "twin/é.png").encode() for form in ("NFC", "NFD"))
TAKEN = [
    b"two  spaces/end .jpg",
    "\U0001f431\u200d\U0001f464/caf\u00e9.JPG".encode(),
    b"new\nline.jpg",
    b"-rf.jpg",
    b"--help",
    NFC,
    NFD,
    b"[x]*?.png",
    b"y" * 251 + b".jpg",
    b"not utf-8 \xff\xfe.jpg",
    b"a/1.jpg",
    b"b/1.jpg",
    b"b/1.png",
    b"png named.jpg",
    b"no ending",
    b"10.jpg",
    b"2.jpg",
]
SKIPPED = {
    b"404.jpg": "an HTML page, not an image",
    b"zero.png": "empty file",
    b"cut.jpg": "",
    b"pipe.jpg": "not a regular file but a FIFO",
    b"plug.jpg": "not a regular file but a socket",
    b"broken.jpg": "a symbolic link to nothing: No such file or directory",
    b"loop/up": "a symbolic link; give --follow-links to take what links point to",
}
IGNORED = [b".DS_Store", b"._photo.jpg", b"photo.jpg.part", b"notes.txt"]


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder of names that break careless programs."""
    root = tmp_path_factory.mktemp("awkward")
    for seed, name in enumerate(TAKEN):
        path = root / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        suffix = ".png" if b"png" in name else ".jpg"
        path.write_bytes(encode_image(smooth_image(40, 30, seed=seed), suffix))
    write_damaged(root / "404.jpg", "html_named_jpeg")
    write_damaged(root / "zero.png", "empty_file")
    write_damaged(root / "cut.jpg", "truncated_jpeg")
    write_damaged(root / "pipe.jpg", "fifo")
    for name in IGNORED:
        (root / os.fsdecode(name)).write_bytes(b"\0\5\x16\7words")
    (root / "folder.jpg").mkdir()
    (root / "loop").mkdir()
    (root / "loop/up").symlink_to("..")
    (root / "broken.jpg").symlink_to("nowhere.jpg")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(root / "plug.jpg"))
        yield root


def assert_awkward(out: Path) -> None:
    """Check keys, pixels and skipped items of the dataset of the awkward folder."""
    keys = read_keys(out)
    assert keys == sorted(TAKEN)
    for key, image in zip(keys, read_field(out, "image_40x30"), strict=True):
        drawn = smooth_image(40, 30, seed=TAKEN.index(key))
        difference = np.abs(image.astype(int) - drawn).mean()
        assert difference < 4, key
    skipped = read_skipped(out)
    assert set(skipped) == set(SKIPPED)
    assert all(skipped[key].startswith(reason) for key, reason in SKIPPED.items())


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONIOENCODING": "utf-8"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_awkward_names_are_kept_to_the_byte_in_every_locale(
    awkward: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    out = "out \u00e9"
    made = prep("images", awkward, out, "--sizes", "40x30", cwd=tmp_path, env=env)
    assert made.returncode == 3, made.stderr
    assert made.stderr.startswith("skipped: 7, accepted: 0; ")
    assert_awkward(tmp_path / out)
    shown = prep("check", out, "--full", cwd=tmp_path, env=env)
    assert (shown.returncode, shown.stderr) == (0, "")


def test_a_folder_whose_name_is_not_utf_8_can_hold_source_and_dataset(tmp_path: Path) -> None:
    source, out = (os.fsdecode(name) for name in (b"in \xff", b"out \xfe"))
    write_image_tree(tmp_path / source, [os.fsdecode(b"class \xfd"), "b"], 2)
    for words in (
        ["images", source, out, "--sizes", "16", "--dry-run"],
        ["images", source, out, "--sizes", "16"],
        ["images", source, out, "--sizes", "16", "--json"],
        ["info", out],
        ["check", out],
        ["check", out, "--json"],
    ):
        done = prep(*words, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), words
    shown = json.loads(prep("info", out, "--json", cwd=tmp_path).stdout)
    assert [os.fsencode(name) for name in shown["classes"]] == [b"b", b"class \xfd"]
    wrong = prep("images", source, out, "--sizes", "8", cwd=tmp_path)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (1, 1)
    assert "out \\udcfe: holds a dataset made with other options" in wrong.stderr


def test_links_that_are_followed_end_in_a_loop_and_give_each_file_once(
    awkward: Path, tmp_path: Path
) -> None:
    words = ["--follow-links", "--sizes", "40x30", "--max-skipped", "9"]
    made = prep("images", awkward, "out", *words, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert read_keys(tmp_path / "out") == sorted(TAKEN)
    assert b"loop/up" not in read_skipped(tmp_path / "out")


# -------------------------------------------------------------------------------- splits and labels


def test_splits_and_classes_arrive_in_the_dataset(tmp_path: Path) -> None:
    write_image_tree(tmp_path / "photos", ["a", "B"], 2, splits=["train", "val"])
    write_image_tree(tmp_path / "photos/test", ["."], 1, seed=7)
    done = prep("images", "photos", "out", "--sizes", "16", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    manifest = read_manifest(tmp_path / "out")
    assert list(manifest.splits) == ["train", "validation", "test"]
    assert manifest.classes == ("B", "a")
    assert read_field(tmp_path / "out", "label").tolist() == [0, 0, 1, 1]
    assert [field.name for field in manifest.splits["test"].fields] == ["image_16", "key"]


# ------------------------------------------------------------------------------- streams and pipes


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that holds photos and, as `out`, the dataset made of them."""
    root = tmp_path_factory.mktemp("streams")
    write_image_tree(root / "photos", ["a", "b"], 3)
    assert prep("images", "photos", "out", "--sizes", "16", cwd=root).returncode == 0
    return root


def shell(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command, "bash", *PREP],
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.mark.parametrize("command", ["info out", "check out", "info out --json", "--help"])
def test_a_reader_that_goes_away_ends_a_command_quietly(dataset: Path, command: str) -> None:
    done = shell(f'"$@" {command} | true', dataset)
    assert done.stderr == ""
    assert shell(f'"$@" {command} | head -1', dataset).stderr == ""


def test_a_full_disk_behind_stdout_is_an_error_in_one_line(dataset: Path) -> None:
    done = shell('"$@" info out > /dev/full', dataset)
    assert (done.returncode, done.stderr) == (1, "Error: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_do_not_stop_a_run(dataset: Path, tmp_path: Path, closed: str) -> None:
    done = shell(f'"$@" images photos {tmp_path}/out --sizes 16 {closed}', dataset)
    assert (done.returncode, done.stderr) == (0, "")
    assert read_manifest(tmp_path / "out").splits["train"].count == 6


# --------------------------------------------------------------------------------------- interrupts


def running_in(session: int) -> list[str]:
    """Return the command lines of the living processes of a session."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, owner = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue  # it ended while we looked
        if int(owner) == session and state not in "ZX" and command:
            found.append(command)
    return found


def start(words: Sequence[str | Path], cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PREP, *words],
        cwd=cwd,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("backend", ["threading", "loky"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopping_ends_in_one_line_without_orphans_and_the_same_command_completes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    number: signal.Signals,
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_image_tree(tmp_path / "photos", ["a"], 4, size=(640, 480))
    for index in range(4, 300):
        os.link(tmp_path / f"photos/a/{index % 2:04d}.jpg", tmp_path / f"photos/a/{index:04d}.jpg")
    words = ["images", "photos", "out", "--sizes", "256", "--shard-size", "1MB"]
    words += ["--backend", backend, "--workers", "2"]
    with start(words, tmp_path) as run:
        # Once the first shard is finished every worker is at work.
        until(lambda: any((tmp_path / "out").glob("train/*.key.npy")), run)
        # Ctrl-C reaches the whole group; a container or a batch system ends the parent alone.
        (os.killpg if number == signal.SIGINT else os.kill)(run.pid, number)
        printed, said = run.communicate(timeout=SECONDS)
        left = running_in(run.pid)
    assert (run.returncode, printed) == (code, "")
    assert said == "interrupted; finished shards are kept, the same command goes on from there\n"
    assert left == []
    assert not (tmp_path / "out/manifest.json").exists()
    planned = json.loads(call(*words, "--dry-run", "--json").stdout)
    assert 0 < planned["nbytes_left"] < planned["nbytes"]
    again = prep(*words, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "300 samples" in again.stdout
    assert "300 made" not in again.stdout
    assert call("check", "out", "--full").exit_code == 0
