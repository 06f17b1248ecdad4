"""Pictures in buckets: every sample has one of a few shapes, every batch samples of one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.errors import SelectionError
from loaders.format.fields import FieldSpec
from loaders.format.recorded_buckets import Shape
from loaders.pictures import BOTTOM, COUNTS, RIGHT, RaggedPart
from loaders.split_columns import SplitColumns


class Buckets:
    """Which bucket each stored sample is of, as its transform says; read when first asked for.

    Args:
        columns: Where samples lie.
        transform: Name of the field that says each picture's size.
        shapes: The buckets' shapes, all different.
        where: Names the dataset in errors.
    """

    def __init__(
        self, columns: SplitColumns, transform: str, shapes: Sequence[Shape], where: str
    ) -> None:
        self.shapes = tuple(shapes)
        self.names = tuple(f"{width}x{height}" for width, height in self.shapes)
        self.columns = columns
        self._transform = transform
        self._where = where

    @cached_property
    def codes(self) -> NDArray[np.uint16]:
        """The bucket of each stored sample: [span] places in `shapes`.

        Raises:
            MissingShardError: A shard is not there.
            FormatError: A picture has the shape of none.
        """
        rows = self.columns.rows(self._transform)
        width, height = (
            rows.column(slice(4 * place, 4 * place + 4), "<u4").astype(np.int64)
            for place in (RIGHT, BOTTOM)
        )
        known = np.array(self.shapes, np.int64).reshape(-1, 2)
        shapes = known[:, 0] << 32 | known[:, 1]
        order = np.argsort(shapes)
        found = width << 32 | height
        places = np.searchsorted(shapes, found, sorter=order).clip(max=len(shapes) - 1)
        codes: NDArray[np.intp] = order[places]
        wrong = np.flatnonzero(shapes[codes] != found)
        if len(wrong):
            bad = int(wrong[0])
            what = f"size {width[bad]} x {height[bad]} is that of no bucket"
            raise self.columns.broken(self._transform, bad, what)
        return codes.astype(np.uint16)

    def largest_of(self, indices: NDArray[np.int64]) -> Shape:
        """Return the width and the height that hold every sample of a batch, of any buckets."""
        found = np.unique(self.codes.take(indices)).tolist() or [0]
        shapes = [self.shapes[code] for code in found]
        return max(width for width, _ in shapes), max(height for _, height in shapes)

    def shape_of(self, indices: NDArray[np.int64]) -> Shape:
        """Return the shape that all samples of a batch have.

        Args:
            indices: [B] stored indices; of none the shape is that of the first bucket.

        Raises:
            SelectionError: They are of several buckets.
        """
        codes = self.codes.take(indices)
        if not len(codes):
            return self.shapes[0]
        other = np.flatnonzero(codes != codes[0])
        if len(other):
            raise SelectionError(
                f"{self._where}: samples of the buckets {self.names[codes[0]]} and "
                f"{self.names[codes[other[0]]]} in one batch: Loader makes batches of one bucket, "
                "and so does DataLoader(ds, batch_sampler=BucketBatches(ds, batch_size)); "
                "open_dataset(..., padded=True) fills pictures of several up to one size"
            )
        return self.shapes[codes[0]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPictures:
    """Pictures, or their masks, of one bucket a batch: rows of one length among ragged ones.

    Padded ones may be of several: each lies in the corner of what holds them all.

    Attributes:
        name: Its key in samples and batches.
        field: The stored field.
        buckets: Which bucket each sample is of.
        padded: Batches may be of several buckets, and say which pixels count.
        fill: What pictures are filled up with then.
        on_device: True: it travels to the device of a batch.
        fixed: False: batches differ in shape.
    """

    name: str
    field: FieldSpec
    buckets: Buckets
    padded: bool = False
    fill: int = 0
    on_device: bool = True
    fixed: bool = False

    @property
    def shown_as(self) -> str:
        """What a batch calls it."""
        return self.name

    @property
    def apart(self) -> bool:
        """Whether it can be gathered alone: padded ones are with their sizes."""
        return not self.padded

    def parts(self) -> tuple["BucketPictures | RaggedPart", ...]:
        """Return the arrays of a batch that it fills: itself, and padded ones' sizes."""
        if not self.padded:
            return (self,)
        sizes = RaggedPart(
            name=self.name + COUNTS,
            shown_as=self.name,
            on_device=False,
            shape_of=lambda indices: (len(indices), 2),
            dtype=np.dtype(np.int64),
        )
        return self, sizes

    def layout(self, indices: NDArray[np.int64]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape, [B, H, W, C] or [B, H, W], and dtype of the array of a batch."""
        find = self.buckets.largest_of if self.padded else self.buckets.shape_of
        width, height = find(indices)
        return (len(indices), height, width, *self.field.shape), self.field.numpy_dtype

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy the pictures of a batch.

        Args:
            indices: [B] stored indices.
            buffers: An array of `layout` under its name, and for padded ones those of `parts`.

        Raises:
            FormatError: A picture has not as many pixels as its bucket.
        """
        if not self.padded:
            self._gather_one(indices, buffers[self.name])
            return
        out, sizes = buffers[self.name], buffers[self.name + COUNTS]
        codes = self.buckets.codes.take(indices)
        several = np.unique(codes).tolist()
        if len(several) > 1:
            out[:] = self.fill
        for code in several:
            width, height = self.buckets.shapes[code]
            own = np.flatnonzero(codes == code)
            sizes[own] = height, width
            if len(several) == 1:
                self._gather_one(indices, out)
                continue
            pictures = np.empty((len(own), height, width, *self.field.shape), out.dtype)
            self._gather_one(indices[own], pictures)
            out[own, :height, :width] = pictures

    def _gather_one(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Copy pictures of one bucket."""
        width, height = self.buckets.shape_of(indices)
        columns = self.buckets.columns
        if self.field.encoding is not None:
            columns.decode_into(self.field.name, indices, out)
            return
        lengths = columns.lengths(self.field.name, indices)
        wrong = np.flatnonzero(lengths != width * height)
        if len(wrong):
            what = f"{lengths[wrong[0]]} pixels, its size is {width} x {height}"
            raise columns.broken(self.field.name, int(indices[wrong[0]]), what)
        rows = out.reshape(-1, *self.field.shape)
        columns.values_into(self.field.name, indices, rows)

    def shown(self, rows: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return its entry of a batch: [B, C, H, W] over the same memory, or [B, H, W].

        Of padded ones also which pixels count, bool [B, H, W].
        """
        pictures = rows[self.name]
        found = {self.name: pictures.permute(0, 3, 1, 2) if self.field.shape else pictures}
        if self.padded:
            sizes = rows[self.name + COUNTS].to(pictures.device)[:, :, None, None]  # [B, 2, 1, 1]
            high, wide = (torch.arange(n, device=pictures.device) for n in pictures.shape[1:3])
            found[f"{self.name}_valid"] = (high[:, None] < sizes[:, 0]) & (wide < sizes[:, 1])
        return found
