"""A run that is stopped anywhere: what is left, and that the same command finishes it."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from loaders.format.files import WORK
from loaders.format.spec import Container
from preprocess.errors import OutputError
from preprocess.plan import RunOptions
from preprocess.run import run
from tests.recipes import (
    STORED,
    DigestRecipe,
    numbered_items,
    plan_digests,
    read_tree,
    row_nbytes,
    write_items,
)
from tests.waiting import SECONDS

ROOT = Path(__file__).parents[2]


def start(script: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.crash.{script}", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def output_of(script: str, *arguments: str | Path) -> str:
    process = start(script, *arguments)
    stdout, stderr = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, stderr.decode()
    return stdout.decode()


def items_of_two_splits() -> dict[str, bytes]:
    return {
        **numbered_items(5, bad=(1,)),
        **numbered_items(2, split="validation", bad=(0,)),
    }


@pytest.mark.parametrize(
    ("stored", "stride"),
    [
        ("tensor", 1),
        ("zarr", 7),
        ("jpeg", 5),
        ("zstd", 7),
        *(pytest.param(s, 1, marks=pytest.mark.thorough) for s in ("zarr", "jpeg", "zstd")),
    ],
)
def test_a_run_that_is_killed_at_any_call_is_finished_by_the_same_command(
    stored: str, stride: int, tmp_path: Path
) -> None:
    write_items(tmp_path / "source", items_of_two_splits())

    calls = output_of("bomb", stored, str(stride), tmp_path / "source", tmp_path)

    assert int(calls) > 60


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    ("container", "stride"),
    [
        pytest.param("tensor", 1, marks=pytest.mark.slow),
        pytest.param("zarr", 1, marks=pytest.mark.thorough),
    ],
)
def test_an_overwriting_run_that_is_killed_at_any_call_is_finished_by_the_same_command(
    container: Container, stride: int, finished: bool, tmp_path: Path
) -> None:
    old = numbered_items(7) if finished else {**numbered_items(7), "train/005": b"fault"}
    write_items(tmp_path / "old", old)
    write_items(tmp_path / "source", items_of_two_splits())
    recipe = DigestRecipe(side=3, fault="exception")
    options = RunOptions(container=container, shard_nbytes=row_nbytes(recipe) * 2, workers=1)
    plan = plan_digests(tmp_path / "old", tmp_path / "before", options, recipe)
    if finished:
        run(plan, options)
    else:
        with pytest.raises(RuntimeError, match="the recipe failed"):
            run(plan, options)

    arguments = [tmp_path / "source", tmp_path, tmp_path / "before"]
    calls = output_of("bomb", container, str(stride), *arguments)

    assert int(calls) > 60


@pytest.mark.parametrize(
    ("container", "stride"),
    [("tensor", 2), *(pytest.param(c, 1, marks=pytest.mark.thorough) for c in ("tensor", "zarr"))],
)
def test_what_a_run_leaves_that_is_killed_at_any_call_can_be_overwritten_by_another(
    container: Container, stride: int, tmp_path: Path
) -> None:
    write_items(tmp_path / "source", items_of_two_splits())

    calls = output_of("bomb", container, str(stride), tmp_path / "source", tmp_path, "replace")

    assert int(calls) > 60


@pytest.mark.parametrize("stored", STORED)
def test_a_disk_that_is_full_at_any_byte_gives_one_error_and_keeps_finished_shards(
    stored: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    # The first shard holds one sample, so that it is smaller than the second.
    write_items(source, numbered_items(10, bad=(1, 2, 3)))
    container, encoding = STORED[stored]
    recipe = DigestRecipe(side=60, encoding=encoding)
    options = RunOptions(container=container, shard_nbytes=4 * row_nbytes(recipe), workers=1)
    run(plan_digests(source, tmp_path / "whole", options, recipe), options)
    expected = read_tree(tmp_path / "whole")
    largest = max(map(len, expected.values()))
    sizes = [0, 1, 127, 128, 129, 500, 1000, 1500, 2000, 2500, largest - 1]

    lines = output_of("limited", stored, source, tmp_path / "out", *map(str, sizes))

    for line in lines.splitlines():
        found = json.loads(line)
        out = tmp_path / f"out{found['nbytes']}"
        assert str(out) in found["message"]
        assert "cannot write: File too large" in found["message"]
        assert not [name for name in found["left"] if name.startswith("tmp-")]
        samples = {f"train.0000{index}.receipt.json": n for index, n in enumerate((1, 4, 2))}
        kept = sum(samples.get(name, 0) for name in found["left"])
        report = run(plan_digests(source, out, options, recipe), options)
        assert report.made == 7 - kept
        assert read_tree(out) == expected
    assert len(lines.splitlines()) == len(sizes)


@contextmanager
def held_run(backend: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a run and wait until it has finished some shards and waits in the middle of one.

    Yields:
        The process, and a descriptor: once it is closed, the item that waits goes on.
    """
    write_items(folder / "source", {**numbered_items(12), "train/009": b"block"})
    fifo = folder / "reached"
    os.mkfifo(fifo)
    os.mkfifo(folder / "reached.end")
    end = os.open(folder / "reached.end", os.O_RDWR)
    reached = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    process = start("held", backend, folder / "source", folder / "out", fifo)
    try:
        ready, _, _ = select.select([reached], [], [], SECONDS)
        assert ready, "the run has not come to the item that waits"
        assert os.read(reached, 1) == b"x"
        yield process, end
    finally:
        os.close(reached)
        # A worker at work would look after its parent only now and then.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def finish(folder: Path) -> None:
    """Give the same command again, and compare with a run that nobody stopped."""
    options = RunOptions(shard_nbytes=2 * row_nbytes(), workers=2)
    kept = len(list((folder / "out" / WORK).glob("*.receipt.json")))
    report = run(plan_digests(folder / "source", folder / "out", options), options)
    # A shard that was stopped between its receipt and its last file is made again.
    assert 12 - 2 * kept <= report.made < 12
    run(plan_digests(folder / "source", folder / "whole", options), options)
    assert read_tree(folder / "out") == read_tree(folder / "whole")


