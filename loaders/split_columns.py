"""The stored fields of a split: where the values of any samples lie, and copies of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.decode_threads import DecodeThreads
from loaders.errors import FormatError
from loaders.field_rows import FieldRows
from loaders.format.codecs import decode_sample
from loaders.format.containers import CONTAINERS
from loaders.format.ragged import ranges
from loaders.format.spec import Manifest
from loaders.stored_column import StoredColumn, stored_column
from loaders.stretches import Stretches, split_by_shard

_SHORT: Final = 64
"""Values a sample, on average, below which a batch is copied value by value, by one index of them;
above, sample by sample. Of 16 values a sample the index takes 0.15 to 0.4 times as long back to
back (to starts of rows 0.2 to 0.6), of 64 0.5 to 0.7 (0.6 to 1), of 256 1.4 to 2.2 (2 to 2.8)."""


class SplitColumns:
    """Where the values of every sample of a split lie; maps are opened when first touched.

    Maps are read-only and safe across fork.

    Args:
        path: The dataset's folder.
        split: The split's name.
        manifest: The dataset's description.
        verify: Compare checksums when shards are first touched.
        given: Column -> its map, of a dataset of one shard that lies in other files.
        called: What a field is called here -> its name in the manifest, where that is another.
    """

    def __init__(
        self,
        path: Path,
        split: str,
        manifest: Manifest,
        *,
        verify: bool = False,
        given: Mapping[str, NDArray[Any]] | None = None,
        called: Mapping[str, str] | None = None,
    ) -> None:
        self._path = path
        self._split = split
        self._manifest = manifest
        self._verify = verify
        self._spec = manifest.splits[split]
        self._fields = {field.name: field for field in self._spec.fields}
        self._stored: dict[str, str] = {}
        for name, stored in (called or {}).items():
            self._fields[name] = self._fields[stored]
            self._stored |= {name: stored, f"{name}_offsets": f"{stored}_offsets"}
        counts = np.array(self._spec.counts, np.int64)
        self._ends = np.cumsum(counts, dtype=np.int64)  # [shards]
        self._starts = self._ends - counts
        self._rows: dict[str, FieldRows] = {}
        self._threads = DecodeThreads()
        self._columns = {name: _of_one(array) for name, array in (given or {}).items()}

    def stretches(
        self, names: Iterable[str], indices: NDArray[np.int64] | None
    ) -> Iterator[Stretches]:
        """Yield where these fields of samples lie; only offsets are opened for it.

        Args:
            names: Of the fields.
            indices: [B] which samples, ascending; None for all.
        """
        for name in names:
            field = self._fields[name]
            if not field.varies:
                yield from self.rows(name).stretches(indices)
            elif indices is None:
                for column in field.columns():
                    yield from self.column(column.name).all_stretches()
            else:
                yield from self._varying(name, indices)

    def _varying(self, name: str, indices: NDArray[np.int64]) -> Iterator[Stretches]:
        values, offsets = self.column(name), self.column(f"{name}_offsets")
        for shard, rows in split_by_shard(indices, self._ends):
            if self._fields[name].has_offsets:  # else they are in memory
                yield offsets.stretches(shard, rows, rows + 2)
            found = offsets.map(shard)
            yield values.stretches(shard, found[rows], found[rows + 1])

    def map(self, name: str, shard: int) -> NDArray[Any]:
        """Return the values of a ragged field in one shard, back to back: [values, *shape].

        Raises:
            MissingShardError: The file is not there.
            FormatError: It is not what the manifest promises.
        """
        return self.column(name).map(shard)

    def rows(self, name: str) -> FieldRows:
        """Return the rows of a field of fixed shape."""
        name = self._stored.get(name, name)
        found = self._rows.get(name)
        if found is None:
            where = (self._path, self._manifest, self._split, name)
            found = self._rows.setdefault(name, FieldRows(*where, verify=self._verify))
        return found

    def rows_into(self, name: str, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Copy the rows of a field of fixed shape; those that are encoded are decoded.

        Args:
            name: Of the field.
            indices: [B] integers in 0..samples-1.
            out: [B, *shape] of the field's dtype, C-contiguous.

        Raises:
            MissingShardError: A shard is not there.
            FormatError: It is not what the manifest promises.
        """
        if self._fields[name].encoding is not None:
            self.decode_into(name, indices, out)
            return
        rows = self.rows(name)
        rows.gather_into(indices, out.reshape(-1).view(np.uint8).reshape(-1, rows.row_nbytes))

    def decode_into(
        self, name: str, indices: NDArray[np.int64], out: Sequence[NDArray[Any]] | NDArray[Any]
    ) -> None:
        """Decode samples of a field that is encoded, on as many threads as there are processors.

        Args:
            name: Of the field.
            indices: [B] integers in 0..samples-1.
            out: B arrays of the field's dtype and the shapes that the samples have, C-contiguous.

        Raises:
            MissingShardError: A shard is not there.
            FormatError: It is not what the manifest promises, or a sample is damaged.
        """
        encoding = self._fields[name].encoding
        if encoding is None:
            raise ValueError(f"field {name!r} is not encoded")
        pieces = self.slices(name, indices)

        def decode(place: int) -> None:
            try:
                decode_sample(encoding, pieces[place], out[place])
            except ValueError as error:
                raise self.broken(name, int(indices[place]), str(error)) from error

        self._threads.run(len(pieces), decode)

    def lengths(self, name: str, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many values of a ragged field, or encoded bytes, each sample has: [B] int64.

        Raises:
            MissingShardError: A shard is not there.
            FormatError: It is not what the manifest promises.
        """
        return self._find(name, indices)[1]

    def slices(self, name: str, indices: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Return, of a ragged field, the stored values of each sample: [n, *shape] each.

        Of one that is encoded, its bytes: [n] uint8.

        Raises:
            MissingShardError: A shard is not there.
            FormatError: It is not what the manifest promises.
        """
        return _slices(*self._open(name, indices))

    def values_into(
        self, name: str, indices: NDArray[np.int64], out: NDArray[Any]
    ) -> NDArray[np.int64]:
        """Copy the values of a ragged field back to back.

        Args:
            name: Of the field.
            indices: [B] integers in 0..samples-1.
            out: [sum of lengths, *shape] of the field's dtype, C-contiguous.

        Returns:
            [B] int64, how many each sample has.

        Raises:
            MissingShardError: A shard is not there.
            FormatError: It is not what the manifest promises.
        """
        whole, starts, counts = self._open(name, indices)
        if len(out) < _SHORT * len(counts):
            out[...] = whole[ranges(starts, counts)]
        elif len(counts):  # NumPy wants at least one
            # One call copies them all; a loop of assignments took 1.1 times as long.
            np.concatenate(_slices(whole, starts, counts), out=out)
        return counts

    def lists_into(
        self, name: str, indices: NDArray[np.int64], out: NDArray[Any]
    ) -> NDArray[np.int64]:
        """Copy the values of a ragged field, each sample's to the start of a row.

        Args:
            name: Of the field; its values are single numbers.
            indices: [B] integers in 0..samples-1.
            out: [B, L] of the field's dtype, C-contiguous. What a sample has beyond L is left out;
                the rest of a row stays as it is.

        Returns:
            [B] int64, how many each sample has.

        Raises:
            MissingShardError: A shard is not there.
            FormatError: It is not what the manifest promises.
        """
        whole, starts, counts = self._open(name, indices)
        width = out.shape[1]
        kept = np.minimum(counts, width)
        if int(kept.sum()) < _SHORT * len(kept):
            places = ranges(np.arange(len(kept)) * width, kept)
            out.reshape(-1)[places] = whole[ranges(starts, kept)]
        else:
            for row, piece in zip(out, _slices(whole, starts, kept), strict=True):
                row[: len(piece)] = piece
        return counts

    def broken(self, name: str, index: int, what: str) -> FormatError:
        """Return the error for stored values of a sample that cannot be."""
        shard = int(np.searchsorted(self._ends, index, side="right"))
        column = self._fields[name].columns()[0]
        container = CONTAINERS[self._manifest.container]
        path = container.shard_path(self._path, self._split, shard, column, self._spec.capacity)
        row = index - int(self._starts[shard])
        return FormatError(
            f'{path}: sample {row}: {what}; run "prep check --full", which names all that is '
            'damaged, and "prep repair"'
        )

    def _open(
        self, name: str, indices: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
        """Return the values of all samples, and where in them those of each begin and how many."""
        shards, counts, starts = self._find(name, indices)
        column = self.column(name)
        column.touch(shards)
        return column.whole, starts + column.firsts.take(shards), counts

    def _find(
        self, name: str, indices: NDArray[np.int64]
    ) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
        """Return shard, number of values, and their place in the shard, of each sample: [B]."""
        shards = np.searchsorted(self._ends, indices, side="right")
        offsets = self.column(f"{name}_offsets")
        offsets.touch(shards)
        rows = indices + (offsets.firsts - self._starts).take(shards)
        starts = offsets.whole.take(rows)
        return shards, offsets.whole.take(rows + 1) - starts, starts

    def column(self, name: str) -> StoredColumn:
        """Return a stored column: the values of a ragged field, or its offsets."""
        name = self._stored.get(name, name)
        found = self._columns.get(name)
        if found is None:
            where = (self._path, self._manifest, self._split, name)
            made = stored_column(*where, verify=self._verify)
            found = self._columns.setdefault(name, made)
        return found


def _of_one(array: NDArray[Any]) -> StoredColumn:
    """Return a column of one shard that is mapped already."""
    only = np.zeros(1, np.int64)
    return StoredColumn(only + len(array), array, only, lambda _: array)


def _slices(
    whole: NDArray[Any], starts: NDArray[np.int64], counts: NDArray[np.int64]
) -> list[NDArray[Any]]:
    ends = (starts + counts).tolist()
    return [whole[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]
