"""Threads that work blocks out in order, for one loop."""

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from queue import SimpleQueue
from typing import Any, Generic, TypeVar
from weakref import WeakSet

Block = TypeVar("Block")
Result = TypeVar("Result")


class Groups(Generic[Block]):
    """Blocks by the group, the next of which is asked for before it is wanted.

    Args:
        blocks: Asked in one thread at a time.
        count: Blocks in a group.
    """

    def __init__(self, blocks: Iterator[Block], count: int) -> None:
        self._blocks = blocks
        self._count = count
        self._ready: deque[list[Block] | BaseException] = deque()
        self._lock = threading.Lock()

    def take(self) -> list[Block]:
        """Return the next group, empty after the last, or raise what the blocks raised."""
        with self._lock:
            found = self._ready.popleft() if self._ready else self._ask()
        if isinstance(found, BaseException):
            raise found
        return found

    def prepare(self) -> None:
        """Ask for the next group, unless it is ready."""
        with self._lock:
            if not self._ready:
                self._ready.append(self._ask())

    def _ask(self) -> list[Block] | BaseException:
        try:
            return list(islice(self._blocks, self._count))
        except BaseException as error:  # noqa: BLE001 - raised where the group is taken
            return error


class Job(Generic[Block, Result]):
    """A group of blocks, and what comes of them."""

    def __init__(self, blocks: list[Block], pause: float) -> None:
        self._blocks = blocks
        self._pause = pause
        self._found: list[Result] | BaseException = []
        self._unfinished = threading.Lock()
        self._unfinished.acquire()

    @property
    def is_done(self) -> bool:
        """Whether `result` returns at once."""
        return not self._unfinished.locked()

    def work_out(self, function: Callable[[Block], Result]) -> None:
        """Call the function for each block; never raises."""
        try:
            if self._pause:
                time.sleep(self._pause)
            self._found = [function(block) for block in self._blocks]
        except BaseException as error:  # noqa: BLE001 - raised where the result is taken
            self._found = error
        self._unfinished.release()

    def result(self) -> list[Result]:
        """Wait for what comes of the blocks, and raise what the function raised."""
        with self._unfinished:
            found, self._found = self._found, []
        if isinstance(found, BaseException):
            raise found
        return found


class Line(Generic[Block, Result]):
    """Threads that work jobs out in the order in which they are begun.

    `ThreadPoolExecutor` took 55 microseconds to take a job from a loop that had slept through a
    step of 5 ms, this 13: its futures wake whoever may wait for them in several ways.

    Args:
        function: What is called for each block.
        groups: Told to have the next group ready after each job: here, not in the loop's way.
        threads: How many.
    """

    def __init__(
        self, function: Callable[[Block], Result], groups: Groups[Block], threads: int
    ) -> None:
        self._queue: SimpleQueue[Job[Block, Result] | None] = SimpleQueue()
        self._is_closed = False
        self._threads = [
            # At the end of the process no thread is waited for that waits for jobs itself.
            threading.Thread(
                target=self._work, args=(function, groups), name=f"prep-gather-{n}", daemon=True
            )
            for n in range(threads)
        ]
        _open_lines.add(self)
        for thread in self._threads:
            thread.start()

    def begin(self, blocks: list[Block], pause: float) -> Job[Block, Result]:
        """Have a group worked out, after so many seconds."""
        job: Job[Block, Result] = Job(blocks, pause)
        self._queue.put(job)
        return job

    def _work(self, function: Callable[[Block], Result], groups: Groups[Block]) -> None:
        while (job := self._queue.get()) is not None and not self._is_closed:
            job.work_out(function)
            groups.prepare()
            del job  # and with it the memory of its batches

    def close(self) -> None:
        """Drop what is not begun, and wait until the threads have ended."""
        self._is_closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():  # as when memory is cleared up there
                thread.join()


_open_lines: WeakSet[Line[Any, Any]] = WeakSet()


@atexit.register
def _close_lines() -> None:
    """End the threads of loops that were left in the middle, before the interpreter goes."""
    for line in list(_open_lines):
        line.close()
