"""Numbers of a table as float32: each operation once over all columns, on the host or a device.

On the host with NumPy, which stays in the thread that asks; torch would call a team of threads for
each of the threads that gather (see `token_views.widen`). Both give the same bits.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.table_host import Numbers, SmallCodes, Work, fits_int32
from loaders.table_numbers import Step
from loaders.table_put import Run
from loaders.views import Take, fresh

_ON_DEVICE: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "add": Tensor.add_,
    "multiply": Tensor.mul_,
    "divide": Tensor.div_,
}


class Stored(Run, Protocol):
    """Columns of one dtype, as `table_views.Group` is."""

    @property
    def steps(self) -> tuple[Step, ...] | None:
        """From stored numbers to float32."""

    def stored_on_device(self, rows: Tensor) -> Tensor:
        """Return [B, width] of the dtype out of [B, itemsize] bytes, on their device."""


class Floats:
    """Turns bytes of records into float32 columns.

    Args:
        groups: The columns, side by side.
        missing: What stands for missing values: 0 or NaN.
    """

    def __init__(self, groups: Sequence[Stored], *, missing: float) -> None:
        self._groups = groups
        self._width = sum(group.width for group in groups)
        self._zero = missing == 0
        constants = {"add": 0.0, "multiply": 1.0, "divide": 1.0, "rest": 0.0}
        table = {name: np.full(self._width, neutral) for name, neutral in constants.items()}
        self._whole: dict[int, NDArray[np.int64]] = {}
        lost = np.zeros(self._width)  # what a missing value is stored as; for floats it is NaN
        for number, (group, columns) in enumerate(self._places()):
            scaled = False  # what is added after that is the rest
            for step in group.steps or ():
                if step.constants.dtype == np.int64:
                    self._whole[number] = step.constants
                    continue
                name = "rest" if scaled and step.operation == "add" else step.operation
                table[name][columns] = step.constants
                scaled = scaled or step.operation != "add"
            if group.dtype.startswith("float") or not group.nullable:
                lost[columns] = np.nan
        narrow = all(_is_narrow(group) for group in groups)
        self._dtype = np.dtype(np.float32 if narrow else np.float64)
        self._lost = lost.astype(self._dtype)
        self._operations = [
            (operation, table[name].astype(self._dtype))
            for name, operation in (
                ("add", "add"),
                ("multiply", "multiply"),
                ("divide", "divide"),
                ("rest", "add"),
            )
            if (table[name] != constants[name]).any()
        ]
        self._on_host = [*self._host_work(lost)]
        self._on_device: dict[torch.device, list[Tensor]] = {}

    def _places(self) -> Iterator[tuple[Stored, slice]]:
        start = 0
        for group in self._groups:
            yield group, slice(start, start + group.width)
            start += group.width

    def _host_work(
        self, lost: NDArray[np.float64]
    ) -> Iterator[tuple[SmallCodes | Numbers, list[slice]]]:
        """Yield what makes columns on the host, and which: codes of few bits, and all others."""
        work = Work(tuple(self._operations), self._dtype, self._zero)
        parts: dict[bool, list[tuple[int, Stored, slice]]] = {}
        for number, (group, columns) in enumerate(self._places()):
            small = fits_int32(group) and group.nullable and number not in self._whole
            parts.setdefault(small, []).append((number, group, columns))
        for small, members in parts.items():
            groups = [group for _, group, _ in members]
            chosen = [c for _, _, s in members for c in range(s.start, s.stop)]
            if small:
                yield SmallCodes(groups, work.of(chosen)), [s for _, _, s in members]
                continue
            numbers = [number for number, _, _ in members]
            whole = {n: self._whole[m] for n, m in enumerate(numbers) if m in self._whole}
            made = Numbers(groups, work.of(chosen), lost[chosen], whole)
            yield made, [s for _, _, s in members]

    def on_host(self, rows: NDArray[np.uint8], take: Take = fresh) -> NDArray[np.float32]:
        """Return [B, columns] float32 of [B, itemsize] bytes, in memory that `take` gives."""
        if len(self._on_host) == 1:
            return self._on_host[0][0](rows, take)
        shown = take((len(rows), self._width), np.dtype(np.float32))
        for make, places in self._on_host:
            found, start = make(rows, take), 0
            for columns in places:
                width = columns.stop - columns.start
                shown[:, columns] = found[:, start : start + width]
                start += width
        return shown

    def on_device(self, rows: Tensor) -> Tensor:
        """Return the same for bytes on a device, there; each operation is a kernel."""
        lost, *constants = self._constants(rows.device)
        values = torch.empty((len(rows), self._width), dtype=lost.dtype, device=rows.device)
        for group, columns in self._places():
            values[:, columns] = group.stored_on_device(rows)
        values.masked_fill_(values == lost, math.nan)
        for number, (group, columns) in enumerate(self._places()):
            if number in self._whole:
                stored = group.stored_on_device(rows)
                whole = torch.from_numpy(self._whole[number]).to(rows.device)
                sums = stored + whole
                values[:, columns] = _without_sign(sums) if group.unsigned else sums.to(lost.dtype)
                if group.nullable:
                    values[:, columns].masked_fill_(stored == 0, math.nan)
        for (operation, _), constant in zip(self._operations, constants, strict=True):
            _ON_DEVICE[operation](values, constant)
        shown = values.to(torch.float32)
        if not self._zero:
            return shown
        return torch.nan_to_num_(shown, nan=0.0, posinf=math.inf, neginf=-math.inf)

    def _constants(self, device: torch.device) -> list[Tensor]:
        found = self._on_device.get(device)
        if found is None:
            arrays = [self._lost, *(constant for _, constant in self._operations)]
            found = [torch.from_numpy(array).to(device) for array in arrays]
            self._on_device[device] = found
        return found


def _without_sign(bits: Tensor) -> Tensor:
    """Return numbers of 64 bits without a sign as float64, each rounded once.

    Their halves are within int64; the bit that is lost only tells a tie from what is above it.
    """
    halves = (bits >> 1) & ((1 << 63) - 1) | (bits & 1)
    return torch.where(bits < 0, halves.to(torch.float64) * 2, bits.to(torch.float64))


def _is_narrow(group: Stored) -> bool:
    """Return whether float32 takes all that the steps make of stored numbers."""
    steps = group.steps or ()
    return group.dtype in {"uint8", "uint16", "float32"} and all(
        step.constants.dtype == np.float32 for step in steps
    )
