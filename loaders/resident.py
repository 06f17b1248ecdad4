"""The samples of a dataset in memory that the device reads: its own, or page-locked RAM."""

import mmap
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.ahead import run_ahead
from loaders.device import PinnedRing, Slot, torch_dtype
from loaders.device_rows import WRITTEN, kernels_for, normalize_rows, take_rows
from loaders.errors import SelectionError
from loaders.local_ranks import own_processors
from loaders.normalize import Normalize, normalize_innermost
from loaders.residency import row_nbytes
from loaders.selection import places_in, stored_indices, taken_once
from loaders.views import Gatherable, Part

_PIECE: Final = 1 << 25
"""Bytes gathered at a time: 32 MiB keep copies at the rate of the link."""

_MOST_THREADS: Final = 8
_REGISTER: Final = 3
"""cudaHostRegisterPortable | cudaHostRegisterMapped: for all devices, and at the same address."""

_ONE: Final = np.zeros(1, np.int64)


class Resident:
    """The rows of samples, one array a part, and batches of them by row.

    What `gather_into` of the dataset gives, read once in the order of the files: so any dataset
    whose samples are rows of one length can be resident, and batches are the same to the byte. Of
    a selection its samples alone are kept, each once.

    Args:
        dataset: Whose samples.
        place: "device", or "pinned" for page-locked memory that the device reads through the link.
        device: Where batches are wanted.
        progress: Told after each piece how many bytes lie there by then.

    Raises:
        SelectionError: Memory ran out.
        FormatError: A shard is not what the manifest promises.
    """

    def __init__(
        self,
        dataset: Gatherable,
        place: Literal["pinned", "device"],
        device: torch.device,
        progress: Callable[[int], None],
    ) -> None:
        self._dataset = dataset
        self._device = device
        self._stored = taken_once(dataset)
        self._count = len(self._stored)
        self._layouts = {part.name: part.layout(_ONE) for part in dataset.views}
        self._travel = [part for part in dataset.views if part.on_device]
        on_host = place == "pinned" or device.type == "cpu"
        self._kept = {  # in memory of the host
            part.name: self._host_rows(part, lock=part.on_device and place == "pinned")
            for part in dataset.views
            if on_host or not part.on_device
        }
        try:
            self._rows = {part.name: self._source(part) for part in self._travel}
            fill = self._fill if on_host else self._send
            for done in fill():
                progress(done)
        except torch.OutOfMemoryError as error:
            raise SelectionError(
                f"residency={place!r}: {dataset.path}: {dataset.split} wants "
                f"{self._count * self._row_nbytes:,} bytes, of which {device} has not enough free: "
                'use residency="auto" or "disk"'
            ) from error
        if place == "pinned":
            for part in self._travel:
                _lock_pages(self._rows[part.name], self, device)
        if device.type == "cuda":  # batches are gathered on a stream that knows nothing of this one
            torch.cuda.synchronize(device)

    @property
    def _row_nbytes(self) -> int:
        return sum(row_nbytes(part) for part in self._dataset.views)

    def _host_rows(self, part: Part, *, lock: bool) -> NDArray[Any]:
        """Return [N, *shape] of the stored dtype; to be locked, on pages of its own."""
        shape, dtype = self._layouts[part.name]
        whole = (self._count, *shape[1:])
        if not lock:
            return np.empty(whole, dtype)
        nbytes = self._count * row_nbytes(part)
        memory = mmap.mmap(-1, max(1, nbytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        return np.frombuffer(memory, np.uint8, nbytes).view(dtype).reshape(whole)

    def _source(self, part: Part) -> Tensor:
        """Return [N, bytes of a row] uint8: over the rows in host memory, or on the device."""
        width = row_nbytes(part)
        if part.name not in self._kept:
            return torch.empty((self._count, width), dtype=torch.uint8, device=self._device)
        flat = self._kept[part.name].reshape(-1).view(np.uint8)
        return torch.from_numpy(flat).view(self._count, width)

    def _pieces(self) -> Iterator[range]:
        # No arrays: threads are given all pieces at once, which would be 8 bytes a sample.
        step = max(1, _PIECE // max(1, self._row_nbytes))
        for first in range(0, self._count, step):
            yield range(first, min(self._count, first + step))

    def _fill(self) -> Iterator[int]:
        """Gather the samples into memory of the host; yield the bytes that lie there."""
        with ThreadPoolExecutor(
            min(_MOST_THREADS, own_processors()), thread_name_prefix="prep-read"
        ) as threads:
            for last in threads.map(self._fill_piece, self._pieces()):
                yield last * self._row_nbytes

    def _fill_piece(self, piece: range) -> int:
        own = {name: rows[piece.start : piece.stop] for name, rows in self._kept.items()}
        self._dataset.gather_into(self._indices(piece), own)
        return piece.stop

    def _send(self) -> Iterator[int]:
        """Gather the samples through a page-locked ring to the device."""
        ring = PinnedRing(self._device, slots=4)
        slots = run_ahead(lambda i: self._fill_slot(ring, i), self._pieces(), self._nbytes, ahead=2)
        last = 0
        try:
            for tensors in ring.send_ahead(slots):
                size = 0
                for name, rows in tensors.items():
                    size = len(rows)
                    sent = rows.reshape(size, -1).view(torch.uint8)
                    self._rows[name][last : last + size].copy_(sent)
                last += size
                yield last * self._row_nbytes
        finally:
            ring.close()
            slots.close()

    def _nbytes(self, piece: range) -> int:
        return len(piece) * self._row_nbytes

    def _fill_slot(self, ring: PinnedRing, piece: range) -> Slot:
        indices = self._indices(piece)
        slot = ring.acquire({part.name: part.layout(indices) for part in self._travel})
        kept = {name: rows[piece.start : piece.stop] for name, rows in self._kept.items()}
        self._dataset.gather_into(indices, {**slot.arrays, **kept})
        return slot

    def _indices(self, piece: range) -> NDArray[np.int64]:
        """Return the stored indices of some rows."""
        return stored_indices(self._stored, np.arange(piece.start, piece.stop, dtype=np.int64))

    def rows_of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows [B] in which samples lie, by their stored indices [B]."""
        return places_in(self._stored, indices)

    def take(self, indices: Tensor, normalize: Mapping[str, Normalize]) -> dict[str, Tensor]:
        """Return the rows of a batch that are for the device, in one pass each.

        Args:
            indices: [B] int64 on the device: rows, as `rows_of` gives them.
            normalize: For these parts, images with channels innermost, normalized in that pass.

        Returns:
            Part -> [B, *shape] as stored, records as bytes, or the normalized images.
        """
        found = {}
        for part in self._travel:
            shape, dtype = self._layouts[part.name]
            own = torch_dtype(part.name, dtype)
            module = normalize.get(part.name)
            rows = self._rows[part.name]
            if module is not None and self._writes(module):
                images = rows.view(own).view(self._count, *shape[1:])
                found[part.name] = normalize_rows(
                    images, indices, module.scale, module.bias, module.output_dtype
                )
                continue
            taken = take_rows(rows, indices).view(own)
            inner = (dtype.itemsize,) if dtype.names else ()
            taken = taken.view(len(indices), *shape[1:], *inner)
            found[part.name] = taken if module is None else normalize_innermost(module, taken)
        return found

    def _writes(self, normalize: Normalize) -> bool:
        return kernels_for(self._device) is not None and normalize.output_dtype in WRITTEN

    def take_kept(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return what stays in host memory of some rows [B]."""
        names = [part.name for part in self._dataset.views if not part.on_device]
        return {name: self._kept[name].take(rows, axis=0, mode="clip") for name in names}


def _lock_pages(rows: Tensor, owner: object, device: torch.device) -> None:
    """Let the device read host memory by itself, until nothing uses it any more."""
    if not rows.numel():
        return
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address, nbytes = rows.data_ptr(), rows.numel()
    with torch.cuda.device(device):
        code = int(runtime.cudaHostRegister(address, nbytes, _REGISTER))
    if code:
        raise SelectionError(
            f'residency="pinned": {nbytes:,} bytes of RAM cannot be page-locked (CUDA error '
            f'{code}): use residency="ram"'
        )
    weakref.finalize(owner, _unlock_pages, rows, device)


def _unlock_pages(rows: Tensor, device: torch.device) -> None:
    torch.cuda.synchronize(device)  # kernels that were queued still read it
    torch.cuda.cudart().cudaHostUnregister(rows.data_ptr())  # type: ignore[no-untyped-call]
