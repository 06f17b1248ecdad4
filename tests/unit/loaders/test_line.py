"""Blocks are worked out in order by threads that end with the loop, and with the process."""

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.ahead import run_ahead


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
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    # What was in work is done, not cut off; what was not begun never is.
    assert sorted(map(int, ended.stdout.split())) == [*range(len(ended.stdout.split()))]
    assert 2 <= len(ended.stdout.split()) <= 4
