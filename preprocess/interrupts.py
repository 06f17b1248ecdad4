"""Ctrl-C and the processes that a command starts."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Let processes that start here ignore Ctrl-C: the command ends them, after its own clean-up.

    A Ctrl-C in this moment is lost to the command as well.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