@pytest.mark.parametrize("backend", ["threading", "loky"])
@pytest.mark.parametrize("to_all", [False, True])
@pytest.mark.parametrize("more", [(), (0.0, 0.03, 0.03), (0.1, 0.1)])
def test_an_interrupt_leaves_no_process_and_no_temporary_file(
    backend: str, to_all: bool, more: tuple[float, ...], tmp_path: Path
) -> None:
    with held_run(backend, tmp_path) as (process, end):
        if to_all:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        else:
            process.send_signal(signal.SIGINT)
        for seconds in more:  # somebody who cannot wait
            time.sleep(seconds)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
        os.close(end)
        # Ends only when every descendant has closed its standard error: nobody is left.
        _, stderr = process.communicate(timeout=SECONDS)

        assert process.returncode == -signal.SIGINT, stderr.decode()
        assert not list((tmp_path / "out" / WORK).glob("tmp-*"))
        finish(tmp_path)


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_a_second_run_is_refused_while_the_first_lives_and_not_once_it_was_killed(
    backend: str, tmp_path: Path
) -> None:
    with held_run(backend, tmp_path) as (process, end):
        options = RunOptions(shard_nbytes=2 * row_nbytes())
        plan = plan_digests(tmp_path / "source", tmp_path / "out", options)
        with pytest.raises(OutputError, match=r"out: another prep run is writing here"):
            run(plan, options)
        before = set(read_tree(tmp_path / "out" / "train"))
        with pytest.raises(OutputError, match="another prep run"):
            run(plan, RunOptions(shard_nbytes=2 * row_nbytes(), overwrite=True))
        assert before <= set(read_tree(tmp_path / "out" / "train"))

        os.killpg(process.pid, signal.SIGKILL)
        os.close(end)
        process.communicate(timeout=SECONDS)
        finish(tmp_path)


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    with held_run("loky", tmp_path) as (process, end):
        process.kill()
        # Ends only when every descendant has closed its standard error: nobody is left, though one
        # of them waits for an item that has no end, and the other for work that nobody gives.
        process.communicate(timeout=SECONDS)
        os.close(end)
        finish(tmp_path)
