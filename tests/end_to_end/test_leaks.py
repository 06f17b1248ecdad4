"""Nothing leaks: each test of `leaks_alone` passes in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from loaders.ahead import usable_processors
from tests.end_to_end import leaks_alone

ROOT = Path(__file__).parents[2]
NAMES = [name for name in vars(leaks_alone) if name.startswith("test_")]

Done = subprocess.CompletedProcess[str]


def run_alone(name: str) -> Done:
    place = f"{Path(leaks_alone.__file__).relative_to(ROOT)}::{name}"
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", place]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Done]]]:
    """Return the processes of the tests that were asked for, as many at a time as processors.

    Each looks at itself alone, and judges no time.
    """
    params = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    asked = [name for name in NAMES if {"alone": name} in params]
    with ThreadPoolExecutor(usable_processors()) as pool:
        yield {name: pool.submit(run_alone, name) for name in asked}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("alone", NAMES)
def test_nothing_is_left(alone: str, runs: dict[str, Future[Done]]) -> None:
    done = runs[alone].result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout or "needs /proc" in done.stdout
