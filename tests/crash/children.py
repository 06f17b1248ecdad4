"""Scripts of the crash tests, run in processes of their own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

SECONDS = 3600
"""Beyond any machine's load, as a thorough test alone takes ten minutes: none waits in vain."""


def output_of(script: str, *words: str | Path | int) -> str:
    """Run a script to its end; return what it printed.

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
    return done.stdout
