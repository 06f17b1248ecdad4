"""Random access to a dataset: index -> shard -> rows of a map. Knows no modality but by table."""

import hashlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset
from torch.utils.data._utils.collate import default_collate_fn_map

from loaders.errors import FormatError, SelectionError
from loaders.format.containers import CONTAINERS
from loaders.format.files import MANIFEST
from loaders.format.spec import (
    Manifest,
    read_manifest,
)
from loaders.images import Shown, Size, image_views
from loaders.split_columns import SplitColumns
from loaders.views import Part, Take, fresh, gather_batch

_VIEWS: Final[Mapping[str, Callable[..., tuple[Shown, ...]]]] = {"images": image_views}
"""Kind in the manifest -> what samples of that kind show."""


def open_dataset(
    path: str | Path, *, split: str = "train", size: Size = None, padded: bool = False
) -> "ShardDataset":
    """Open a dataset that `prep` wrote.

    Only the manifest is read; shards are mapped when they are first touched.

    Args:
        path: The dataset's folder.
        split: "train", "validation" or "test".
        size: Which stored size to serve as "image": 512, "512x384" or (512, 384), width first;
            may be left out where only one is stored.
        padded: Give pictures and boxes whose number differs from sample to sample as one tensor,
            filled up with zeros, and "image_valid" (and so on), bool, that says which of it counts;
            else as lists.

    Raises:
        IncompleteError: There is no finished dataset in the folder.
        SelectionError: The split or the size is not stored.
        FormatError: The manifest is damaged.
        VersionError: A newer format wrote it.
    """
    # Absolute: shards are opened later, perhaps from another working directory.
    return ShardDataset(Path(path).absolute(), split, size, padded=padded)


class Batch(dict[str, Any]):
    """A batch that is ready: what `ShardDataset.__getitems__` returns, a dict by field name.

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


class ShardDataset(Dataset[dict[str, Any]]):
    """One split of a dataset as a map-style torch dataset.

    `ds[i]` is one sample, `ds.__getitems__([...])` a whole batch in one gather; both are dicts by
    field name: "image" uint8 or uint16 [C, H, W] or [B, C, H, W] in channels_last strides, "label"
    (where stored) an int or int64 [B], "key" the item's path or a list of them. Where pictures
    differ in size a batch has a list of them. All of it is private memory: changing it never
    reaches the files.

    Pickles as its path and options, so worker processes open their own maps. Maps are read-only
    and safe across fork.

    Attributes:
        path: The dataset's folder.
        split: The split's name.
        manifest: The dataset's description.
        shown: What samples show.
        views: The arrays behind it.
    """

    def __init__(self, path: Path, split: str, size: Size = None, *, padded: bool = False) -> None:
        self.path = path
        self.split = split
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
        self._columns = SplitColumns(path, split, self.manifest)
        self._check_sizes()
        make = _VIEWS[self.manifest.kind]
        fill = self.manifest.recipe.get("mask_padding", 0)
        self.shown = make(
            self._spec, size, str(path), self._columns, padded=padded, mask_fill=int(fill)
        )
        self.views: tuple[Part, ...] = tuple(p for shown in self.shown for p in shown.parts())

    def _check_sizes(self) -> None:
        """Refuse a manifest whose file sizes do not follow from its shapes and counts."""
        spec, container = self._spec, CONTAINERS[self.manifest.container]
        for column, rows in spec.columns():
            sizes = {
                count: container.shard_nbytes(column, count, spec.capacity) for count in set(rows)
            }
            files = spec.files[column.name]
            for index, (count, nbytes) in enumerate(zip(rows, files.nbytes, strict=True)):
                expected = sizes[count] if spec.counts[index] else 0
                if nbytes != expected:
                    raise FormatError(
                        f"{self.path / MANIFEST}: {self.split} shard {index} column {column.name}: "
                        f"{nbytes} bytes, {count} rows need {expected}"
                    )

    def __reduce__(self) -> tuple[Any, ...]:
        options = {"size": self._size, "padded": self._padded}
        return _reopen, (self.path, self.split, options, self.fingerprint)

    def __len__(self) -> int:
        return self._spec.count

    def __repr__(self) -> str:
        shapes = ", ".join(
            f"{v.name} {v.field.dtype}{'[*]' * v.field.ragged}{list(v.field.shape)}"
            for v in self.shown
        )
        return f"ShardDataset({str(self.path)!r}, {self.split!r}: {len(self):,} samples, {shapes})"

    def with_size(self, size: Size) -> "ShardDataset":
        """Return the same samples at another stored size.

        Raises:
            SelectionError: It is not stored.
        """
        return ShardDataset(self.path, self.split, size, padded=self._padded)

    @property
    def is_ragged(self) -> bool:
        """Whether something of a sample differs in size from sample to sample."""
        return any(shown.field.ragged for shown in self.shown)

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

    def __getitem__(self, index: int) -> dict[str, Any]:
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {position} is out of range for {len(self)} samples")
        batch = self.__getitems__([position % len(self)])
        sample = {name: value[0] for name, value in batch.items()}
        # As other datasets return labels; a batch of them is collated to the same int64.
        return {
            name: value.item() if isinstance(value, torch.Tensor) and value.ndim == 0 else value
            for name, value in sample.items()
        }

    def __getitems__(self, indices: Sequence[int] | NDArray[Any] | torch.Tensor) -> Batch:
        """Return a whole batch in one gather.

        Args:
            indices: [B] integers in -len..len-1, in any order, repeats allowed.

        Returns:
            A dict by field name, see the class.

        Raises:
            IndexError: An index is out of range.
            FormatError: A shard is not what the manifest promises.
        """
        return Batch(gather_batch(self, indices))

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy the stored rows of a batch into arrays of the caller.

        Args:
            indices: [B] integers in 0..len-1.
            buffers: View name -> [B, *field.shape] of the stored dtype, for every view.
        """
        places = self._columns.places(indices)
        for shown in self.shown:
            shown.gather(self._columns, places, buffers)

    @property
    def stored_nbytes(self) -> int:
        """Bytes of the fields that samples show, those of other sizes left out."""
        return self._columns.stored_nbytes(shown.field for shown in self.shown)

    def maps(self) -> Iterator[NDArray[Any]]:
        """Open the files of these fields, read-only."""
        return self._columns.opened(shown.field for shown in self.shown)

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


def _reopen(path: Path, split: str, options: Any, fingerprint: str) -> ShardDataset:
    """Open the dataset again in another process, and only the very same one."""
    dataset = ShardDataset(path, split, **options)
    if dataset.fingerprint != fingerprint:
        raise FormatError(f"{path}: the dataset was replaced while it was open; open it again")
    return dataset
