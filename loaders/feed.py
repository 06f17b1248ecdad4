"""From indices to batches: gathered in threads here, or by the device out of resident samples."""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from loaders.ahead import AHEAD, THREADED_FROM, BufferPool, run_ahead
from loaders.device import PinnedRing, Slot, side_stream
from loaders.finish import Finish
from loaders.local_ranks import own_processors
from loaders.page_cache import keep_in_ram
from loaders.progress import Progress
from loaders.residency import Place, estimate_residency
from loaders.resident import Resident
from loaders.sampling import Share
from loaders.views import Gatherable, Part, batch_nbytes, mapped
from loaders.wanted import Wanted

VALID: Final = "valid"

_INDEX: Final = "index"
"""Rows of resident samples: travels to the device that gathers them; no entry of a batch."""

_PAUSE: Final = 5e-5
"""Seconds for which a thread that gathers for a loop lets it go on first: when the loop drops its
last batch it gives the interpreter away, and would wait for that thread's first Python. Under a
step of 5 ms it waited 0.12 ms for a batch of 64 images, and 0.07 with this."""

_SLOTS_AHEAD: Final = 6
"""Batches for a device that are gathered or ready before they are asked for, beside the next: with
large pieces it takes several to keep all threads at work."""

_PIECE: Final = 1 << 24
"""Bytes of a batch that a thread gathers at a time. 12 threads beside an H200, images of 224 x 224
a second in batches of 256: 77,000 by 2 MiB, 119,000 by 4, 168,000 by 8, 202,000 by 16: threads copy
side by side, but have the interpreter in turns between two copies."""

_SMALL: Final = 1 << 16
"""Bytes of an array that is gathered whole, where it can be without the others: the Python of its
pieces would take longer than their copying."""

_MOST_THREADS: Final = 12
"""Copying alone, on 16 cores beside an H200: 4 threads 103,000 images of 224 x 224 a second, 8
threads 158,000, 12 threads up to 155,000, 16 threads 145,000; on 32 cores 12 threads 300,000."""

Rows = dict[str, NDArray[Any]]
Tensors = dict[str, torch.Tensor]

Ready = tuple[dict[str, Any], tuple[int, ...]]
"""A batch, and the positions of each group of samples that are gone after it."""


class Feed(Protocol):
    """Makes batches."""

    def run(self, wanted: Iterator[Wanted], epoch: int) -> Generator[Ready, None, None]:
        """Yield the batch of each of `wanted`, in order."""
        ...


def open_feed(
    dataset: Gatherable, share: Share, device: torch.device, *, residency: Place, finish: Finish
) -> Feed:
    """Read what is to be resident, and return what makes batches out of it.

    Raises:
        SelectionError: Memory does not suffice any more.
        FormatError: A shard is not what the manifest promises.
    """
    resident = None
    if residency != "disk":
        # For this rank alone: others may have their copies already. `Loader` asked for all.
        estimate = estimate_residency(dataset, device=device)
        estimate.check(residency, dataset)
        total = estimate.stored_nbytes if residency == "ram" else estimate.row_nbytes
        with Progress(dataset, total or 0, quiet=share.rank > 0) as progress:
            if residency == "ram":
                parts = chain.from_iterable(mapped(dataset).all_stretches())
                progress.kept(keep_in_ram(parts, estimate.ram_budget, progress.read))
            else:
                resident = Resident(dataset, residency, device, progress.read)
    if resident is None and device.type == "cpu":
        return HostFeed(dataset, share.batch_size, finish)
    return DeviceFeed(dataset, device, finish, resident, own_processors(share.world_size))


class HostFeed:
    """Batches in host memory, each in pooled arrays of its own.

    Args:
        dataset: Whose samples.
        batch_size: Samples in a batch.
        finish: What becomes of images.
    """

    def __init__(self, dataset: Gatherable, batch_size: int, finish: Finish) -> None:
        self._dataset = dataset
        self._made_nbytes = dataset.made_nbytes * batch_size
        self._finish = finish
        # The next and those ahead of it, one in use, and one not let go of yet.
        self._pool = BufferPool(AHEAD + 3)

    def run(self, wanted: Iterator[Wanted], epoch: int) -> Generator[Ready, None, None]:
        """Yield the batch of each of `wanted`, in order."""
        return run_ahead(
            partial(self._gather, epoch),
            wanted,
            partial(_nbytes, self._dataset.views),
            together=True,
            made_nbytes=self._made_nbytes,
            pause=_PAUSE,
        )

    def _gather(self, epoch: int, wanted: Wanted) -> Ready:
        layouts = {part.name: part.layout(wanted.indices) for part in self._dataset.views}
        buffers = {name: self._pool.take(*layout) for name, layout in layouts.items()}
        self._dataset.gather_into(wanted.indices, buffers)
        rows = {name: torch.from_numpy(buffer) for name, buffer in buffers.items()}
        drawn = self._finish.draw(self._dataset.views, wanted.indices, wanted.positions, epoch)
        rows = self._finish.rows(rows | {n: torch.from_numpy(v) for n, v in drawn.items()})
        batch = self._finish.entries(self._dataset.show(rows, self._pool.take))
        if wanted.valid is not None:
            batch[VALID] = torch.from_numpy(wanted.valid)
        return batch, wanted.taken


