"""Nothing leaks: each test of `leaks_alone` passes in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end import leaks_alone

ROOT = Path(__file__).parents[2]
NAMES = [name for name in vars(leaks_alone) if name.startswith("test_")]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left(name: str) -> None:
    place = f"{Path(leaks_alone.__file__).relative_to(ROOT)}::{name}"
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", place]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout or "needs /proc" in done.stdout
