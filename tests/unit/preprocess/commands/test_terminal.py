"""What the commands print: to terminals, to pipes, to nothing at all."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from preprocess import ImageOptions, RunOptions
from preprocess.commands.described import dataset_texts, describe_dataset
from preprocess.commands.terminal import describe_plan, print_text, progress_bar
from preprocess.images.prepare import plan_images
from tests.synthetic import write_image_tree

WORDS = "from preprocess.cli import prep; prep()"


def test_names_that_are_no_text_are_printed_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_text("out\udcff: \x1b[31m\nsecond line")
    assert capsys.readouterr().out == "out\\udcff: \\x1b[31m\nsecond line\n"


@pytest.mark.parametrize("stream", ["a pipe", None])
def test_progress_is_silent_without_a_terminal(
    stream: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    write_image_tree(tmp_path / "photos", ["a"], 2)
    plan = plan_images(
        tmp_path / "photos", tmp_path / "out", ImageOptions(sizes=((8, 8),)), RunOptions()
    )
    if stream is None:
        monkeypatch.setattr(sys, "stderr", None)
    with progress_bar(plan) as on_progress:
        on_progress(1, 0, 50)
        on_progress(1, 1, 50)
    assert "".join(capsys.readouterr()) == ""


def test_progress_is_shown_on_a_terminal_and_only_on_stderr(tmp_path: Path) -> None:
    write_image_tree(tmp_path / "photos", ["a"], 6)
    (tmp_path / "photos/a/bad.jpg").write_bytes(b"")
    ours, theirs = pty.openpty()
    words = ["images", "photos", "out", "--sizes", "16"]
    command = ["env", "TERM=xterm", sys.executable, "-c", WORDS, *words]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as running:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:
            pass  # Linux ends a terminal that nobody else holds with EIO
        assert running.stdout is not None
        printed = running.stdout.read().decode()
    os.close(ours)
    assert running.returncode == 3
    assert b"7/7" in shown
    assert b"1 skipped" in shown
    assert printed.startswith("6 samples (train 6)")
    assert "\x1b" not in printed


def test_a_description_of_a_dataset_has_the_documented_keys(dataset_path: Path) -> None:
    described = describe_dataset(dataset_path)
    assert set(described) == {
        "container", "kind", "recipe", "classes", "skipped", "nbytes", "splits",
    }  # fmt: skip
    train = described["splits"]["train"]
    assert set(train) == {
        "samples", "shards", "samples_per_shard", "fields", "statistics", "class_counts", "tallies",
    }  # fmt: skip
    assert set(train["fields"]) == {"image_32", "image_24x16", "label", "key"}
    assert train["fields"]["image_24x16"]["shape"] == [16, 24, 3]
    assert train["samples"] == 18
    assert train["class_counts"] == (6, 6, 6)
    assert described["nbytes"] == sum(
        field["nbytes"]
        for split in described["splits"].values()
        for field in split["fields"].values()
    )


def test_the_text_of_a_dataset_names_what_it_holds(dataset_path: Path) -> None:
    text = "\n".join(dataset_texts(dataset_path, describe_dataset(dataset_path)))
    for part in ("classes: 3 (ant, bee, cat)", "train: 18 samples in ", "image_24x16", "ant 6"):
        assert part in text


def test_a_plan_counts_what_is_left_to_do(
    tmp_path: Path, make_dataset: Callable[..., Path]
) -> None:
    write_image_tree(tmp_path / "photos", ["a"], 3)
    options = ImageOptions(sizes=((16, 16),))
    plan = plan_images(tmp_path / "photos", tmp_path / "out", options, RunOptions())
    described = describe_plan(plan, overwrite=False)
    assert described["nbytes"] == described["nbytes_left"] == plan.nbytes
    assert not (tmp_path / "out").exists()
