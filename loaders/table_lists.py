"""Ragged lists of a table: out of the maps into the batch, filled up to the longest of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.format.columns import open_column
from loaders.format.fields import FieldSpec
from loaders.format.ragged import filled_up, ranges
from loaders.format.spec import Manifest
from loaders.format.table_schema import ColumnSpec, TableSchema
from loaders.stretches import split_by_shard, stretches
from loaders.table_views import Codes, Entry, item_entry
from loaders.views import Part, Take, fresh


class ListRows:
    """Copies the lists of one field out of any shards; maps are opened when first touched.

    Args:
        path: The dataset's folder.
        manifest: Its description.
        split: The split's name.
        field: Of the lists.
        verify: Compare checksums when shards are first touched.
    """

    def __init__(
        self, path: Path, manifest: Manifest, split: str, field: FieldSpec, *, verify: bool = False
    ) -> None:
        self._path = path
        self._manifest = manifest
        self._split = split
        self._field = field
        self._verify = verify
        counts = np.array(manifest.splits[split].counts, np.int64)
        self._values = manifest.splits[split].values[field.name]
        self._ends = np.cumsum(counts, dtype=np.int64)
        self._starts = self._ends - counts
        self._maps: dict[int, tuple[NDArray[np.int64], NDArray[Any]]] = {}

    @property
    def stored_nbytes(self) -> int:
        """Bytes of the lists, and of where they begin."""
        # Of each sample, and where the last list of a shard ends.
        offsets = int(self._ends[-1]) if len(self._ends) else 0
        offsets += int(np.count_nonzero(self._ends > self._starts))
        return 8 * offsets + sum(self._values) * self._field.numpy_dtype.itemsize

    def maps(self) -> Iterator[NDArray[Any]]:
        """Open all shards that hold samples."""
        for shard in np.flatnonzero(self._ends > self._starts).tolist():
            yield from self._map(shard)

    def stretches(self, indices: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
        """Yield the parts of maps in which the lists of some samples, ascending, lie."""
        for shard, rows in split_by_shard(indices, self._ends):
            offsets, values = self._map(shard)
            yield from stretches(values, offsets[rows], offsets[rows + 1])

    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many values each list has: [B] int64.

        Raises:
            MissingShardError: A shard is not there.
            FormatError: It is not what the manifest promises.
        """
        counts = np.zeros(len(indices), np.int64)
        for mine, rows, (offsets, _) in self._shards(indices):
            counts[mine] = offsets[rows + 1] - offsets[rows]
        return counts

    def gather_into(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Copy each list to the start of its row; the rest of the row stays as it is.

        Args:
            indices: [B] integers in 0..samples-1.
            out: [B, L] of the field's dtype, C-contiguous, as wide as the longest list.

        Raises:
            MissingShardError: A shard is not there.
            FormatError: It is not what the manifest promises.
        """
        flat, width = out.reshape(-1), out.shape[1]
        for mine, rows, (offsets, values) in self._shards(indices):
            starts = offsets[rows]
            counts = offsets[rows + 1] - starts
            flat[ranges(mine * width, counts)] = values[ranges(starts, counts)]

    def _shards(
        self, indices: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], tuple[NDArray[Any], NDArray[Any]]]]:
        """Yield, shard by shard, which of the indices lie there, in which rows, and its maps."""
        shards = np.searchsorted(self._ends, indices, side="right")
        for shard in np.unique(shards).tolist():
            mine = np.flatnonzero(shards == shard)
            yield mine, indices[mine] - self._starts[shard], self._map(shard)

    def _map(self, shard: int) -> tuple[NDArray[Any], NDArray[Any]]:
        found = self._maps.get(shard)
        if found is None:
            name, where = self._field.name, (self._path, self._manifest, self._split)
            offsets = open_column(*where, f"{name}_offsets", shard, verify=self._verify)
            values = np.empty(0, self._field.numpy_dtype)
            if self._values[shard]:
                values = open_column(*where, name, shard, verify=self._verify)
            found = self._maps[shard] = offsets, values
        return found


@dataclass(frozen=True, slots=True)
class ListPart:
    """The lists of one column in a batch, as bytes: [B, L, bytes of a value]."""

    field: FieldSpec
    rows: ListRows
    on_device: bool = True
    fixed: bool = False
    apart: bool = False

    @property
    def name(self) -> str:
        """Its key among the arrays."""
        return self.field.name

    def layout(self, indices: NDArray[np.int64]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and dtype of the array for the samples [B] of a batch."""
        longest = int(self.rows.lengths(indices).max(initial=0))
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
        rows: Where the lists of each are.
    """

    entries: tuple[ListEntry, ...]
    rows: tuple[ListRows, ...]

    @property
    def stored_nbytes(self) -> int:
        """Bytes of their files."""
        return sum(rows.stored_nbytes for rows in self.rows)

    def maps(self) -> Iterator[NDArray[Any]]:
        """Open these."""
        for rows in self.rows:
            yield from rows.maps()

    def stretches(self, indices: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
        """Yield the parts of maps in which they lie, of ascending stored indices [B]."""
        for rows in self.rows:
            yield from rows.stretches(indices)

    def parts(self) -> tuple[Part, ...]:
        """Return the arrays of a batch."""
        pairs = zip(self.entries, self.rows, strict=True)
        return tuple(ListPart(entry.field, rows) for entry, rows in pairs)

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Fill them."""
        for entry, rows in zip(self.entries, self.rows, strict=True):
            buffer = buffers[entry.field.name]
            out = buffer.view(entry.field.numpy_dtype)[..., 0] if buffer.size else None
            if out is not None:
                out[...] = np.nan if out.dtype.kind == "f" else 0
                rows.gather_into(indices, out)

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
    rows = tuple(ListRows(path, manifest, split, entry.field, verify=verify) for entry in entries)
    return TableLists(tuple(entries), rows)
