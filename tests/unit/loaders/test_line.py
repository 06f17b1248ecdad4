"""Blocks are worked out in order by threads that end with the loop, and with the process."""

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.ahead import run_ahead
from loaders.line import Groups, Line, Worker
from tests.waiting import SECONDS


def _names() -> list[str]:
    found = (thread.name for thread in threading.enumerate())
    return [name for name in found if name.startswith("prep-gather")]


@given(
    count=st.integers(0, 40),
    nbytes=st.sampled_from([1, 1 << 18, 1 << 20]),
    ahead=st.integers(0, 4),
    together=st.booleans(),
    pause=st.sampled_from([0.0, 1e-5]),
    stop=st.integers(0, 40),
)
def test_results_come_in_order_and_nothing_is_left_behind(
    count: int, nbytes: int, ahead: int, together: bool, pause: float, stop: int
) -> None:
    asked = []

    def blocks() -> Iterator[int]:
        for number in range(count):
            asked.append(number)
            yield number

    results = run_ahead(
        lambda block: -block, blocks(), lambda _: nbytes, ahead=ahead, together=together,
        pause=pause,
    )  # fmt: skip
    found = [result for result, _ in zip(results, range(stop), strict=False)]
    results.close()
    assert found == [-number for number in range(min(count, stop))]
    assert asked == [*range(len(asked))]
    if not together:  # the first, those ahead, the next, and one group that is ready
        assert len(asked) <= min(count, stop + max(1, ahead) + 3)
    assert not _names()


@pytest.mark.parametrize("nbytes", [1 << 10, 1 << 20])
@pytest.mark.parametrize("broken", ["blocks", "function"])
def test_an_error_comes_where_the_result_would_have(broken: str, nbytes: int) -> None:
    def blocks() -> Iterator[int]:
        for number in range(9):
            if broken == "blocks" and number == 5:
                raise LookupError("no sixth block")
            yield number

    def function(block: int) -> int:
        if broken == "function" and block == 5:
            raise LookupError("no sixth block")
        return block

    results = run_ahead(function, blocks(), lambda _: nbytes)
    found = []
    with pytest.raises(LookupError, match="no sixth block"):
        found.extend(iter(results.__next__, None))
    assert found == [*range(len(found))]
    assert len(found) <= 5
    assert broken == "blocks" or len(found) == 5
    assert not _names()


def test_a_process_ends_that_leaves_a_loop_in_the_middle() -> None:
    code = (
        "import os, threading, time\n"
        "from loaders.ahead import run_ahead\n"
        "def work(block):\n"
        "    time.sleep(0.05)\n"
        "    os.write(1, b'%d ' % block)\n"
        "results = run_ahead(work, range(9), lambda _: 1 << 20)\n"
        "next(results)\n"
        "assert threading.active_count() == 3\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    # What was in work is done, not cut off; what was not begun never is.
    assert sorted(map(int, ended.stdout.split())) == [*range(len(ended.stdout.split()))]
    assert 2 <= len(ended.stdout.split()) <= 4


def test_a_loop_may_be_cleared_up_in_one_of_its_threads() -> None:
    # There it holds the lock for the next group, which the other thread comes to.
    code = (
        "import gc, threading, time\n"
        "from loaders.ahead import run_ahead\n"
        "gc.disable()\n"
        "def blocks():\n"
        "    for number in range(100):\n"
        "        if threading.current_thread() is not threading.main_thread():\n"
        "            time.sleep(0.3)\n"
        "            gc.collect()\n"
        "        yield number\n"
        "def begin():\n"
        "    results = run_ahead(lambda block: time.sleep(0.05), blocks(), lambda _: 1 << 20)\n"
        "    itself = [results]\n"
        "    itself.append(itself)\n"
        "    next(results)\n"
        "begin()\n"
        "for thread in threading.enumerate():\n"
        "    if thread is not threading.main_thread():\n"
        "        thread.join()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, timeout=SECONDS)
    assert ended.returncode == 0


def test_a_line_that_has_ended_takes_no_job_and_lets_nobody_wait() -> None:
    begun, going_on = threading.Event(), threading.Event()

    def work(block: int) -> int:
        begun.set()
        going_on.wait(SECONDS)
        return block

    line = Line(work, Groups(iter([]), 1), threads=1)
    jobs = [line.begin([number], 0.0) for number in range(3)]
    assert begun.wait(SECONDS)
    ending = threading.Thread(target=line.close)
    ending.start()
    while line.close.alive:
        time.sleep(0.001)
    going_on.set()
    ending.join()
    assert jobs[0].result() == [0]  # it was in work
    for job in jobs[1:]:
        with pytest.raises(RuntimeError, match="the loop has ended"):
            job.result()
    with pytest.raises(RuntimeError, match="the loop has ended"):
        line.begin([3], 0.0)


@pytest.mark.parametrize("broken", ["blocks", "function"])
def test_an_error_that_was_handled_holds_nothing(broken: str) -> None:
    class Model:
        """What a training loop holds."""

    def blocks() -> Iterator[int]:
        yield 0
        if broken == "blocks":
            raise LookupError
        yield 1

    def function(block: int) -> int:
        return 1 // (1 - block)

    def train(model: Model) -> None:
        with suppress(LookupError, ZeroDivisionError):
            for _ in run_ahead(function, blocks(), lambda _: 1):
                assert model

    gc.collect()
    gc.disable()
    try:
        model = Model()
        known = weakref.ref(model)
        train(model)
        del model
        assert known() is None
    finally:
        gc.enable()


def test_threads_that_cannot_all_be_started_end(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Worker.start
    started: list[Worker] = []

    def start_one(worker: Worker) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(worker)
        start(worker)

    monkeypatch.setattr(Worker, "start", start_one)
    with pytest.raises(RuntimeError, match="can't start"):
        next(run_ahead(lambda block: block, range(9), lambda _: 1 << 20))
    started[0].join(SECONDS)
    assert not started[0].is_alive()
