"""Ragged lists of rows that are shuffled: by block in files, read in any order of the rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError
from loaders.format.fields import FieldSpec
from loaders.format.files import write_all
from loaders.format.ragged import ranges
from preprocess.recipe import Ragged

_OFFSET = np.dtype("<i8")


@dataclass(frozen=True, slots=True)
class DealtLists:
    """The lists of one split.

    A file holds those of one field in the rows of one block: where each begins and the last ends,
    as int64, then their values.

    Attributes:
        folder: Where the files are.
        split: The split.
        counts: Rows of the split in each block.
    """

    folder: Path
    split: str
    counts: NDArray[np.int64]

    def write(self, part: int, lists: Mapping[str, Ragged]) -> None:
        """Write the lists of the rows of a block, by field.

        Raises:
            OSError: The folder cannot take them.
        """
        for name, found in lists.items():
            offsets = np.zeros(len(found.counts) + 1, _OFFSET)
            np.cumsum(found.counts, out=offsets[1:])
            values = np.ascontiguousarray(found.values)
            with self._path(name, part).open("wb", buffering=0) as file:
                write_all(file.fileno(), offsets.data)
                write_all(file.fileno(), values.view(np.uint8).data)

    def read(self, field: FieldSpec, places: NDArray[np.int64]) -> Ragged:
        """Return the lists of a field at [n] places in the split, in that order.

        Raises:
            FormatError: A file cannot be read, or is not whole.
        """
        firsts = np.cumsum(self.counts) - self.counts
        parts = np.searchsorted(firsts, places, side="right") - 1
        counts = np.zeros(len(places), np.int64)
        pieces: list[tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[Any]]] = []
        for part in np.unique(parts).tolist():
            mine = parts == part  # an empty block is none: the last that begins there holds it
            offsets, values = self._map(field, part)
            rows = places[mine] - firsts[part]
            counts[mine] = offsets[rows + 1] - offsets[rows]
            pieces.append((mine, offsets[rows], values))
        out = np.empty(int(counts.sum()), field.numpy_dtype)
        targets = np.cumsum(counts) - counts
        for mine, starts, values in pieces:
            out[ranges(targets[mine], counts[mine])] = values[ranges(starts, counts[mine])]
        return Ragged(out, counts)

    def _map(self, field: FieldSpec, part: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return where the lists of a block begin, [n + 1], and their values."""
        path = self._path(field.name, part)
        try:
            data: NDArray[np.uint8] = np.memmap(path, np.uint8, mode="r")
        except (OSError, ValueError) as error:
            raise FormatError(f"{path}: cannot be read: {error}") from error
        end = _OFFSET.itemsize * (int(self.counts[part]) + 1)
        offsets = data[:end].view(_OFFSET)
        expected = end + int(offsets[-1]) * field.numpy_dtype.itemsize
        if len(data) != expected:
            raise FormatError(f"{path}: {len(data)} bytes, {expected} were written")
        return offsets, data[end:].view(field.numpy_dtype)

    def _path(self, name: str, part: int) -> Path:
        return self.folder / f"{self.split}.{name}.{part:05d}"
