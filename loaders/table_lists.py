"""Ragged lists of a table: out of the maps into the batch, filled up to the longest of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.format.fields import FieldSpec
from loaders.format.ragged import filled_up
from loaders.format.spec import Manifest
from loaders.format.table_schema import ColumnSpec, TableSchema
from loaders.split_columns import SplitColumns
from loaders.stretches import Stretches
from loaders.table_views import Codes, Entry, item_entry
from loaders.views import Part, Take, fresh


@dataclass(frozen=True, slots=True)
class ListPart:
    """The lists of one column in a batch, as bytes: [B, L, bytes of a value]."""

    shown_as: str
    field: FieldSpec
    columns: SplitColumns
    on_device: bool = True
    fixed: bool = False
    apart: bool = False

    @property
    def name(self) -> str:
        """Its key among the arrays."""
        return self.field.name

    def layout(self, indices: NDArray[np.int64]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and dtype of the array for the samples [B] of a batch."""
        longest = int(self.columns.lengths(self.name, indices).max(initial=0))
        return (len(indices), longest, self.field.numpy_dtype.itemsize), np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One entry of a batch: the lists of a column.

    Attributes:
        spec: The column.
        field: Of its lists.
        length_name: Entry of how many values each has.
        values: Shows one value a row.
    """

    spec: ColumnSpec
    field: FieldSpec
    length_name: str
    values: Entry

    def show(self, rows: Tensor, lengths: Tensor, take: Take = fresh) -> Tensor:
        """Return [B, L] codes or float32 of [B, L, bytes] uint8, on their device.

        Args:
            rows: Filled up with what is missing.
            lengths: [B] int64: values of each list.
            take: Gives the memory for what is made on the host.
        """
        count, width, nbytes = rows.shape
        shown = self.values.show(rows.reshape(count * width, nbytes), take).reshape(count, width)
        if self.spec.nullable:
            return shown
        # No code is kept for what is missing: what rows are filled up with is a number like others.
        places = torch.arange(width, device=shown.device)
        return shown.masked_fill_(places >= lengths[:, None], torch.nan)


@dataclass(frozen=True, slots=True)
class TableLists:
    """Adds what a batch of a table has of its ragged lists.

    Attributes:
        entries: One a column.
        columns: Where the lists are.
    """

    entries: tuple[ListEntry, ...]
    columns: SplitColumns

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(entry.field.name for entry in self.entries)

    def stretches(self, indices: NDArray[np.int64] | None) -> Iterator[Stretches]:
        """Yield the parts of maps in which they lie, of ascending stored indices [B]."""
        return self.columns.stretches(self._names, indices)

    def parts(self) -> tuple[Part, ...]:
        """Return the arrays of a batch."""
        return tuple(ListPart(entry.spec.name, entry.field, self.columns) for entry in self.entries)

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Fill them."""
        for entry in self.entries:
            buffer = buffers[entry.field.name]
            if buffer.size:
                out = buffer.view(entry.field.numpy_dtype)[..., 0]
                out[...] = np.nan if out.dtype.kind == "f" else 0
                self.columns.lists_into(entry.field.name, indices, out)

    def show(
        self, rows: Mapping[str, Tensor], shown: Mapping[str, Tensor], take: Take
    ) -> dict[str, Tensor]:
        """Return the lists of each column, [B, L], by its name.

        Args:
            rows: By field.
            shown: Entries of the batch that are made of records: how many values each list has.
            take: Gives the memory for what is made on the host.
        """
        return {
            e.spec.name: e.show(rows[e.field.name], shown[e.length_name], take)
            for e in self.entries
        }


def padded_bytes(values: NDArray[Any], counts: NDArray[np.int64]) -> Tensor:
    """Return lists that lie back to back as `ListEntry.show` takes them."""
    rows = filled_up(values, counts, int(counts.max(initial=0)))
    return torch.from_numpy(rows.view(np.uint8).reshape(*rows.shape, rows.itemsize))


def list_entries(schema: TableSchema, codes: Codes = "int64") -> tuple[ListEntry, ...]:
    """Return the entries of a batch that are ragged lists."""
    lengths = schema.length_names
    return tuple(
        ListEntry(schema.column(name), field, lengths[name], item_entry(schema.column(name), codes))
        for name, field in schema.list_fields.items()
    )


def open_lists(
    path: Path, split: str, manifest: Manifest, entries: Sequence[ListEntry], *, verify: bool
) -> TableLists:
    """Open the ragged lists of a split."""
    return TableLists(tuple(entries), SplitColumns(path, split, manifest, verify=verify))
