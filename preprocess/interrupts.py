"""Ctrl-C and the processes that a command starts."""

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, NoReturn

_CTRL_C: Final[Mapping[int, type[BaseException]]] = MappingProxyType(
    {signal.SIGINT: KeyboardInterrupt}
)


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
