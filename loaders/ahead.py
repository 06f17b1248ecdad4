"""Work in threads ahead of the loop that takes it, and memory that goes round."""

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

AHEAD: Final = 2
"""Batches that are gathered or ready before they are asked for."""

_THREADS: Final = 2
"""Large batches gathered at a time: one thread's Python runs beside the other's copying."""

_THREADED_FROM: Final = 1 << 20
"""Bytes of a batch from which two threads are faster. The Python of smaller ones takes longer than
their copying, and two threads then wait for each other: 64 windows of 1,024 tokens took 232
microseconds with one and 320 with two."""

_TOGETHER: Final = 8
"""Small batches that are gathered in one go."""

_TOGETHER_NBYTES: Final = 1 << 21
"""Bytes that are: 8 batches of 64 windows of 1,024 tokens went 1.3 times as fast as one by one, and
16 left the processor's cache."""

_POOLED_FROM: Final = 1 << 20
"""Bytes of an array from which fresh memory costs more than copying into it: it is zeroed first."""

Block = TypeVar("Block")
Result = TypeVar("Result")


class BufferPool:
    """Large arrays that are used again when nobody else holds them.

    A fresh array of a batch's size is memory that the kernel clears page by page while it is
    filled: measured at 0.3 to 0.8 of the rate of copying into memory that was used before. An
    array is free again when the pool's own reference is the only one left: every tensor and view
    over it holds it, so a batch that is kept is never overwritten.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._arrays: deque[NDArray[Any]] = deque()
        self._lock = threading.Lock()
        # How many references a free array has here differs between versions of Python.
        self._arrays.append(np.empty(1, np.uint8))
        self._free_count = next(iter(self._counted()))[1]
        self._arrays.clear()

    def _counted(self) -> Iterator[tuple[NDArray[Any], int]]:
        for array in self._arrays:
            yield array, sys.getrefcount(array)

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array of that shape and dtype with arbitrary content."""
        if np.dtype(dtype).itemsize * math.prod(shape) < _POOLED_FROM:
            return np.empty(shape, dtype)
        with self._lock:
            for array, count in self._counted():
                if count == self._free_count and (array.shape, array.dtype) == (shape, dtype):
                    return array
            if len(self._arrays) == self._limit:
                self._arrays.popleft()
            self._arrays.append(np.empty(shape, dtype))
            return self._arrays[-1]


def run_ahead(
    function: Callable[[Block], Result],
    blocks: Iterable[Block],
    nbytes: Callable[[Block], int],
    *,
    together: bool = False,
) -> Generator[Result, None, None]:
    """Yield `function(block)` of each block, in order, worked out in threads a few blocks ahead.

    Args:
        function: Called in a thread of its own.
        blocks: Asked for a few more than were yielded.
        nbytes: What `function` copies for a block; asked of the first.
        together: Work small blocks out some at a time: handing one from thread to thread takes
            longer than to gather it. An error is then raised up to as many blocks earlier.
    """
    blocks = iter(blocks)
    first = next(blocks, None)
    if first is None:
        return
    size = nbytes(first)
    threads = _THREADS if size >= _THREADED_FROM else 1
    count = max(1, min(_TOGETHER, _TOGETHER_NBYTES // max(1, size))) if together else 1
    pool = ThreadPoolExecutor(threads, thread_name_prefix="prep-gather")
    running: deque[Future[list[Result]]] = deque()
    rest = chain([first], blocks)
    try:
        while group := list(islice(rest, count)):
            running.append(pool.submit(_work_out, function, group))
            if len(running) > AHEAD:
                yield from running.popleft().result()
        while running:
            yield from running.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _work_out(function: Callable[[Block], Result], blocks: list[Block]) -> list[Result]:
    return [function(block) for block in blocks]
