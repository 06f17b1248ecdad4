"""The most memory that a command takes, measured in a process of its own."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_SCRIPT = """
import sys
from pathlib import Path
from preprocess.cli import prep
try:
    prep(sys.argv[1:])
finally:
    held = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
    print(f"\\npeak {held}", file=sys.stderr)
"""


class Peak(NamedTuple):
    """How a command ended, what it said, and the bytes that it had in memory at most."""

    code: int
    said: str
    nbytes: int


def peak_of(*words: str | Path) -> Peak:
    """Run `prep` with these words, on one worker."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *map(str, words), "--workers", "1"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    said, _, held = done.stderr.rpartition("\npeak ")
    return Peak(done.returncode, said, 1024 * int(held))
