"""Ctrl-C, the end of a command, and the processes that it starts."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, NoReturn

_CTRL_C: Final[Mapping[int, type[BaseException]]] = MappingProxyType(
    {signal.SIGINT: KeyboardInterrupt}
)

_LOOKS_SECONDS: Final = 1.0
"""Between two looks at whether the parent lives."""


@contextmanager
def ended_once(raised: Mapping[int, type[BaseException]] = _CTRL_C) -> Iterator[None]:
    """Let the first of some signals end what runs here, and ignore all later ones until it has.

    A second Ctrl-C ended the clean-up of the first, and the helpers that it starts: processes were
    waited for that nobody had told to end, or lived on.

    Args:
        raised: Signal -> what it raises. One that a caller has a handler for is left to that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: signal.getsignal(number) for number in raised}
    before = {number: handler for number, handler in before.items() if handler in ours}

    def end(number: int, _: object) -> NoReturn:
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        raise raised[number]

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


# NOTE [ Workers end with their parent ]
# A worker of loky that waits for work waits 300 s, and one at work goes on, when its parent was
# killed: it holds the parent's stderr, a terminal or a pipe that someone reads to its end, and
# memory. Linux could kill it by itself (PR_SET_PDEATHSIG), but would do so when the parent's thread
# ends that started it, and a pool outlives that.


def end_with_parent(parent: int) -> None:
    """Let this process end soon after its parent, even one that is killed.

    What is in work here ends as by SIGKILL.

    Args:
        parent: Process id of the one that starts this, as that knows it.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOKS_SECONDS)
        os._exit(1)  # nobody is left to be told why

    threading.Thread(target=watch, name="prep-parent", daemon=True).start()
