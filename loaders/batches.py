"""Whole batches, gathered in threads of this process; no worker processes, no collating."""

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from loaders.device import PinnedRing, Slot, check_device
from loaders.errors import SelectionError
from loaders.sampling import epoch_order
from loaders.views import Gatherable

_AHEAD: Final = 2
"""Batches that are gathered or ready before they are asked for."""

_THREADS: Final = 2
"""Batches gathered at a time: one thread's Python runs beside the other's copying."""

_POOLED_FROM: Final = 1 << 20
"""Bytes of an array from which fresh memory costs more than copying into it: it is zeroed first."""

Rows = dict[str, NDArray[Any]]
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


class Loader:
    """Iterates over a dataset in batches, one epoch per `for` loop.

    Each pass is the next epoch, with an order of its own that depends on seed and epoch alone.
    Batches are dicts as the dataset makes them; with a CUDA device they arrive there, copied
    from page-locked memory while the batch before is in use.

    Args:
        dataset: What `open_dataset` returns, or a view of `open_tokens` such as `.blocks(1024)`.
        batch_size: Samples in a batch.
        shuffle: Visit the samples in random order; False visits them as stored.
        seed: Fixes the order, with the epoch.
        drop_last: Leave out a last batch that is not full.
        device: Where batches go; None leaves them in host memory.

    Raises:
        SelectionError: The batch size is < 1, or `drop_last` leaves no batch at all.
        DeviceError: There is no such device.
    """

    def __init__(
        self,
        dataset: Gatherable,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
        device: torch.device | str | int | None = None,
    ) -> None:
        if not isinstance(dataset, Gatherable):
            raise SelectionError(
                f"dataset is a {type(dataset).__name__}, expected what open_dataset returns, or a "
                "view of open_tokens such as .blocks(1024); other torch datasets go into a "
                "torch.utils.data.DataLoader"
            )
        if type(batch_size) is not int or batch_size < 1:
            raise SelectionError(f"batch_size={batch_size!r}: expected an integer of at least 1")
        if type(seed) is not int or seed < 0:
            raise SelectionError(f"seed={seed!r}: expected an integer of at least 0")
        if drop_last and 0 < len(dataset) < batch_size:
            raise SelectionError(
                f"batch_size={batch_size}: {dataset.path} has {len(dataset)} {dataset.split} "
                "samples, so no batch is full; use a smaller batch_size or drop_last=False"
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.device = torch.device("cpu") if device is None else check_device(device)
        self._epoch = 0
        # Batches ahead, the one in use, and one that the loop has not let go of yet.
        self._pool = BufferPool(_AHEAD + 2)

    def __len__(self) -> int:
        """Return the batches in an epoch."""
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + bool(rest and not self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass; without this each pass is the next one."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Start the next epoch."""
        order = epoch_order(
            len(self.dataset), shuffle=self.shuffle, seed=self.seed, epoch=self._epoch
        )
        self._epoch += 1
        blocks = np.split(order, range(self.batch_size, len(order), self.batch_size))[: len(self)]
        if self.device.type == "cpu":
            return _run_ahead(self._gather, blocks)
        return self._send(blocks)

    def _gather(self, indices: NDArray[np.int64]) -> dict[str, Any]:
        buffers = {part.name: self._pool.take(*part.layout(indices)) for part in self.dataset.views}
        self.dataset.gather_into(indices, buffers)
        rows = {name: torch.from_numpy(buffer) for name, buffer in buffers.items()}
        return dict(self.dataset.show(rows))

    def _send(self, blocks: list[NDArray[np.int64]]) -> Iterator[dict[str, Any]]:
        # A slot being filled, `_AHEAD` waiting, and one whose copy runs.
        ring = PinnedRing(self.device, slots=_AHEAD + 2)
        gathered = _run_ahead(lambda indices: self._gather_for(ring, indices), blocks)
        waiting: deque[Rows] = deque()

        def slots() -> Iterator[Slot]:
            for slot, kept in gathered:
                waiting.append(kept)
                yield slot

        try:
            for tensors in ring.send_ahead(slots()):
                yield self._show(tensors, waiting.popleft())
        finally:
            ring.close()  # first: the gather thread may be waiting for a slot
            gathered.close()

    def _gather_for(self, ring: PinnedRing, indices: NDArray[np.int64]) -> tuple[Slot, Rows]:
        """Gather into a slot what travels to the device, and beside it what does not."""
        layout = {part.name: part.layout(indices) for part in self.dataset.views}
        travel = {part.name for part in self.dataset.views if part.on_device}
        slot = ring.acquire({name: layout[name] for name in travel})
        kept = {name: np.empty(*layout[name]) for name in layout if name not in travel}
        self.dataset.gather_into(indices, {**slot.arrays, **kept})
        return slot, kept

    def _show(self, tensors: dict[str, torch.Tensor], kept: Rows) -> dict[str, Any]:
        host = {name: torch.from_numpy(rows) for name, rows in kept.items()}
        return dict(self.dataset.show({**tensors, **host}))


def _run_ahead(
    function: Callable[[NDArray[np.int64]], Result], blocks: list[NDArray[np.int64]]
) -> Generator[Result, None, None]:
    """Yield `function(block)` of each block, in order, worked out in threads a few blocks ahead."""
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="prep-gather")
    running: deque[Future[Result]] = deque()
    try:
        for block in blocks:
            running.append(pool.submit(function, block))
            if len(running) > _AHEAD:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
