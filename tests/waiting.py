"""How long a test waits for what comes by itself: none fails because the machine is busy."""

import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

SECONDS = 600
"""Beyond any machine's load: none waits in vain."""

_LOOKS = 0.002
"""Seconds between two looks, that leave the processor to what is waited for."""


def until(seen: Callable[[], bool], process: subprocess.Popen[Any]) -> None:
    """Wait until something is seen, or a process has ended."""
    while not seen():
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOKS)
            return
