"""What the shards that are written by threads of one process share."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Generic, TypeVar

from preprocess.in_work import Notes
from preprocess.recipe import Maker, Recipe

T = TypeVar("T")

_PARTS_WAITING: Final = 4
"""Parts of a result that wait for its turn."""


class Stopped(Exception):  # noqa: N818
    """The run is ending early; the shard in work is dropped."""


class Gate:
    """Lets shards in until the run ends early, and knows when the last one is out.

    joblib leaves its threads running when one of them fails; what they still write must not
    outlive the run's hold on the output folder.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self.is_shut = False

    def __enter__(self) -> None:
        with self._changed:
            if self.is_shut:
                raise Stopped
            self._inside += 1

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def shut(self) -> None:
        """Let nobody in any more, and wait until the last is out."""
        with self._changed:
            self.is_shut = True
            self._changed.wait_for(lambda: self._inside == 0)


class InOrder(Generic[T]):
    """Stores results in the order of their numbers, whichever order they come in.

    The thread that hands in the next one stores it, and those that wait behind it: a result is
    stored where it was made, while it is in that processor's cache, and no further thread has to
    be woken for it. A result may come in parts; of one that does not have its turn, a few wait.

    Args:
        store: Takes one part of a result; never called by two threads at a time.
    """

    def __init__(self, store: Callable[[T], None]) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._ready: dict[int, deque[tuple[T, bool]]] = {}
        self._stored = 0
        self._storing = False
        self._closed = False
        self._error: BaseException | None = None

    def put(self, number: int, part: T, *, last: bool = True) -> None:
        """Hand in a part of a result, and store what has its turn unless another thread is at it.

        Waits while too many parts of a result wait that does not have its turn. Results must be
        begun in order, so that the one that has its turn is always being made.

        Raises:
            Stopped: Nothing is stored any more.
            Exception: What `store` raises; then nothing more is stored.
        """
        with self._changed:
            waiting = self._ready.setdefault(number, deque())
            self._changed.wait_for(
                lambda: (
                    self._closed
                    or len(waiting) < _PARTS_WAITING
                    or (number == self._stored and not self._storing)
                )
            )
            if self._closed:
                raise Stopped
            waiting.append((part, last))
            if self._storing:
                return
            self._storing = True
        self._store_ready()

    def _store_ready(self) -> None:
        while True:
            with self._changed:
                waiting = self._ready.get(self._stored)
                if self._closed or not waiting:
                    self._storing = False
                    self._changed.notify_all()
                    return
                part, last = waiting.popleft()
            try:
                self._store(part)
            except BaseException as error:
                with self._changed:
                    self._storing = False
                    self._closed = True
                    self._error = self._error or error  # before others learn that it is closed
                    self._changed.notify_all()
                raise
            with self._changed:
                if last:
                    del self._ready[self._stored]
                    self._stored += 1
                self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Store no more; whoever waits is told why."""
        with self._changed:
            self._closed = True
            self._error = self._error or error
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        """Wait until so many results are stored, and raise what prevents it."""
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._stored >= count)
            if self._error is not None:
                raise self._error

    def close(self) -> None:
        """Store no more; return when no thread is storing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._storing)


@dataclass(frozen=True, slots=True)
class Shared:
    """What shards in threads of one process share; worker processes have none.

    Attributes:
        pool: Threads that prepare samples.
        threads: How many there are.
        gate: Shut when the run ends early.
        turn: Held by shards that hand samples to the pool; the others wait, or finish.
        makers: The recipes of the run, opened.
        on_chunk: Told (samples, skipped, bytes) as they are made.
        notes: Says what is in work.
    """

    pool: Executor
    threads: int
    gate: Gate
    turn: threading.Semaphore
    makers: Mapping[Recipe, Maker]
    on_chunk: Callable[[int, int, int], None]
    notes: Notes
