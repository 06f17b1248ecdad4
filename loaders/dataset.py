"""Random access to a dataset: index -> shard -> rows of a map. Knows no modality but by table."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from loaders.buckets import BucketPictures, Buckets
from loaders.errors import FormatError, SelectionError
from loaders.format.promised import expect_sizes
from loaders.format.recorded_buckets import Shape
from loaders.format.spec import (
    Manifest,
    read_manifest,
)
from loaders.groups import Groups
from loaders.images import Shown, Size, image_views
from loaders.samples import CLASS, Batch, SampleDataset
from loaders.selection import pick
from loaders.split_columns import SplitColumns
from loaders.stretches import Stretches
from loaders.views import Part, Take, View, fresh

_VIEWS: Final[Mapping[str, Callable[..., tuple[Shown, ...]]]] = {"images": image_views}
"""Kind in the manifest -> what samples of that kind show."""


def open_dataset(
    path: str | Path,
    *,
    split: str = "train",
    size: Size = None,
    padded: bool = False,
    verify: bool = False,
) -> "ShardDataset":
    """Open a dataset that `prep` wrote.

    The manifest is read, and the split's files are compared with it in size; shards are mapped
    when they are first touched.

    Args:
        path: The dataset's folder.
        split: "train", "validation" or "test".
        size: Which stored size to serve as "image": 512, "512x384" or (512, 384), width first;
            may be left out where only one is stored.
        padded: Give pictures and boxes whose number differs from sample to sample as one tensor,
            filled up with zeros, and "image_valid" (and so on), bool, that says which of it counts;
            else as lists.
        verify: Compare the checksum of each file when it is first touched, which reads all of it:
            a flipped bit is then a ChecksumError, not a sample.

    Raises:
        IncompleteError: There is no finished dataset in the folder.
        SelectionError: The split or the size is not stored.
        MissingShardError: A file of the split is not there.
        FormatError: The manifest is damaged, or a file was cut or extended.
        VersionError: A newer format wrote it.
    """
    # Absolute: shards are opened later, perhaps from another working directory.
    return ShardDataset(Path(path).absolute(), split, size, padded=padded, verify=verify)


class ShardDataset(SampleDataset):
    """One split of a dataset as a map-style torch dataset.

    `ds[i]` is one sample, `ds.__getitems__([...])` a whole batch in one gather; both are dicts by
    field name: "image" uint8 or uint16 [C, H, W] or [B, C, H, W] in channels_last strides, "label"
    (where stored) an int or int64 [B], "key" the item's path or a list of them. Where pictures
    differ in size a batch has a list of them; where they are in buckets it takes samples of one.
    All of it is private memory: changing it never
    reaches the files.

    Pickles as its path and options, so worker processes open their own maps. Maps are read-only
    and safe across fork.

    Attributes:
        path: The dataset's folder.
        split: The split's name.
        verify: Whether checksums are compared.
        manifest: The dataset's description.
        shown: What samples show.
        views: The arrays behind it.
    """

    def __init__(
        self,
        path: Path,
        split: str,
        size: Size = None,
        *,
        padded: bool = False,
        verify: bool = False,
    ) -> None:
        self.path = path
        self.split = split
        self.verify = verify
        self.manifest: Manifest = read_manifest(path)
        if split not in self.manifest.splits:
            stored = ", ".join(self.manifest.splits)
            raise SelectionError(f"{path}: no split {split!r}; stored are {stored}: give split=...")
        if self.manifest.kind == "tokens":
            raise SelectionError(f"{path}: holds tokens; open it with loaders.open_tokens")
        if self.manifest.kind == "table":
            raise SelectionError(f"{path}: holds a table; open it with loaders.open_table")
        if self.manifest.kind not in _VIEWS:
            raise FormatError(
                f"{path}: kind {self.manifest.kind!r} is none of {sorted(_VIEWS)}; "
                "upgrade prepshards"
            )
        self._size = size
        self._padded = padded
        self._spec = self.manifest.splits[split]
        expect_sizes(path, self.manifest, split)
        self._columns = SplitColumns(path, split, self.manifest, verify=verify)
        make = _VIEWS[self.manifest.kind]
        recipe = self.manifest.recipe
        self.shown = make(self._spec, size, str(path), self._columns, padded=padded, recipe=recipe)
        self.views: tuple[Part, ...] = tuple(p for shown in self.shown for p in shown.parts())
        entries = Counter(part.name for part in self.views)
        twice = [name for name, count in entries.items() if count > 1]
        if twice:
            raise FormatError(f"{path}: several fields would be {twice[0]!r} of a batch")
        self._fields = [shown.field.name for shown in self.shown]
        self._show_all(self._spec.count)

    def _opening(self) -> tuple[Callable[..., SampleDataset], tuple[Any, ...]]:
        made = partial(ShardDataset, padded=self._padded, verify=self.verify)
        return made, (self.path, self.split, self._size)

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{v.name} {v.field.dtype}{'[*]' * v.field.ragged}{list(v.field.shape)}"
            for v in self.shown
        )
        return f"ShardDataset({str(self.path)!r}, {self.split!r}: {self._counted}, {shapes})"

    def with_size(self, size: Size) -> "ShardDataset":
        """Return the same samples at another stored size.

        Raises:
            SelectionError: It is not stored.
        """
        made = ShardDataset(self.path, self.split, size, padded=self._padded, verify=self.verify)
        made._chosen = self._chosen
        return made

    @property
    def is_ragged(self) -> bool:
        """Whether something of a sample differs in size from sample to sample."""
        return any(shown.field.ragged for shown in self.shown)

    @property
    def buckets(self) -> dict[Shape, int]:
        """Shape, (width, height) in pixels, of each bucket -> its samples; {} without buckets.

        Raises:
            MissingShardError: A shard is not there.
            FormatError: A picture has the shape of none.
        """
        found, groups = self._buckets, self.groups
        if found is None or groups is None:
            return {}
        return dict(zip(found.shapes, groups.counts, strict=True))

    @property
    def groups(self) -> Groups | None:
        """The samples of each bucket; None without buckets."""
        found = self._buckets
        return None if found is None else Groups.of(pick(found.codes, self._chosen), found.names)

    @property
    def _buckets(self) -> Buckets | None:
        return next((s.buckets for s in self.shown if isinstance(s, BucketPictures)), None)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the manifest: names the exact dataset."""
        return hashlib.sha256(self.manifest.to_bytes()).hexdigest()

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in label order; empty without labels."""
        return self.manifest.classes

    @property
    def mean(self) -> tuple[float, ...] | None:
        """Mean per channel in 0..1, over the train split if there is one; None without images."""
        found = self._statistics()
        return None if found is None else found.mean

    @property
    def std(self) -> tuple[float, ...] | None:
        """Standard deviation per channel in 0..1, over the train split if there is one."""
        found = self._statistics()
        return None if found is None else found.std

    def _statistics(self) -> Any:
        # Validation and test are normalized as training was.
        spec = self.manifest.splits.get("train", self._spec)
        for view in self.shown:
            found = spec.statistics.get(view.field.name)
            if found is not None and found.pixels:
                return found
        return None

    def _first(self, batch: dict[str, Any]) -> dict[str, Any]:
        # As other datasets return labels; a batch of them is collated to the same int64.
        return {
            name: value.item() if isinstance(value, torch.Tensor) and value.ndim == 0 else value
            for name, value in super()._first(batch).items()
        }

    def _codes(self, field: str) -> tuple[NDArray[Any], Mapping[str, int]]:
        labels = [view for view in self.shown if view.field.role == "label"]
        if field != CLASS or not labels:
            return super()._codes(field)
        view = labels[0]
        rows = self._columns.rows(view.field.name)
        codes = rows.column(slice(view.field.nbytes), view.field.dtype)
        return codes, {name: number for number, name in enumerate(self.classes)}

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy the stored rows of a batch into arrays of the caller.

        Args:
            indices: [B] stored indices, in 0..span-1.
            buffers: View name -> [B, *field.shape] of the stored dtype, for the views wanted.
        """
        for shown in self.shown:
            if shown.name not in buffers:
                continue
            if isinstance(shown, View):
                self._columns.rows_into(shown.field.name, indices, buffers[shown.name])
            else:
                shown.gather_into(indices, buffers)

    def stretches(self, indices: NDArray[np.int64] | None) -> Iterator[Stretches]:
        """Yield the parts of maps that a gather of ascending stored indices [B] reads."""
        return self._columns.stretches(self._fields, indices)

    @property
    def made_nbytes(self) -> int:
        """Return 0: batches lie over the gathered rows, but for what is small."""
        return 0

    def show(
        self,
        rows: Mapping[str, torch.Tensor],
        take: Take = fresh,  # noqa: ARG002
    ) -> Batch:
        """Turn gathered rows, on any device, into a batch over the same memory where it can be.

        Args:
            rows: View name -> [B, *field.shape] of the stored dtype.
            take: Not needed.
        """
        return Batch(
            {name: value for shown in self.shown for name, value in shown.shown(rows).items()}
        )
