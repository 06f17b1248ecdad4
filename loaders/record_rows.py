"""The records of a batch of a table, as they travel to a device."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

RECORD: Final = "record"
"""Name of the field, and of the array of a batch."""


@dataclass(frozen=True, slots=True)
class RecordPart:
    """The records of a batch as bytes: the only array that travels."""

    nbytes: int
    name: str = RECORD
    on_device: bool = True
    fixed: bool = True
    apart: bool = False

    @property
    def shown_as(self) -> str:
        """What a batch calls it."""
        return self.name

    def layout(self, indices: NDArray[np.int64]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and dtype of the array for the samples [B] of a batch."""
        return (len(indices), self.nbytes), np.dtype(np.uint8)
