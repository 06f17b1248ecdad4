"""Pictures in buckets: every sample has one of a few shapes, every batch samples of one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from loaders.errors import SelectionError
from loaders.format.fields import FieldSpec
from loaders.format.recorded_buckets import Shape
from loaders.pictures import BOTTOM, RIGHT
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
                "and so does DataLoader(ds, batch_sampler=BucketBatches(ds, batch_size))"
            )
        return self.shapes[codes[0]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPictures:
    """Pictures, or their masks, of one bucket a batch: rows of one length among ragged ones.

    Attributes:
        name: Its key in samples and batches.
        field: The stored field.
        buckets: Which bucket each sample is of.
        on_device: True: it travels to the device of a batch.
        fixed: False: batches differ in shape.
        apart: True: it can be gathered without the others.
    """

    name: str
    field: FieldSpec
    buckets: Buckets
    on_device: bool = True
    fixed: bool = False
    apart: bool = True

    def parts(self) -> tuple["BucketPictures", ...]:
        """Return the array of a batch that it fills: itself."""
        return (self,)

    def layout(self, indices: NDArray[np.int64]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape, [B, H, W, C] or [B, H, W], and dtype of the array of a batch."""
        width, height = self.buckets.shape_of(indices)
        return (len(indices), height, width, *self.field.shape), self.field.numpy_dtype

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy the pictures of a batch.

        Args:
            indices: [B] stored indices.
            buffers: An array of `layout` under its name.

        Raises:
            FormatError: A picture has not as many pixels as its bucket.
        """
        width, height = self.buckets.shape_of(indices)
        columns = self.buckets.columns
        if self.field.encoding is not None:
            columns.decode_into(self.field.name, indices, buffers[self.name])
            return
        lengths = columns.lengths(self.field.name, indices)
        wrong = np.flatnonzero(lengths != width * height)
        if len(wrong):
            what = f"{lengths[wrong[0]]} pixels, its size is {width} x {height}"
            raise columns.broken(self.field.name, int(indices[wrong[0]]), what)
        rows = buffers[self.name].reshape(-1, *self.field.shape)
        columns.values_into(self.field.name, indices, rows)

    def shown(self, rows: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return its entry of a batch: [B, C, H, W] over the same memory, or [B, H, W]."""
        pictures = rows[self.name]
        return {self.name: pictures.permute(0, 3, 1, 2) if self.field.shape else pictures}
