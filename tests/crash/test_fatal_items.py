"""Items that end the process that prepares them, or hold it up: the run goes on without them."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from preprocess.cli import prep
from preprocess.fatal import without_fatal
from preprocess.in_work import Notes, read_notes
from preprocess.plan import RunOptions
from preprocess.report import Report
from preprocess.run import run
from preprocess.shard_writer import write_shard
from tests.crash.children import ROOT, SECONDS
from tests.recipes import (
    DigestRecipe,
    numbered_items,
    plan_digests,
    read_tree,
    row_nbytes,
    write_items,
)

SAID = {
    "segv": "ended the process that prepared it (SIGSEGV(-11))",
    "kill": "ended the process that prepared it (SIGKILL(-9))",
    "exit": "ended the process that prepared it (EXIT(7))",
}


def prepare(source: Path, out: Path, *, mark: Path, backend: str, timeout: float | None) -> Report:
    recipe = DigestRecipe(block=str(mark))
    options = RunOptions(
        shard_nbytes=3 * row_nbytes(recipe), workers=2, backend=backend, item_timeout=timeout
    )
    return run(plan_digests(source, out, options, recipe), options)


def expected_tree(folder: Path, said: dict[str, str]) -> dict[str, bytes]:
    """Return the dataset of the items without those that are fatal, and the list of these."""
    whole = folder / "whole"
    contents = dict.fromkeys(said, b"bad" + b"!" * 7)
    write_items(folder / "other", {**numbered_items(10), **contents})
    prepare(folder / "other", whole, mark=folder / "mark", backend="threading", timeout=None)
    tree = read_tree(whole)
    del tree["manifest.json"]  # knows the sizes of items
    lines = (whole / "skipped.jsonl").read_text().splitlines()
    keys = [json.loads(line)["key"] for line in lines]
    entries = [json.dumps({"key": k, "reason": said[k]}, separators=(",", ":")) for k in keys]
    tree["skipped.jsonl"] = "".join(f"{entry}\n" for entry in entries).encode()
    return tree


def without_manifest(out: Path) -> dict[str, bytes]:
    tree = read_tree(out)
    del tree["manifest.json"]
    return tree


def test_worker_processes_that_die_are_outlived_and_the_items_named(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    fatal = {"train/001": "segv", "train/004": "exit", "train/008": "kill"}
    items = {key: b"die " + how.encode() for key, how in fatal.items()}
    write_items(source, {**numbered_items(10), **items})

    report = prepare(source, out, mark=tmp_path / "mark", backend="loky", timeout=None)

    said = {key: SAID[how] for key, how in fatal.items()}
    assert dict(report.skipped) == said
    assert without_manifest(out) == expected_tree(tmp_path, said)


def test_an_item_that_never_ends_is_left_out_after_its_time(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    write_items(source, {**numbered_items(10), "train/005": b"die sleep"})

    report = prepare(source, out, mark=tmp_path / "mark", backend="auto", timeout=3.0)

    said = {"train/005": "not done within 3 s (--item-timeout)"}
    assert (dict(report.skipped), report.backend) == (said, "loky")
    assert without_manifest(out) == expected_tree(tmp_path, said)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_item_of_the_only_shard_is_left_out_too(tmp_path: Path, workers: int) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    write_items(source, {**numbered_items(10), "train/005": b"die sleep"})
    recipe = DigestRecipe(block=str(tmp_path / "mark"))
    options = RunOptions(workers=workers, backend="loky", item_timeout=2)
    report = run(plan_digests(source, out, options, recipe), options)
    assert dict(report.skipped) == {"train/005": "not done within 2 s (--item-timeout)"}
    assert report.made == 9


def test_an_item_that_ends_after_its_time_is_left_out_as_well(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    write_items(source, {**numbered_items(6), "train/005": b"die slow"})
    report = prepare(source, out, mark=tmp_path / "mark", backend="auto", timeout=1.0)
    assert dict(report.skipped) == {"train/005": "not done within 1 s (--item-timeout)"}


@pytest.mark.parametrize("how", ["segv", "kill"])
def test_a_process_of_threads_dies_once_and_the_next_run_goes_on_without_the_item(
    how: str, tmp_path: Path
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    write_items(source, {**numbered_items(10), "train/005": b"die " + how.encode()})
    words = ["threading", source, out, tmp_path / "mark"]
    died = subprocess.run(
        [sys.executable, "-m", "tests.crash.held", *map(str, words)],
        cwd=ROOT,
        timeout=SECONDS,
        check=False,
        capture_output=True,
    )
    assert died.returncode == -(signal.SIGSEGV if how == "segv" else signal.SIGKILL)
    recipe = DigestRecipe(block=str(tmp_path / "mark"))
    options = RunOptions(shard_nbytes=2 * row_nbytes(recipe), workers=2, backend="threading")

    report = run(plan_digests(source, out, options, recipe), options)

    assert dict(report.skipped) == {"train/005": SAID[how]}
    assert report.samples == {"train": 9}
    assert not (out / ".prep").exists()


def test_who_was_in_work_when_a_run_was_killed_is_not_left_out(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    write_items(source, numbered_items(6))
    options = RunOptions(shard_nbytes=3 * row_nbytes())
    plan = plan_digests(source, out, options)
    (out / ".prep").mkdir(parents=True)
    notes = Notes(out / ".prep", plan.run_hash)
    notes.begin("train", 1, 0, 3)  # as a process that was killed leaves it
    (note,) = read_notes(out / ".prep", plan.run_hash)
    assert (note.pid, note.split, note.shard, note.first, note.count) == (
        os.getpid(), "train", 1, 0, 3,
    )  # fmt: skip
    assert time.monotonic() - note.since < SECONDS
    assert read_notes(out / ".prep", "0" * 64) == []

    tasks = list(plan.tasks())
    assert without_fatal(tasks, out, None) == tasks
    assert read_notes(out / ".prep", plan.run_hash) == []


def test_no_thread_writes_a_note_where_another_file_is_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number of a closed descriptor is that of the next file which is opened."""
    source, out = tmp_path / "source", tmp_path / "out"
    write_items(source, {"train/0": b"die slow", "train/1": b"fault"})
    recipe = DigestRecipe(side=100_000, fault="exception")  # an item is a chunk
    plan = plan_digests(source, out, RunOptions(shard_nbytes=10 * row_nbytes(recipe)), recipe)
    (out / ".prep").mkdir(parents=True)
    others: list[int] = []
    close = Notes.close

    def closed(self: Notes) -> None:
        numbers = [*self._files.values()]
        close(self)
        for number in numbers:
            other = os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT)
            others.append(other if other == number else os.dup2(other, number))

    monkeypatch.setattr(Notes, "close", closed)
    with pytest.raises(RuntimeError, match="the recipe failed"):
        write_shard(replace(next(plan.tasks()), threads=2))
    assert len(others) == 2
    assert [os.fstat(other).st_size for other in others] == [0, 0]


def test_a_time_limit_on_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="a thread cannot be ended"):
        RunOptions(item_timeout=1, backend="threading")
    with pytest.raises(ValueError, match="expected more than 0"):
        RunOptions(item_timeout=0)
    words = ["images", "a", "b", "--sizes", "8", "--item-timeout", "1", "--backend", "threading"]
    result = CliRunner().invoke(prep, words)
    assert result.exit_code == 2
    assert "a thread cannot be ended" in result.stderr
