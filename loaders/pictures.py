"""Pictures, masks and boxes of which every sample has its own number: as lists, or padded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.format.encoding import MAX_SIDE
from loaders.format.fields import TRANSFORM, FieldSpec
from loaders.split_columns import SplitColumns

RIGHT: Final = 8
BOTTOM: Final = 9
"""In a transform, of the box that a whole picture fills: its width and height."""

COUNTS: Final = "_counts"
"""Ending of the array that says how many values each sample has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedPart:
    """One array of a batch: [values of all samples, *shape], or what says whose they are.

    Attributes:
        name: Its key among the arrays.
        shown_as: What a batch calls what it is of.
        on_device: Whether it travels to the device of a batch.
        shape_of: Indices -> shape.
        dtype: Of it.
        fixed: False: samples differ in it.
        apart: False: values and counts are gathered together.
    """

    name: str
    shown_as: str
    on_device: bool
    shape_of: Callable[[NDArray[np.int64]], tuple[int, ...]]
    dtype: np.dtype[Any]
    fixed: bool = False
    apart: bool = False

    def layout(self, indices: NDArray[np.int64]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and dtype of the array for the samples [B] of a batch."""
        return self.shape_of(indices), self.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedField:
    """A ragged field: samples of rows of values, or of pixels with a height and a width.

    Attributes:
        name: Its key in samples and batches.
        field: The stored field.
        columns: Where it lies.
        transform: Name of the field that says each picture's size; None for rows.
        padded: Give one tensor, filled up, and a mask, in place of a list.
        fill: What it is filled up with.
    """

    name: str
    field: FieldSpec
    columns: SplitColumns
    transform: str | None
    padded: bool
    fill: int = 0

    def parts(self) -> tuple[RaggedPart, ...]:
        """Return the values, and the size of each sample."""
        values = RaggedPart(
            name=self.name,
            shown_as=self.name,
            on_device=True,
            shape_of=self._values_shape,
            dtype=self.field.numpy_dtype,
        )
        sides = 1 if self.transform is None else 2
        counts = RaggedPart(
            name=self.name + COUNTS,
            shown_as=self.name,
            on_device=False,
            shape_of=lambda indices: (len(indices), sides),
            dtype=np.dtype(np.int64),
        )
        return values, counts

    def _values_shape(self, indices: NDArray[np.int64]) -> tuple[int, ...]:
        if self.field.encoding is not None:
            lengths = self._sizes(indices).prod(axis=1)
        else:
            lengths = self.columns.lengths(self.field.name, indices)
        return (int(lengths.sum()), *self.field.shape)

    def _sizes(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return height and width of each picture, out of its transform: [B, 2].

        Raises:
            FormatError: A picture that is encoded has a size that none can have.
        """
        transforms = np.empty((len(indices), TRANSFORM), np.uint32)
        self.columns.rows_into(self.transform or "", indices, transforms)
        sizes = transforms[:, [BOTTOM, RIGHT]].astype(np.int64)
        if self.field.encoding is not None:
            wrong = np.flatnonzero(((sizes < 1) | (sizes > MAX_SIDE)).any(axis=1))
            if len(wrong):
                bad = int(wrong[0])
                what = f"its size is {sizes[bad, 1]} x {sizes[bad, 0]}, sides go up to {MAX_SIDE}"
                raise self.columns.broken(self.field.name, int(indices[bad]), what)
        return sizes

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy the values of the samples back to back, and their sizes.

        Args:
            indices: [B] stored indices.
            buffers: An array for each of `parts`.

        Raises:
            FormatError: A picture has not as many pixels as its size says.
        """
        name, values = self.field.name, buffers[self.name]
        sizes = buffers[self.name + COUNTS]
        if self.transform is None:
            sizes[:, 0] = self.columns.values_into(name, indices, values)
            return
        sizes[:] = self._sizes(indices)
        if self.field.encoding is not None:
            ends = sizes.prod(axis=1).cumsum()[:-1]
            pieces = zip(np.split(values, ends), sizes.tolist(), strict=True)
            pictures = [piece.reshape(*size, *self.field.shape) for piece, size in pieces]
            self.columns.decode_into(name, indices, pictures)
            return
        lengths = self.columns.values_into(name, indices, values)
        wrong = np.flatnonzero((sizes[:, 0] * sizes[:, 1] != lengths) | (lengths == 0))
        if len(wrong):
            bad = int(wrong[0])
            what = f"{lengths[bad]} pixels, its size is {sizes[bad, 1]} x {sizes[bad, 0]}"
            raise self.columns.broken(self.field.name, int(indices[bad]), what)

    def shown(self, rows: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return a list of a tensor a sample, or one padded tensor and which of it counts."""
        sizes = rows[self.name + COUNTS].tolist()
        pixels = self.transform is not None
        lengths = [size[0] * size[1] if pixels else size[0] for size in sizes]
        values = rows[self.name]
        if self.field.role == "box_labels":
            values = values.to(torch.int64)
        found = [
            piece.reshape(*size, *self.field.shape)
            for piece, size in zip(torch.split(values, lengths), sizes, strict=True)
        ]  # [H, W, C] or [H, W]; [n, ...]
        is_image = pixels and bool(self.field.shape)
        if not self.padded:
            return {self.name: [p.permute(2, 0, 1) if is_image else p for p in found]}
        filled, mask = _pad(found, sizes, 2 if pixels else 1, self.fill, values)
        return {
            self.name: filled.permute(0, 3, 1, 2) if is_image else filled,
            f"{self.name}_valid": mask,
        }


def _pad(
    pieces: Sequence[Tensor], sizes: Sequence[Sequence[int]], sides: int, fill: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Lay pieces into the corner of one tensor: [B, most..., *rest], and bool [B, most...]."""
    most = [max((size[axis] for size in sizes), default=0) for axis in range(sides)]
    rest = like.shape[1:]
    filled = torch.full((len(pieces), *most, *rest), fill, dtype=like.dtype, device=like.device)
    mask = torch.zeros((len(pieces), *most), dtype=torch.bool, device=like.device)
    for row, known, piece in zip(filled, mask, pieces, strict=True):
        box = tuple(slice(side) for side in piece.shape[: len(most)])
        row[box] = piece
        known[box] = True
    return filled, mask
