"""Records as they are stored: a view of each dtype over the bytes of a batch, nothing copied."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
import torch
from torch import Tensor

from loaders.errors import FormatError
from loaders.format.records import RecordPart

TORCH_DTYPES: Final = {
    "uint8": torch.uint8,
    "uint16": torch.uint16,
    "int32": torch.int32,
    "int64": torch.int64,
    "float32": torch.float32,
    "float64": torch.float64,
}


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """Where the columns of each dtype lie in a record; like lies beside like.

    Attributes:
        spans: dtype -> its bytes in a record.
        places: Column -> its dtype, and its columns in the view of that.
    """

    spans: Mapping[str, slice]
    places: Mapping[str, tuple[str, slice]]

    def views(self, records: Tensor) -> dict[str, Tensor]:
        """Return dtype -> [B, columns] of it over [B, itemsize] uint8, on their device."""
        if not len(records):  # of no records torch may know no strides
            records = records.new_empty(records.shape)
        return {
            dtype: records[:, span].view(TORCH_DTYPES[dtype]) for dtype, span in self.spans.items()
        }


def stored_columns(record: Sequence[RecordPart], where: str) -> StoredColumns:
    """Say where the columns of a record lie.

    Args:
        record: Its parts, padding included.
        where: Names the dataset in errors.

    Raises:
        FormatError: Parts of one dtype do not lie side by side.
    """
    spans: dict[str, slice] = {}
    places: dict[str, tuple[str, slice]] = {}
    offset = 0
    for dtype, parts in groupby(record, key=lambda part: part[1]):
        if dtype in spans:
            raise FormatError(f"{where}: parts of {dtype} lie apart in the record")
        count = 0
        for name, _, length in parts:
            places[name] = dtype, slice(count, count + length)
            count += length
        nbytes = count * np.dtype(dtype).itemsize
        spans[dtype] = slice(offset, offset + nbytes)
        offset += nbytes
    return StoredColumns(spans, places)
