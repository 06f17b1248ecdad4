"""Threads that decode the samples of batches, one sample at a time."""

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

from torch.utils.data import get_worker_info

from loaders.local_ranks import own_processors


class DecodeThreads:
    """One thread a processor of this rank's, which all gathers share; started when first needed.

    The thread that asks decodes too, so gathers never wait for each other. Safe across fork: a
    child has threads of its own, and a worker process of a `DataLoader` none beside its own.

    Args:
        most: Threads of a gather, at most; None for this rank's share of the machine's processors.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._pools: dict[
            int, ThreadPoolExecutor
        ] = {}  # by process: a parent's has no threads here

    def run(self, count: int, work: Callable[[int], None]) -> None:
        """Call `work` with 0..count-1, each number once, in any order; return when all are done.

        Raises:
            Exception: What `work` raised first; the rest may have been left out.
        """
        todo = deque(range(count))

        def take() -> None:
            while todo:
                try:
                    number = todo.popleft()
                except IndexError:  # another thread was faster
                    return
                try:
                    work(number)
                except BaseException:
                    todo.clear()
                    raise

        if get_worker_info() is not None:
            take()
            return
        helpers = min(count, self._most or own_processors()) - 1
        if helpers < 1:
            take()
            return
        pool = self._open_pool()
        running = [pool.submit(take) for _ in range(helpers)]
        try:
            take()
        finally:
            begun = [future for future in running if not future.cancel()]
            wait(begun)
            # An error leads to this frame: with a future in it, both would live until the garbage
            # collector came, and the dataset's threads as long.
            running.clear()
        while begun:
            begun.pop(0).result()

    def _open_pool(self) -> ThreadPoolExecutor:
        process = os.getpid()
        found = self._pools.get(process)
        if found is None:
            threads = max(1, (self._most or own_processors()) - 1)
            made = ThreadPoolExecutor(threads, thread_name_prefix="prep-decode")
            found = self._pools.setdefault(process, made)  # another thread may have been faster
        return found
