"""Batches on their way to an accelerator: page-locked buffers, one batch ahead on a side stream.

# NOTE [ Three orders that a copy must keep ]
A copy on a side stream is ordered with nothing by itself. Three things could go wrong, each
silently:
1. The host buffer is filled again while the device still reads it: `acquire` waits for the copy's
   event.
2. The model reads the batch before it has arrived: `Copy.wait` makes the current stream wait for
   that event.
3. The batch is freed by Python while the model's kernels, queued but not run, still need it, and
   the caching allocator gives the memory, which belongs to the side stream, to the next copy:
   `record_stream` tells it who else reads.
And one that costs memory: nothing else holds the copies back when a program queues steps far ahead
of the device, so a copy waits until the device has got to the batch `slots` before it (100 steps of
10 ms queued at once, slots = 3: 8 batches of device memory, without this 96).
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.errors import DeviceError, RingClosedError, SelectionError

_ALIGNMENT = 64  # bytes: a cache line, and more than any element needs
Layout = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]


def check_device(device: torch.device | str | int) -> torch.device:
    """Say which device is meant and that it is there.

    Args:
        device: As in torch: "cuda", "cuda:1", 1, "mps", "cpu", torch.device(...).

    Returns:
        The device; "cuda" becomes the CUDA device that is current now.

    Raises:
        DeviceError: There is no such device on this machine.
    """
    try:
        checked = torch.device(device)
        module = torch.get_device_module(checked)
    except RuntimeError as error:
        raise DeviceError(
            f"device {str(device)!r} is unknown to torch {torch.__version__}; expected one like "
            "'cuda', 'cuda:1', 'mps', 'xpu' or 'cpu'"
        ) from error
    count = module.device_count() if module.is_available() else 0
    if (checked.index or 0) >= count:
        raise DeviceError(
            f"device {str(checked)!r} is not available: torch {torch.__version__} sees {count} "
            f"{checked.type} device(s) here; choose another or 'cpu'"
        )
    return torch.device("cuda", torch.cuda.current_device()) if str(checked) == "cuda" else checked


def side_stream(device: torch.device) -> torch.cuda.Stream | None:
    """Return a stream for copies to a CUDA device; None for others.

    One for all rings of a loader: device memory that one stream used is kept for that one alone.
    """
    return torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]


@dataclass(eq=False)
class _Buffer:
    """Host memory for one batch, page-locked where the device can use that."""

    memory: Tensor | None = None
    layout: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    copied: torch.cuda.Event | None = None  # the last copy out of this memory

    def fit(self, layout: Layout, *, pinned: bool) -> None:
        """Make the views match the layout; take new memory only if the present is too small."""
        wanted = {name: (tuple(shape), np.dtype(dtype)) for name, (shape, dtype) in layout.items()}
        if wanted == self.layout:
            return
        torch_dtypes = {name: torch_dtype(name, dtype) for name, (_, dtype) in wanted.items()}
        spans, end = {}, 0
        for name, (shape, dtype) in wanted.items():
            start = -(-end // _ALIGNMENT) * _ALIGNMENT
            end = start + math.prod(shape) * dtype.itemsize
            spans[name] = slice(start, end)
        if self.memory is None or self.memory.numel() < end:
            self.memory = torch.empty(end, dtype=torch.uint8, pin_memory=pinned)
        self.layout, self.arrays, self.tensors = wanted, {}, {}
        for name, (shape, dtype) in wanted.items():
            part = self.memory[spans[name]]
            self.arrays[name] = part.numpy().view(dtype).reshape(shape)
            inner = (dtype.itemsize,) if dtype.names else ()  # a packed record travels as bytes
            self.tensors[name] = part.view(torch_dtypes[name]).view((*shape, *inner))


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """Host memory for one batch, to be filled by whoever acquired it and then handed on.

    Attributes:
        arrays: One C-contiguous array a field, with arbitrary content at first. Not to be touched
            after the slot was sent or released: the next batch is gathered into the same memory.
        buffer: The ring's own.
    """

    arrays: dict[str, NDArray[Any]]
    buffer: _Buffer = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """A batch on its way to the device; `wait` hands it over."""

    tensors: dict[str, Tensor]
    device: torch.device
    copied: torch.cuda.Event | None
    waited: deque[torch.cuda.Event] = field(repr=False)

    def wait(self) -> dict[str, Tensor]:
        """Order the batch before whatever the current stream does next; the host does not wait.

        Returns:
            One tensor a field on the device, shape and dtype as stored; a structured dtype arrives
            as [..., itemsize] uint8.
        """
        if self.copied is None:
            return self.tensors
        # See NOTE [ Three orders that a copy must keep ].
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(self.copied)
        for tensor in self.tensors.values():
            tensor.record_stream(stream)
        self.waited.append(stream.record_event())
        return self.tensors


class PinnedRing:
    """A ring of page-locked host buffers through which batches reach one device.

    One thread acquires slots and fills them, another starts the copies and takes the batches. On
    CUDA the copies run on a stream of the ring's own, beside the model's work. Other devices (mps,
    xpu; also cpu, where there is no need for a ring) get ordinary memory and a blocking
    `tensor.to(device)` behind the same methods.

    Args:
        device: Where the batches go; need not be the current device.
        slots: How many batches have a host buffer: being filled, waiting or being copied.
        arrived: Works on a batch that has arrived, on the device and on the stream of the copies.
        stream: Of the copies; None takes one of its own.

    Raises:
        DeviceError: There is no such device, or slots < 1.
    """

    def __init__(
        self,
        device: torch.device | str | int,
        slots: int = 3,
        arrived: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        if slots < 1:
            raise DeviceError(f"slots is {slots}, expected at least 1")
        self.device = check_device(device)
        self.slots = slots
        self._arrived = arrived
        self._stream = side_stream(self.device) if stream is None else stream
        self._changed = threading.Condition()
        self._free = deque(_Buffer() for _ in range(slots))  # the oldest copy first
        self._held: set[Slot] = set()
        self._closed = False
        self._waited: deque[torch.cuda.Event] = deque(maxlen=slots)

    def acquire(self, layout: Layout) -> Slot:
        """Take a buffer for one batch; for the gather thread.

        Blocks until a slot is free and the device has read the slot's previous batch.

        Args:
            layout: Shape and dtype of each field of this batch. Memory is taken anew only when a
                batch needs more than any before it in this slot: a short last batch costs nothing.

        Raises:
            SelectionError: A field's dtype cannot travel to a device.
            RingClosedError: The ring was closed, before or during the wait.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._free or self._closed)
            if self._closed:
                raise RingClosedError(f"the ring to {self.device} was closed")
            buffer = self._free.popleft()
        try:
            if self._stream is None:
                buffer.fit(layout, pinned=False)
            else:
                # A fresh thread's current device is 0: unguarded, it would open a context there.
                with torch.cuda.device(self.device):
                    if buffer.copied is not None:
                        buffer.copied.synchronize()
                    buffer.fit(layout, pinned=True)
        except BaseException:
            self._give(buffer, first=True)
            raise
        slot = Slot(buffer.arrays, buffer)
        with self._changed:
            self._held.add(slot)
        return slot

    def start(self, slot: Slot) -> Copy:
        """Begin the copy of a filled slot and return at once; for the consumer's thread.

        Raises:
            DeviceError: The slot is not one that was acquired here and not yet handed on.
        """
        self._take(slot)
        buffer = slot.buffer
        if self._stream is None:
            try:
                moved = {n: t.to(self.device, copy=True) for n, t in buffer.tensors.items()}
            finally:
                self._give(buffer)
            return Copy(self._arrived(moved), self.device, None, self._waited)
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            try:
                if len(self._waited) == self.slots:
                    self._stream.wait_event(self._waited[0])
                tensors = buffer.tensors.items()
                moved = {n: t.to(self.device, non_blocking=True) for n, t in tensors}
            finally:  # out of device memory half-way: what was queued still reads the buffer
                copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
                copied.record(self._stream)
                buffer.copied = copied
                self._give(buffer)
            found = self._arrived(moved)
            done = self._stream.record_event()
        return Copy(found, self.device, done, self._waited)

    def send_ahead(self, slots: Iterable[Slot]) -> Iterator[dict[str, Tensor]]:
        """Yield one batch a slot, in order, while the copy of the next is in flight.

        Args:
            slots: Filled slots; asked for one more than was yielded, and may block.
        """
        ahead: Copy | None = None
        for slot in slots:
            copy, ahead = ahead, self.start(slot)
            if copy is not None:
                yield copy.wait()
        if ahead is not None:
            yield ahead.wait()

    def release(self, slot: Slot) -> None:
        """Give a slot back unsent, as when gathering failed; raises DeviceError as `start` does."""
        self._take(slot)
        self._give(slot.buffer, first=True)

    def close(self) -> None:
        """End every `acquire`, present and later, with RingClosedError; sent batches stay valid."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _take(self, slot: Slot) -> None:
        with self._changed:
            if slot not in self._held:
                raise DeviceError(
                    "this slot was sent or released before, or belongs to another ring; "
                    "every slot from acquire() is handed on exactly once"
                )
            self._held.remove(slot)

    def _give(self, buffer: _Buffer, *, first: bool = False) -> None:
        with self._changed:
            (self._free.appendleft if first else self._free.append)(buffer)
            self._changed.notify()


def torch_dtype(name: str, dtype: np.dtype[Any]) -> torch.dtype:
    """Return what a stored dtype is on a device: a packed record its bytes.

    Raises:
        SelectionError: Field `name` cannot travel.
    """
    if dtype.names and not dtype.hasobject:
        return torch.uint8
    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except (TypeError, ValueError) as error:
        raise SelectionError(
            f"field {name!r}: dtype {dtype} cannot travel to a device; expected a number, a bool "
            "or a packed record, little-endian"
        ) from error
