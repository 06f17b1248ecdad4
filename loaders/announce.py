"""Samples of coming batches, announced to the kernel: it reads them while earlier ones are used."""

import ctypes
import mmap
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import chain, islice
from typing import Any, Final, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from loaders.errors import ShardsError

if sys.platform == "linux":
    import resource

CHUNK_NBYTES: Final = 1 << 25
"""Bytes announced at a time: sorted by place, and many enough to keep a disk busy."""

_CHUNK_SAMPLES: Final = 1 << 16
"""Samples announced at a time, at most: their indices are held."""

_CALL_NBYTES: Final = 1 << 17
"""Bytes of one call: Linux reads no more than its read-ahead of 128 KiB for one."""

_PROBED: Final = 4
"""Samples of a chunk that are announced to see whether the kernel has to read them."""

_LASTING: Final = 8
"""Chunks that are announced after the kernel has read for one, or a copy has waited for a page."""

_PAUSE: Final = 16
"""Chunks without a probe, at most, where all is in memory: a probe takes 0.1 ms."""

_WILLNEED: Final = 3
"""MADV_WILLNEED of Linux."""

Block = TypeVar("Block")


@runtime_checkable
class Stretched(Protocol):
    """A dataset that says in which parts of its maps samples lie."""

    def stretches(self, indices: NDArray[np.int64]) -> Iterator[Iterable[NDArray[Any]]]:
        """Yield them, file by file, for some samples, ascending, without repeats."""
        ...


class Announcer:
    """Has the kernel read what is not in memory, and costs next to nothing where all is.

    Whether it reads shows in what the kernel counts: blocks read on behalf of a thread, and page
    faults that had to wait. Until one of these grows a few samples are tried now and then; after
    that all are announced, in a thread of its own.

    Args:
        dataset: What the samples belong to.
    """

    def __init__(self, dataset: Stretched) -> None:
        self._dataset = dataset
        self._thread: ThreadPoolExecutor | None = None
        self._closed = False
        self._lasting = 0
        self._wait = self._pause = 0
        self._faults = _faults()

    def announce(self, indices: NDArray[np.int64]) -> Future[None] | None:
        """Announce samples [B], in any order.

        Returns:
            Done when the kernel knows of all of them; None where they are taken to be in memory.
        """
        faults = _faults()
        if faults > self._faults or (not self._lasting and self._probed(indices)):
            self._lasting = _LASTING
        self._faults = faults
        if not self._lasting:
            return None
        self._lasting -= 1
        self._pause = 0
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="prep-announce")
        return self._thread.submit(self._announce_all, indices)

    def _probed(self, indices: NDArray[np.int64]) -> bool:
        """Return whether the kernel reads for a few samples; at times do not look."""
        if self._wait:
            self._wait -= 1
            return False
        self._pause = min(_PAUSE, 2 * self._pause + 1)
        self._wait = self._pause
        return self._advise(indices[:: max(1, len(indices) // _PROBED)])

    def _announce_all(self, indices: NDArray[np.int64]) -> None:
        if self._advise(indices):
            self._lasting = _LASTING

    def _advise(self, indices: NDArray[np.int64]) -> bool:
        """Announce samples; return whether the kernel had to read any."""
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_inblock
        try:
            for part in chain.from_iterable(self._dataset.stretches(np.unique(indices))):
                if self._closed:
                    break
                will_need(part)
        except ShardsError:
            # The gather of these samples meets it too, and says so in its turn.
            return False
        return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock > before

    def close(self) -> None:
        """Stop, and wait for the thread."""
        self._closed = True
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def will_need(part: NDArray[Any]) -> None:
    """Announce a C-contiguous part of a map."""
    begin = part.ctypes.data
    end = begin + part.nbytes
    begin -= begin % mmap.PAGESIZE
    advise = _madvise()
    for first in range(begin, end, _CALL_NBYTES):
        advise(first, min(_CALL_NBYTES, end - first), _WILLNEED)


@cache
def _madvise() -> Callable[[int, int, int], int]:
    """Return the call of the C library: other threads run on meanwhile, unlike `mmap.madvise`."""
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return cast("Callable[[int, int, int], int]", advise)


def announce_ahead(
    dataset: object,
    blocks: Iterator[Block],
    indices: Callable[[Block], NDArray[np.int64]],
    count: Callable[[Block], int],
) -> Generator[Block, None, None]:
    """Yield blocks as they come, whose samples were announced a chunk before.

    On systems other than Linux, and for datasets without maps, nothing is announced.

    Args:
        dataset: What the samples belong to.
        blocks: Asked for two chunks ahead.
        indices: The samples of a block.
        count: Blocks in a chunk; asked of the first.
    """
    first = next(blocks, None)
    if first is None:
        return
    if sys.platform != "linux" or not isinstance(dataset, Stretched):
        yield first
        yield from blocks
        return
    announcer = Announcer(dataset)
    size = count(first)
    ready, told = deque([first]), announcer.announce(indices(first))
    try:
        while ready:
            chunk = deque(islice(blocks, size))
            following = None
            if chunk:
                following = announcer.announce(np.concatenate([indices(b) for b in chunk]))
            if told is not None:
                # A page that is touched before the kernel knows of it is read by itself, with
                # neighbours that nobody wants; one that it is reading is waited for.
                told.result()
            while ready:
                yield ready.popleft()
            ready, told = chunk, following
    finally:
        announcer.close()


def chunk_blocks(samples: int, nbytes: int) -> int:
    """Return how many blocks of a size are announced at a time."""
    wanted = min(CHUNK_NBYTES // max(1, nbytes), _CHUNK_SAMPLES // max(1, samples))
    return max(1, wanted)
