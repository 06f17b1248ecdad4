"""How stored fields appear in samples and batches, and what a `Loader` needs of a dataset."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.errors import SelectionError
from loaders.format.fields import FieldSpec
from loaders.stretches import Stretches

Take = Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]]
"""Gives an array of a shape and dtype, of arbitrary content."""


def fresh(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return memory that nobody had before."""
    return np.empty(shape, dtype)


@dataclass(frozen=True, slots=True)
class View:
    """One entry of a sample.

    Attributes:
        name: The entry's key in samples and batches.
        field: The stored field behind it.
        show: [B, *field.shape] rows as stored, on any device -> what a batch holds, over the same
            memory where it can.
        on_device: Whether the rows travel to the device of a batch, or stay in host memory.
        fixed: Whether every sample has one row, of the same shape.
        apart: Whether it can be gathered without the others.
    """

    name: str
    field: FieldSpec
    show: Callable[[Tensor], Any]
    on_device: bool = True
    fixed: bool = True
    apart: bool = True

    @property
    def shown_as(self) -> str:
        """What a batch calls it."""
        return self.name

    def layout(self, indices: NDArray[np.int64]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and dtype of the array that takes the rows of a batch."""
        return (len(indices), *self.field.shape), self.field.numpy_dtype

    def parts(self) -> tuple["View", ...]:
        """Return the array of a batch that it fills: itself."""
        return (self,)

    def shown(self, rows: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return its entry of a batch."""
        return {self.name: self.show(rows[self.name])}


class Part(Protocol):
    """One array of a batch on its way from the maps to `show`."""

    @property
    def name(self) -> str:
        """Its key among the arrays."""
        ...

    @property
    def shown_as(self) -> str:
        """What a batch calls what it is made of: how errors name it."""
        ...

    @property
    def on_device(self) -> bool:
        """Whether it travels to the device of a batch, or stays in host memory."""
        ...

    @property
    def fixed(self) -> bool:
        """Whether row b of the array is sample b, of a shape that no sample changes."""
        ...

    @property
    def apart(self) -> bool:
        """Whether `gather_into` can leave it out, or all others."""
        ...

    def layout(self, indices: NDArray[np.int64]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and dtype of the array for the samples [B] of a batch."""
        ...


@runtime_checkable
class Gatherable(Protocol):
    """A dataset that fills arrays which the caller owns, and shows them as a batch."""

    @property
    def path(self) -> Path:
        """Names the dataset in errors."""
        ...

    @property
    def split(self) -> str:
        """Names the split in errors."""
        ...

    @property
    def views(self) -> Sequence[Part]:
        """The arrays of a batch."""
        ...

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy what belongs to the samples [B] into arrays of the parts' layouts, in any thread.

        Args:
            indices: [B] as `order` gives them.
            buffers: An array for each of `views`, C-contiguous; those of parts that can be gathered
                apart may be missing.
        """
        ...

    @property
    def made_nbytes(self) -> int:
        """Bytes that `show` makes of a sample in host memory, where it makes much of it."""
        ...

    def show(self, rows: Mapping[str, Tensor], take: Take = fresh) -> Mapping[str, Any]:
        """Turn filled arrays, those that travel on any device, into a batch.

        Args:
            rows: By part.
            take: Gives the memory for what is made in host memory.
        """
        ...


@runtime_checkable
class Mapped(Protocol):
    """A dataset whose samples lie in mapped files."""

    def all_stretches(self) -> Iterator[Stretches]:
        """Yield the parts of these files that batches read, without opening them."""
        ...


def mapped(dataset: Gatherable) -> Mapped:
    """Return a dataset as one whose samples lie in mapped files.

    Raises:
        SelectionError: It does not say so.
    """
    if not isinstance(dataset, Mapped):
        raise SelectionError(
            f"{dataset.path}: a {type(dataset).__name__} has no all_stretches(), which says where "
            'in files its samples lie: use residency="disk"'
        )
    return dataset


def span(dataset: Gatherable) -> int:
    """Return the number that indices lie below: that of samples, where a dataset says no more."""
    found = getattr(dataset, "span", None)
    return found if isinstance(found, int) else len(dataset)


def batch_nbytes(parts: Sequence[Part], indices: NDArray[np.int64]) -> int:
    """Return the bytes that a gather of some samples fills."""
    layouts = [part.layout(indices) for part in parts]
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in layouts)


def gather_batch(dataset: Gatherable, indices: NDArray[np.int64]) -> Mapping[str, Any]:
    """Return a batch in memory of its own.

    Args:
        dataset: Gathers and shows it.
        indices: [B] as `gather_into` takes them.

    Raises:
        FormatError: A shard is not what the manifest promises.
    """
    buffers = {part.name: np.empty(*part.layout(indices)) for part in dataset.views}
    dataset.gather_into(indices, buffers)
    return dataset.show({name: torch.from_numpy(rows) for name, rows in buffers.items()})


def checked_indices(indices: Any, count: int) -> NDArray[np.int64]:
    """Return indices as [B] int64 in 0..count-1.

    Args:
        indices: [B] integers in -count..count-1, in any order, repeats allowed.
        count: Samples of the dataset.

    Raises:
        IndexError: An index is out of range, or they are no list of integers.
    """
    given = np.asarray(indices)
    if given.size == 0:
        return np.empty(0, np.int64)
    if given.ndim != 1 or given.dtype.kind not in "iu":
        raise IndexError(f"expected a list of integers, got {given.dtype} {given.shape}")
    wanted = given.astype(np.int64)
    if given.dtype.kind == "i":
        wanted = np.where(wanted < 0, wanted + count, wanted)
    if wanted.min() < 0 or wanted.max() >= count:
        bad = given[(wanted < 0) | (wanted >= count)][0]
        raise IndexError(f"index {bad} is out of range for {count} samples")
    return wanted
