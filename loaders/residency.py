"""Where the samples lie while they are trained on: on disk, in RAM, page-locked, on the GPU."""

import math
import sys
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
import torch

from loaders.device import check_device
from loaders.device_rows import kernels_for
from loaders.errors import SelectionError
from loaders.free_memory import free_device_memory, free_ram
from loaders.local_ranks import local_ranks
from loaders.selection import taken_once
from loaders.views import Gatherable, Mapped, Part, mapped

Place = Literal["disk", "ram", "pinned", "device"]
Residency = Literal["auto", "disk", "ram", "pinned", "device"]

_ONE: Final = np.zeros(1, np.int64)

_DEVICE_SHARE: Final = 4
"""`auto` takes a quarter of the free device memory: model and activations are still to come."""

_PINNED_SHARE: Final = 2
"""`auto` locks half of the free RAM, which nobody else can use then."""

_RAM_SHARE: Final = 0.8
"""Of the free RAM that pages of files may fill; programs and other files need the rest."""

_GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidencyEstimate:
    """What each residency of a dataset takes, and what there is. `str()` says it in one line.

    Attributes:
        device: Where batches go.
        ranks: Processes on this machine that would each keep a copy of their own, for "pinned", and
            on the CPU for "device".
        row_nbytes: Bytes of the samples as rows, each once, what "pinned" and "device" keep for
            each rank; None where samples are not rows of one length.
        stored_nbytes: Bytes of the files in which the samples lie, what "ram" reads and keeps once
            for all ranks of the machine; None where the dataset does not say which they are.
        free_ram: Bytes of RAM that can be used, as control groups allow.
        free_device: Bytes of free device memory; on the CPU those of RAM.
        can_pin: Whether the device can read page-locked RAM by itself: CUDA, with Triton.
    """

    device: torch.device
    ranks: int
    row_nbytes: int | None
    stored_nbytes: int | None
    free_ram: int
    free_device: int
    can_pin: bool

    @property
    def ram_budget(self) -> int:
        """Bytes of files that "ram" reads at most."""
        return int(self.free_ram * _RAM_SHARE)

    @property
    def choice(self) -> Place:
        """What "auto" takes: the fastest that leaves enough room."""
        rows, stored = self.row_nbytes, self.stored_nbytes
        on_cuda = self.device.type == "cuda"
        if on_cuda and rows is not None and rows * _DEVICE_SHARE <= self.free_device:
            return "device"
        pinned = math.inf if rows is None else rows * self.ranks * _PINNED_SHARE
        if on_cuda and self.can_pin and pinned <= self.free_ram:
            return "pinned"
        return "ram" if stored is not None and stored <= self.ram_budget else "disk"

    def __str__(self) -> str:
        wanted = self.stored_nbytes if self.row_nbytes is None else self.row_nbytes
        free = f"{_gib(self.free_ram)} of RAM free"
        if self.device.type == "cuda":
            free += f", {_gib(self.free_device)} on {self.device}"
        size = "of unknown size" if wanted is None else _gib(wanted)
        return f"residency {self.choice}: samples {size}, {free}"

    def check(self, place: Place, dataset: Gatherable) -> None:
        """Refuse a residency that cannot be.

        Raises:
            SelectionError: Says why, for want of room with the bytes wanted and free.
        """
        if place == "ram":
            mapped(dataset)
        if place not in {"pinned", "device"}:
            return
        if place == "pinned" and self.device.type != "cuda":
            raise SelectionError(
                'residency="pinned" needs a CUDA device, which reads page-locked memory by '
                f'itself; the device is {self.device}: use residency="ram"'
            )
        if place == "pinned" and not self.can_pin:
            raise SelectionError(
                'residency="pinned" needs Triton, which is not installed: use residency="ram"'
            )
        if self.row_nbytes is None:
            names = dict.fromkeys(part.shown_as for part in dataset.views if not part.fixed)
            differ = f"{', '.join(map(repr, names))} {'differ' if len(names) > 1 else 'differs'}"
            raise SelectionError(
                f"residency={place!r}: {dataset.path}: {differ} in length from sample to "
                "sample, and only rows of one length can be gathered by the device: use "
                'residency="ram"'
            )
        self._check_room(place, dataset, self.row_nbytes)

    def _check_room(self, place: Place, dataset: Gatherable, nbytes: int) -> None:
        in_ram = place == "pinned" or self.device.type == "cpu"
        copies = self.ranks if in_ram else 1
        free = self.free_ram if in_ram else self.free_device
        if nbytes * copies > free:
            each = f" ({copies} ranks, {nbytes:,} each)" if copies > 1 else ""
            where = "RAM" if in_ram else str(self.device)
            raise SelectionError(
                f"residency={place!r}: {dataset.path}: {dataset.split} wants {nbytes * copies:,} "
                f'bytes{each}, {where} has {max(0, free):,} free: use residency="auto" or '
                '"disk", or fewer samples: ds.select(...)'
            )


def estimate_residency(
    dataset: Gatherable,
    *,
    device: torch.device | str | int | None = None,
    world_size: int = 1,
) -> ResidencyEstimate:
    """Say what each residency of a dataset would take, and which one "auto" takes.

    Nothing is read but what the dataset knows already, and where the samples of a selection lie in
    their files, if they differ in length: 16 bytes of each.

    Args:
        dataset: As for `Loader`.
        device: Where batches go; None is host memory.
        world_size: How many processes train. As many of them are taken to be on this machine as
            torchrun says; else one for each of its CUDA devices, without these all.

    Raises:
        DeviceError: There is no such device.
    """
    target = torch.device("cpu") if device is None else check_device(device)
    on_cuda = target.type == "cuda"
    ram = free_ram()
    return ResidencyEstimate(
        device=target,
        ranks=local_ranks(world_size),
        row_nbytes=_row_nbytes(dataset),
        stored_nbytes=_stored_nbytes(dataset),
        free_ram=ram,
        free_device=free_device_memory(target) if on_cuda else ram,
        can_pin=kernels_for(target) is not None,
    )


def chosen_place(
    dataset: Gatherable, residency: Residency, device: torch.device, rank: int, world_size: int
) -> Place:
    """Return where samples shall lie; "auto" says on rank 0 what it took, and why.

    Raises:
        SelectionError: There is no such residency, or it cannot be.
    """
    if residency not in get_args(Residency):
        raise SelectionError(f"residency={residency!r}: expected one of {get_args(Residency)}")
    if residency == "disk":
        return "disk"
    estimate = estimate_residency(dataset, device=device, world_size=world_size)
    if residency != "auto":
        estimate.check(residency, dataset)
        return residency
    if rank == 0:
        sys.stderr.write(f"{dataset.path}: {dataset.split}: {estimate}\n")
    return estimate.choice


def row_nbytes(part: Part) -> int:
    """Return the bytes of a row of a part whose samples are rows of one length."""
    shape, dtype = part.layout(_ONE)
    return math.prod(shape) * dtype.itemsize


def _stored_nbytes(dataset: Gatherable) -> int | None:
    if not isinstance(dataset, Mapped):
        return None
    return sum(stretches.nbytes for stretches in dataset.all_stretches())


def _row_nbytes(dataset: Gatherable) -> int | None:
    if not all(part.fixed for part in dataset.views):
        return None
    return len(taken_once(dataset)) * sum(row_nbytes(part) for part in dataset.views)


def _gib(nbytes: int) -> str:
    return f"{nbytes / _GIB:.1f} GiB"
