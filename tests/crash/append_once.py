"""Run by the crash tests in a process of its own: one append, ended at a call if that is not 0.

python -m tests.crash.append_once NTH SOURCE OUT
"""

import sys
from pathlib import Path

from tests.crash.append_bomb import append
from tests.crash.bomb import KILLED, arm, in_child

if __name__ == "__main__":
    nth, source, out = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])

    def work() -> None:
        if nth:
            arm(nth)
        append("tensor", source, out)

    code = in_child(work)
    if code != (KILLED if nth else 0):
        raise RuntimeError(f"the append ended with {code}")
