"""Commands that are killed at random moments; `python -m tests.kills` does so a thousand times."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import SECONDS

ROOT = Path(__file__).parents[2]

SCRIPT = """
import sys
from pathlib import Path
from tests.kills import kill_runs
print(sum(kill_runs(int(sys.argv[2]), 1, Path(sys.argv[1]), ["images", "list table"]).values()))
"""


@pytest.mark.slow
def test_commands_killed_at_random_moments_are_finished_by_the_same_command(tmp_path: Path) -> None:
    # In a process of its own: it forks, and this one has threads.
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), "6"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
