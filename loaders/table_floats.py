"""Numbers of a table as float32: each operation once over all columns, on the host or a device.

On the host with NumPy, which stays in the thread that asks; torch would call a team of threads for
each of the threads that gather (see `token_views.widen`). Both give the same bits.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.table_numbers import Step

_ROWS: Final = 64
"""Rows whose constants stand side by side: with those of one alone the loops of NumPy are as short
as a row, and an addition takes three times as long."""


_ON_HOST: Final[dict[str, Callable[..., Any]]] = {
    "add": np.add,
    "multiply": np.multiply,
    "divide": np.divide,
}
_ON_DEVICE: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "add": Tensor.add_,
    "multiply": Tensor.mul_,
    "divide": Tensor.div_,
}


class Stored(Protocol):
    """Columns of one dtype, as `table_views.Group` is."""

    @property
    def dtype(self) -> str:
        """As stored."""

    @property
    def width(self) -> int:
        """How many there are."""

    @property
    def steps(self) -> tuple[Step, ...] | None:
        """From stored numbers to float32."""

    @property
    def nullable(self) -> bool:
        """Code 0 is a missing number; if not, whole sums have no sign."""

    def stored(self, rows: NDArray[np.uint8]) -> NDArray[Any]:
        """Return [B, width] of the dtype out of [B, itemsize] bytes."""

    def stored_on_device(self, rows: Tensor) -> Tensor:
        """Return the same on the device of the bytes."""


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
        self._has_floats = bool(np.isnan(lost).any())
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
        self._tiled = [np.tile(c, _ROWS) for c in (self._lost, *(c for _, c in self._operations))]
        self._on_device: dict[torch.device, list[Tensor]] = {}

    def _places(self) -> Iterator[tuple[Stored, slice]]:
        start = 0
        for group in self._groups:
            yield group, slice(start, start + group.width)
            start += group.width

    def on_host(self, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return [B, columns] float32 of [B, itemsize] bytes."""
        whole = -(-len(rows) // _ROWS) * _ROWS
        values = np.empty((whole, self._width), self._dtype)
        values[len(rows) :] = 0
        mine = values[: len(rows)]
        for group, columns in self._places():
            mine[:, columns] = group.stored(rows)
        flat = values.reshape(-1, _ROWS * self._width)
        lost, *constants = self._tiled
        known = flat != lost
        if self._has_floats:
            known &= flat == flat  # NaN is not
        for number, (group, columns) in enumerate(self._places()):
            if number in self._whole:  # integers that float64 rounds
                sums = group.stored(rows) + self._whole[number]
                mine[:, columns] = sums if group.nullable else sums.view(np.uint64)
        # Infinities, and float64 beyond float32, are what they are: no warning.
        with np.errstate(over="ignore", invalid="ignore"):
            for (operation, _), constant in zip(self._operations, constants, strict=True):
                _ON_HOST[operation](flat, constant, out=flat)
            shown = flat.astype(np.float32, copy=False)
        # By bits: a branch for each value took four times as long where some are missing.
        bits, mask = shown.view(np.int32), known.view(np.int8).astype(np.int32)
        if self._zero:
            bits &= np.negative(mask, out=mask)  # keep all, or none
        else:
            bits |= np.subtract(mask, 1, out=mask)  # all ones is NaN
        return shown.reshape(whole, self._width)[: len(rows)]

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
                if not group.nullable:
                    values[:, columns] = _without_sign(stored + whole)
                    continue
                values[:, columns] = (stored + whole).to(lost.dtype)
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
