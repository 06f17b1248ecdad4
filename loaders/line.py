"""Threads that work blocks out in order, for one loop."""

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

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
        self.prepare()
        return _taken(self._ready)

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
        self._found: deque[list[Result] | BaseException] = deque()
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
            self._found.append([function(block) for block in self._blocks])
        except BaseException as error:  # noqa: BLE001 - raised where the result is taken
            self._found.append(error)
        self._unfinished.release()

    def drop(self) -> None:
        """Have whoever waits told that nothing will come."""
        self._found.append(RuntimeError("the loop has ended"))
        self._unfinished.release()

    def result(self) -> list[Result]:
        """Wait for what comes of the blocks, and raise what the function raised; asked for once."""
        with self._unfinished:
            return _taken(self._found)


def _taken(kept: deque[list[Block] | BaseException]) -> list[Block]:
    """Take the first of what is kept: return a list, raise an error."""
    found = kept.popleft()
    if isinstance(found, BaseException):
        try:
            raise found
        finally:
            del found  # its traceback leads here, and to all that the loop holds
    return found


class Worker(threading.Thread):
    """A thread of a line. A daemon: for others the interpreter waits before it ends lines."""


class Line(Generic[Block, Result]):
    """Threads that work jobs out in the order in which they are begun.

    They end by `close`, with the last reference to the line, or before the interpreter goes.
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
        self._jobs: _Jobs[Block, Result] = _Jobs()
        # They do not hold the line itself.
        work = partial(_work, self._jobs, function, groups)
        workers = [
            Worker(target=work, name=f"prep-gather-{number}", daemon=True)
            for number in range(threads)
        ]
        self.close = weakref.finalize(self, _end, self._jobs, workers)
        """Drops what is not begun, and waits until the threads have ended."""
        for worker in workers:
            worker.start()

    def begin(self, blocks: list[Block], pause: float) -> Job[Block, Result]:
        """Have a group worked out, after so many seconds.

        Raises:
            RuntimeError: The line has ended.
        """
        job: Job[Block, Result] = Job(blocks, pause)
        self._jobs.put(job)
        return job


class _Jobs(Generic[Block, Result]):
    """Jobs on their way to the threads."""

    def __init__(self) -> None:
        self.is_closed = False
        self._waiting: SimpleQueue[Job[Block, Result] | None] = SimpleQueue()

    def put(self, job: Job[Block, Result]) -> None:
        """Hand a job on."""
        if self.is_closed:
            raise RuntimeError("the loop has ended")
        self._waiting.put(job)

    def take(self) -> Job[Block, Result] | None:
        """Wait for the next job; None for no more."""
        job = self._waiting.get()
        while job is not None and self.is_closed:
            job.drop()
            job = self._waiting.get()
        return job

    def close(self, count: int) -> None:
        """Have so many threads drop what waits, and end."""
        self.is_closed = True
        for _ in range(count):
            self._waiting.put(None)


def _work(
    jobs: _Jobs[Block, Result], function: Callable[[Block], Result], groups: Groups[Block]
) -> None:
    while (job := jobs.take()) is not None:
        job.work_out(function)
        del job  # and with it the memory of its batches
        groups.prepare()


def _end(jobs: _Jobs[Any, Any], workers: Sequence[Worker]) -> None:
    """End the threads of a line, and wait for them."""
    jobs.close(len(workers))
    if isinstance(threading.current_thread(), Worker):
        return  # memory is cleared up here, maybe within a lock that another of them waits for
    for worker in workers:
        if worker.ident is not None:  # it was started
            worker.join()