class DeviceFeed:
    """Batches on a device, one ahead: rows from page-locked buffers, or out of resident samples.

    What comes of them on the device runs on the stream of the copies too, beside the model's work.

    Args:
        dataset: Whose samples.
        device: Where batches go.
        finish: What becomes of images.
        resident: All samples, in memory that the device reads: only indices travel. None: the rows
            of each batch are gathered here.
        processors: Of this machine, those that are this rank's.
    """

    def __init__(
        self,
        dataset: Gatherable,
        device: torch.device,
        finish: Finish,
        resident: Resident | None,
        processors: int,
    ) -> None:
        self._dataset = dataset
        self._device = device
        self._finish = finish
        self._resident = resident
        self._travels = [p for p in dataset.views if p.on_device and resident is None]
        self._stays = [p for p in dataset.views if not p.on_device and resident is None]
        self._threads = min(_MOST_THREADS, processors)
        self._stream = side_stream(device)

    def run(self, wanted: Iterator[Wanted], epoch: int) -> Generator[Ready, None, None]:
        """Yield the batch of each of `wanted`, in order."""
        # The next slot and those ahead of it, and one whose copy runs.
        ring = PinnedRing(self._device, _SLOTS_AHEAD + 2, self._arrived, self._stream)
        threads = ThreadPoolExecutor(self._threads, thread_name_prefix="prep-rows")
        # One thread queues the pieces of batch after batch: threads that are done with one go on
        # with the next.
        begun = run_ahead(
            partial(self._begin, ring, threads, epoch), wanted, lambda _: 0, ahead=_SLOTS_AHEAD
        )
        waiting: deque[_Begun] = deque()

        def slots() -> Iterator[Slot]:
            for batch in begun:
                for piece in batch.pieces:
                    piece.result()
                waiting.append(batch)
                yield batch.slot

        try:
            for tensors in ring.send_ahead(slots()):
                yield self._show(tensors, waiting.popleft())
        finally:
            ring.close()  # first: the thread may be waiting for a slot
            begun.close()
            # Waits for those that run, also when one failed: their slots are freed after this.
            threads.shutdown(cancel_futures=True)

    def _begin(
        self, ring: PinnedRing, threads: ThreadPoolExecutor, epoch: int, wanted: Wanted
    ) -> "_Begun":
        """Take a slot, and have threads fill it and what does not travel."""
        indices = wanted.indices
        layout = {part.name: part.layout(indices) for part in self._travels}
        drawn = self._finish.draw(self._dataset.views, indices, wanted.positions, epoch)
        beside: Rows = {**drawn}
        kept: Rows = {}
        if self._resident is not None:
            beside[_INDEX] = self._resident.rows_of(indices)
            kept = self._resident.take_kept(beside[_INDEX])
        if wanted.valid is not None:
            beside[VALID] = wanted.valid
        added = {name: (values.shape, values.dtype) for name, values in beside.items()}
        slot = ring.acquire({**layout, **added})
        for name, values in beside.items():
            slot.arrays[name][...] = values
        if self._resident is not None:
            return _Begun(slot, [], kept, wanted)
        kept = {part.name: np.empty(*part.layout(indices)) for part in self._stays}
        rows = {**{name: slot.arrays[name] for name in layout}, **kept}
        return _Begun(slot, self._fill(threads, indices, rows), kept, wanted)

    def _fill(
        self, threads: ThreadPoolExecutor, indices: NDArray[np.int64], rows: Rows
    ) -> list[Future[None]]:
        """Gather what is small, and queue the pieces of what is not."""
        gather = self._dataset.gather_into
        if sum(array.nbytes for array in rows.values()) < THREADED_FROM:
            gather(indices, rows)
            return []
        views = self._dataset.views
        small = {p.name for p in views if p.apart and rows[p.name].nbytes < _SMALL}
        large = {name: array for name, array in rows.items() if name not in small}
        if small:
            gather(indices, {name: rows[name] for name in small})
        if not all(part.fixed for part in views):
            return [threads.submit(gather, indices, large)]
        count = max(1, sum(array.nbytes for array in large.values()) // _PIECE)
        step = -(-len(indices) // count)
        return [
            threads.submit(gather, indices[own], {name: rows[own] for name, rows in large.items()})
            for own in (slice(n, n + step) for n in range(0, len(indices), step))
        ]

    def _arrived(self, tensors: Tensors) -> Tensors:
        """Turn what has travelled into rows as the dataset shows them; on the copies' stream."""
        rows = dict(tensors)
        indices = rows.pop(_INDEX, None)
        if self._resident is not None and indices is not None:
            rows |= self._resident.take(indices, self._finish.at_once)
        return self._finish.rows(rows)

    def _show(self, tensors: Tensors, begun: "_Begun") -> Ready:
        host = {name: torch.from_numpy(rows) for name, rows in begun.kept.items()}
        batch = self._finish.entries(self._dataset.show({**tensors, **host}))
        if begun.wanted.valid is not None:
            batch[VALID] = tensors[VALID]
        return batch, begun.wanted.taken


@dataclass(frozen=True, slots=True, eq=False)
class _Begun:
    """A batch that is being gathered.

    Attributes:
        slot: Takes what travels to the device.
        pieces: Done when the slot and `kept` are filled.
        kept: What stays in host memory.
        wanted: Its samples.
    """

    slot: Slot
    pieces: list[Future[None]]
    kept: Rows
    wanted: Wanted


def _nbytes(parts: Sequence[Part], wanted: Wanted) -> int:
    return batch_nbytes(parts, wanted.indices)
