"""Work in threads ahead of the loop that takes it, and memory that goes round."""

import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.line import Block, Groups, Job, Line, Result

AHEAD: Final = 1
"""Batches that are gathered or ready before they are asked for, beside the next one. With two,
batches of 64 images of 224 x 224 took 1.2 times as long: one more buffer in the cache."""

_THREADS: Final = 2
"""Large batches gathered at a time: one thread's Python runs beside the other's copying."""

THREADED_FROM: Final = 1 << 20
"""Copied bytes of a batch from which two threads are faster. The Python of smaller ones takes
longer than their copying, and two threads then wait for each other: 64 windows of 1,024 tokens took
153 microseconds with one and 273 with two."""

_THREADED_MADE: Final = 1 << 22
"""Bytes made of a batch from which they are: windows of 2,048 took 214 and 230, of 4,096 278 and
264, of 8,192 514 and 381."""

_TOGETHER: Final = 8
"""Small batches that are gathered in one go."""

_TOGETHER_NBYTES: Final = 1 << 21
"""Bytes that are: 8 batches of 64 windows of 1,024 tokens went 1.3 times as fast as one by one, and
16 left the processor's cache."""

_POOLED_FROM: Final = 1 << 16
"""Bytes of an array from which fresh memory may be new to the process: it is then zeroed first, and
where a page costs the kernel 3 microseconds that takes longer than to fill it."""

_POOLED_NBYTES: Final = 1 << 25
"""Bytes up to which small arrays of one size are kept, for batches that are made together."""

_ALIKE: Final = 2
"""Arrays of one size in a batch, as x and y are."""

_SIZES: Final = 8
"""Sizes of which arrays are kept: samples of many lengths would pile up."""

_SIZE_BITS: Final = 4
"""Leading bits that tell sizes apart: arrays of about the same size, as batches of pictures of
several shapes are, share memory of which at most an eighth is not used, nor ever touched."""


class BufferPool:
    """Arrays that are used again when nobody else holds them; not the smallest.

    A fresh array of a batch's size is memory that the kernel clears page by page while it is
    filled: measured at 0.3 to 0.8 of the rate of copying into memory that was used before. An
    array is free again when the pool's own reference is the only one left: every tensor and view
    over it holds it, so a batch that is kept is never overwritten.

    Args:
        limit: Arrays of one size that are kept, where they are large.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[int, deque[NDArray[np.uint8]]] = {}
        self._lock = threading.Lock()
        # How many references a free array has here differs between versions of Python.
        alone = deque([np.empty(1, np.uint8)])
        self._free_count = next(n for n in range(1, 16) if _first_free(alone, n) is not None)

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array of that shape and dtype with arbitrary content."""
        nbytes = dtype.itemsize * math.prod(shape)
        if nbytes < _POOLED_FROM:
            return np.empty(shape, dtype)
        coarse = nbytes.bit_length() - _SIZE_BITS
        size = -(-nbytes >> coarse) << coarse
        with self._lock:
            arrays = self._kept.pop(size, None) or deque()
            self._kept[size] = arrays  # the last is the one that was used last
            found = _first_free(arrays, self._free_count)
            if found is None:
                most = min(_POOLED_NBYTES // size, _ALIKE * _TOGETHER * self._limit)
                if len(arrays) >= max(self._limit, most):
                    arrays.popleft()
                found = np.empty(size, np.uint8)
                arrays.append(found)
                if len(self._kept) > _SIZES:
                    del self._kept[next(iter(self._kept))]
            return np.ndarray(shape, dtype, found)  # 0.3 microseconds, as views of views 1


def _first_free(arrays: deque[NDArray[np.uint8]], free_count: int) -> NDArray[np.uint8] | None:
    for array in arrays:
        if sys.getrefcount(array) == free_count:
            return array
    return None


def usable_processors() -> int:
    """Return how many processors this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


def run_ahead(
    function: Callable[[Block], Result],
    blocks: Iterable[Block],
    nbytes: Callable[[Block], int],
    *,
    ahead: int = AHEAD,
    together: bool = False,
    made_nbytes: int = 0,
    pause: float = 0.0,
) -> Generator[Result, None, None]:
    """Yield `function(block)` of each block, in order, worked out in threads a few blocks ahead.

    Args:
        function: Called in one of up to two threads.
        blocks: Asked for a few more than were yielded, by these threads too, one at a time.
        nbytes: What `function` copies for a block; asked of the first.
        ahead: Blocks that are begun while the loop has one, at least 1; one more while it waits.
        together: Work small blocks out some at a time: handing one from thread to thread takes
            longer than to gather it. An error is then raised up to as many blocks earlier.
        made_nbytes: What `function` makes of a block beside copying it.
        pause: Seconds for which a thread lets the loop go on that has woken it, where blocks are
            ready.
    """
    blocks = iter(blocks)
    first = next(blocks, None)
    if first is None:
        return
    size = nbytes(first)
    large = size >= THREADED_FROM or made_nbytes >= _THREADED_MADE
    threads = _THREADS if large else 1
    count = max(1, min(_TOGETHER, _TOGETHER_NBYTES // max(1, size))) if together else 1
    groups = Groups(chain([first], blocks), count)
    line = Line(function, groups, threads)
    begun: deque[Job[Block, Result]] = deque()

    def begin(most: int, wait: float = 0.0) -> None:
        while len(begun) < most and (group := groups.take()):
            begun.append(line.begin(group, wait))

    try:
        begin(ahead + 1)
        while begun:
            # What is ready is taken before a thread is woken for more.
            is_ready = begun[0].is_done
            if not is_ready:
                begin(ahead + 1)
            results = begun.popleft().result()
            begin(max(1, ahead), pause if is_ready else 0.0)
            yield from _let_go(results)
    finally:
        line.close()


def _let_go(results: list[Result]) -> Iterator[Result]:
    """Yield results, and keep none that was yielded: its memory can be used for the next ones."""
    results.reverse()
    while results:
        yield results.pop()
