"""Scripts of the crash tests, run in processes of their own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SECONDS = 600
"""Beyond any machine's load; what is waited for ends by itself."""


def last_stop(script: str, *words: str | Path | int) -> int:
    """Run a script that stops runs at call after call; return the last call that it printed.

    Raises:
        AssertionError: It failed; the message is what it wrote to stderr.
    """
    done = subprocess.run(
        [sys.executable, "-m", f"tests.crash.{script}", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
