"""How a stored field appears in samples and batches."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from loaders.format.spec import FieldSpec


@dataclass(frozen=True, slots=True)
class View:
    """One entry of a sample.

    Attributes:
        name: The entry's key in samples and batches.
        field: The stored field behind it.
        show: [B, *field.shape] rows as stored, on any device -> what a batch holds, over the same
            memory where it can.
        on_device: Whether the rows travel to the device of a batch, or stay in host memory.
    """

    name: str
    field: FieldSpec
    show: Callable[[Tensor], Any]
    on_device: bool = True
