"""The first signal ends what runs; later ones are ignored until it has ended."""

import os
import signal
import threading

import pytest

from preprocess.interrupts import ended_once


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_only_the_first_of_several_interrupts_is_raised() -> None:
    before = signal.getsignal(signal.SIGINT)
    cleaned = []

    @ended_once()
    def work() -> None:
        try:
            interrupt()
        finally:
            interrupt()
            interrupt()
            cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert cleaned
    assert signal.getsignal(signal.SIGINT) is before


def test_any_of_the_signals_is_the_first_and_raises_what_is_said() -> None:
    @ended_once({signal.SIGTERM: EOFError, signal.SIGINT: IndexError})
    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            interrupt()

    with pytest.raises(EOFError):
        work()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_of_the_caller_stays_and_is_called() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        with ended_once():
            interrupt()
            interrupt()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT] * 2


def test_nothing_is_changed_outside_the_main_thread() -> None:
    before = signal.getsignal(signal.SIGINT)
    found = []

    def look() -> None:
        with ended_once():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [before]
