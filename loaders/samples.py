"""What all datasets share: samples and batches by index, selections, and the order of an epoch."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset
from torch.utils.data._utils.collate import default_collate_fn_map

from loaders.errors import FormatError, SelectionError
from loaders.groups import Groups
from loaders.order import Epoch
from loaders.selection import Chosen, is_whole, narrow, pick, stored_indices, taken_once
from loaders.stretches import Stretches
from loaders.views import Part, Take, checked_indices, fresh, gather_batch

CLASS = "class"
"""Field of every dataset that has classes: `subset("class", ["cat"])`."""

_AT_ONCE = 1 << 20
"""Samples of a selection whose places in the files are held at a time."""

_SHOWN = 10
"""Names that an error lists."""


class Batch(dict[str, Any]):
    """A batch that is ready: what `__getitems__` of a dataset returns, a dict by field name.

    torch's `default_collate` looks at element 0 of what it is given, to stack samples. Here it
    finds a mark, registered in torch's table of collate functions, that lets the batch pass, so a
    plain `DataLoader(ds, batch_size=64)` needs no `collate_fn`.
    """

    def __missing__(self, key: object) -> "_Ready":
        if key == 0:
            return _Ready()
        raise KeyError(key)


class _Ready:
    """Marks a batch that needs no collating."""


def _pass_batch(batch: Batch, *, collate_fn_map: object = None) -> dict[str, Any]:  # noqa: ARG001
    return dict(batch)


default_collate_fn_map[_Ready] = _pass_batch


class SampleDataset(Dataset[dict[str, Any]], ABC):
    """Stored samples by index, all of them or a selection.

    An index into the dataset becomes a stored one once: in `order` for a `Loader`, in
    `__getitems__` for everybody else. `gather_into`, the parts' layouts and `stretches` take
    stored ones.

    Attributes:
        path: The dataset's folder.
        split: The split's name.
        span: Stored samples of the split.
        views: The arrays of a batch, for `Loader`.
    """

    path: Path
    split: str
    span: int
    views: tuple[Part, ...]
    _chosen: Chosen

    def _show_all(self, count: int) -> None:
        """Begin with all stored samples, in their order."""
        self.span = count
        self._chosen = range(count)

    @property
    def groups(self) -> Groups | None:
        """Samples that batches are to be made of, group by group; None where any will do."""
        return None

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of the manifest: names the exact dataset."""

    @abstractmethod
    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy what belongs to stored indices [B] into arrays of the parts' layouts.

        Those of parts that can be gathered apart may be missing.
        """

    @property
    @abstractmethod
    def made_nbytes(self) -> int:
        """Bytes that `show` makes of a sample in host memory, where it makes much of it."""

    @abstractmethod
    def show(self, rows: Mapping[str, Tensor], take: Take = fresh) -> Batch:
        """Turn filled arrays, on any device, into a batch."""

    @abstractmethod
    def stretches(self, indices: NDArray[np.int64] | None) -> Iterator[Stretches]:
        """Yield the parts of maps that a gather of stored samples reads.

        Args:
            indices: [B] stored indices, ascending, without repeats; None for all.
        """

    def all_stretches(self) -> Iterator[Stretches]:
        """Yield the parts of maps that batches read: whole files, of a selection its samples.

        Where samples differ in length the offsets of a selection are read for it.
        """
        taken = taken_once(self)
        if len(taken) == self.span:
            yield from self.stretches(None)
            return
        for first in range(0, len(taken), _AT_ONCE):
            places = np.arange(first, min(first + _AT_ONCE, len(taken)), dtype=np.int64)
            yield from self.stretches(stored_indices(taken, places))

    @abstractmethod
    def _opening(self) -> tuple[Callable[..., "SampleDataset"], tuple[Any, ...]]:
        """Return the call that opens the dataset again."""

    def _first(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the only sample of a batch of one."""
        return {name: value[0] for name, value in batch.items()}

    def _codes(self, field: str) -> tuple[NDArray[Any], Mapping[str, int]]:
        """Return what a field says of each stored sample, as codes, and the code of each name."""
        raise SelectionError(
            f"{self.path}: samples have no field {field!r} to select by: select by index or mask"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (*self._opening(), self.fingerprint, self._chosen)

    def __len__(self) -> int:
        return len(self._chosen)

    @property
    def indices(self) -> Chosen:
        """The stored index of each sample: a range, or int32 or int64 [len], read-only."""
        return self._chosen

    @property
    def _counted(self) -> str:
        """How many samples, for `repr`."""
        of = "" if is_whole(self._chosen, self.span) else f" of {self.span:,}"
        return f"{len(self):,} samples{of}"

    def __getitem__(self, index: int) -> dict[str, Any]:
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {position} is out of range for {len(self)} samples")
        return self._first(self.__getitems__([position]))

    def __getitems__(self, indices: Sequence[int] | NDArray[Any] | Tensor) -> Batch:
        """Return a whole batch in one gather.

        Args:
            indices: [B] integers in -len..len-1, in any order, repeats allowed.

        Returns:
            A dict by entry, see the class.

        Raises:
            IndexError: An index is out of range.
            FormatError: A shard is not what the manifest promises.
        """
        wanted = stored_indices(self._chosen, checked_indices(indices, len(self)))
        return Batch(gather_batch(self, wanted))

    def order(self, positions: NDArray[np.int64], epoch: Epoch) -> NDArray[np.int64]:
        """Return the stored index of the sample at each position [B] of an epoch."""
        return stored_indices(self._chosen, epoch.permuted(positions, len(self)))

    def select(self, indices: Any = None, *, label: str | int | None = None) -> Self:
        """Return the same dataset with some of its samples, in the order given.

        Nothing is copied but the indices: 4 bytes a sample, none for a range. A selection is a
        dataset like any other, also for another selection; its classes, mean and std are still
        those of the whole, and it pickles.

        Args:
            indices: [n] integers in -len..len-1, in any order, repeats allowed; [len] booleans; a
                range; or a slice. Arrays, tensors and lists will do.
            label: In place of them, the name or number of a class.

        Raises:
            SelectionError: An index is out of range, a mask has another length, there is no such
                class, or nothing is selected.
        """
        if (indices is None) == (label is None):
            raise SelectionError(f"{self.path}: select takes either indices or label=...")
        if label is not None:
            return self.subset(CLASS, label)
        return self._showing(narrow(self._chosen, indices, str(self.path)))

    def _showing(self, chosen: Chosen) -> Self:
        """Return the same dataset, over the same maps, with the samples of these stored indices."""
        selected = object.__new__(type(self))
        selected.__dict__.update(self.__dict__, _chosen=chosen)
        return selected

    def subset(self, field: str, values: Sequence[str | int] | str | int) -> Self:
        """Return the same dataset with the samples whose field has one of some values.

        Args:
            field: "class"; in a table also a column of categories.
            values: Names, or numbers of classes; one or several of them.

        Raises:
            SelectionError: There is no such field or value, or no sample has it.
        """
        codes, numbers = self._codes(field)
        given = [values] if isinstance(values, str | int | np.integer) else [*values]
        wanted = [self._code(field, value, numbers) for value in given]
        mask = np.isin(pick(codes, self._chosen), wanted)
        if not mask.any():
            raise SelectionError(f"{self.path}: no sample of {self.split} has {field} in {given}")
        return self.select(mask)

    def _code(self, field: str, value: Any, numbers: Mapping[str, int]) -> int:
        if isinstance(value, str) and value in numbers:
            return numbers[value]
        by_number = field == CLASS and isinstance(value, int | np.integer)
        if by_number and not isinstance(value, bool) and 0 <= value < len(numbers):
            return int(value)
        known = ", ".join(repr(name) for name in [*numbers][:_SHOWN])
        more = ", ..." if len(numbers) > _SHOWN else ""
        raise SelectionError(f"{self.path}: {field} has no value {value!r}; it has {known}{more}")

    def read_labels(self) -> NDArray[np.int64]:
        """Read the class of every sample: [len] int64, numbers of `classes`.

        Raises:
            SelectionError: Samples have no class.
            FormatError: A stored number is that of none.
        """
        codes, numbers = self._codes(CLASS)
        labels = pick(codes, self._chosen).astype(np.int64)
        bad = np.flatnonzero((labels < 0) | (labels >= len(numbers)))
        if len(bad):
            raise FormatError(
                f"{self.path}: {self.split}: class {labels[bad[0]]} of sample {bad[0]}, there are "
                f'{len(numbers)} classes; run "prep check" or prepare it again'
            )
        return labels


def _reopen(
    opener: Callable[..., SampleDataset],
    arguments: tuple[Any, ...],
    fingerprint: str,
    chosen: Chosen,
) -> SampleDataset:
    """Open the dataset again in another process, and only the very same one."""
    dataset = opener(*arguments)
    if dataset.fingerprint != fingerprint:
        raise FormatError(
            f"{dataset.path}: the dataset was replaced while it was open; open it again"
        )
    return dataset._showing(chosen)  # noqa: SLF001 - of this very class
