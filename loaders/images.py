"""What images add on the reading side: which stored field is "image", and how it is shown."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from loaders.buckets import BucketPictures, Buckets
from loaders.errors import FormatError, SelectionError
from loaders.format.encoding import MAX_SIDE
from loaders.format.fields import FieldSpec
from loaders.format.recorded_buckets import recorded_shapes
from loaders.format.split_spec import SplitSpec
from loaders.format.strict import Place
from loaders.pictures import RaggedField
from loaders.split_columns import SplitColumns
from loaders.views import View

Size = int | str | tuple[int, int] | None
"""512 for a square, "512x384" or (512, 384) for width x height; None for the only one there is."""

_PREFIX: Final = "image_"

_PIXELS: Final = frozenset({"image", "pixel_labels"})
_OF_A_SIZE: Final = frozenset({*_PIXELS, "transform", "boxes", "box_labels"})
_ENTRIES: Final = frozenset({"image", "mask", "transform", "boxes", "box_labels"})
_ON_HOST: Final = frozenset({"page", "transform"})
"""Roles of what describes a sample, and is no input of a model."""


Shown = View | RaggedField | BucketPictures
"""One or two entries of a batch, and how they are filled."""


def image_views(
    split: SplitSpec,
    size: Size,
    where: str,
    columns: SplitColumns,
    *,
    padded: bool,
    recipe: Mapping[str, Any],
) -> tuple[Shown, ...]:
    """Choose what samples show: one image size and what belongs to it, labels, the key.

    Args:
        split: The split's description.
        size: Which stored size to serve.
        where: Names the dataset in errors.
        columns: What is stored.
        padded: Whether what differs in size is given as one tensor with a mask, not as a list.
        recipe: As the manifest has it: what masks are filled up with then, all else with zeros;
            and the shapes of buckets.

    Raises:
        FormatError: Masks cannot hold that, or these are no shapes.
        SelectionError: The size is not stored, or several are and none was chosen; or there is
            nothing to pad.
        FormatError: Nothing says how large pictures of any size are.
    """
    name = _stored_size(split, size, where)
    shapes = recorded_shapes(recipe, name, where)
    differing = {field.role for field in split.fields if field.ragged}
    if padded and not differing:
        raise SelectionError(f"{where}: padded=True: all samples have one size, leave it out")
    buckets = None
    if shapes is not None:
        buckets = Buckets(columns, f"transform_{name}", shapes, where)
    names = {field.name for field in split.fields}
    views: list[Shown] = []
    for field in split.fields:
        entry = field.name.removesuffix(f"_{name}")
        if field.role in _OF_A_SIZE and entry not in _ENTRIES:
            continue  # of another size
        if not field.ragged:
            views += _fixed_view(field, entry)
            continue
        transform = f"transform_{name}" if field.role in _PIXELS else None
        if transform is not None and transform not in names:
            raise FormatError(
                f"{where}: field {field.name!r} of pictures of any size has no {transform!r}, "
                'which says how large they are; run "prep check" or prepare it again'
            )
        fill = _fill(field, recipe.get("mask_padding", 0), where)
        if transform is not None and buckets is not None:
            _expect_sides(field, buckets, where)
            views.append(
                BucketPictures(name=entry, field=field, buckets=buckets, padded=padded, fill=fill)
            )
            continue
        views.append(
            RaggedField(
                name=entry,
                field=field,
                columns=columns,
                transform=transform,
                padded=padded,
                fill=fill,
            )
        )
    return tuple(views)


def _expect_sides(field: FieldSpec, buckets: Buckets, where: str) -> None:
    """Refuse buckets that no encoded picture can fill."""
    largest = max(map(max, buckets.shapes))
    if field.encoding is not None and largest > MAX_SIDE:
        raise FormatError(
            f"{where}: recipe.buckets: a side of {largest}, encoded pictures have up to {MAX_SIDE}"
        )


def _stored_size(split: SplitSpec, size: Size, where: str) -> str:
    """Return the name of the size that is asked for, or of the only one."""
    stored = [f.name.removeprefix(_PREFIX) for f in split.fields if f.role == "image"]
    if size is None and len(stored) == 1:
        return stored[0]
    name = None if size is None else _size_name(size, where)
    if name is None or name not in stored:
        asked = "no size was chosen" if name is None else f"no size {name}"
        raise SelectionError(f"{where}: {asked}; stored are {', '.join(stored)}: give size=...")
    return name


def _fixed_view(field: FieldSpec, entry: str) -> list[View]:
    """Return how a field of fixed shape is shown, if it is."""
    if field.role == "key":
        return [View(name="key", field=field, show=show_keys, on_device=False)]
    if field.role not in _SHOWS:
        return []
    on_device = field.role not in _ON_HOST
    return [View(name=entry, field=field, show=_SHOWS[field.role], on_device=on_device)]


def _fill(field: FieldSpec, mask_fill: Any, where: str) -> int:
    """Return what stands around the samples of a field where they are padded."""
    if field.role != "pixel_labels":
        return 0
    most = int(np.iinfo(field.numpy_dtype).max)
    return Place(f"{where}: recipe.mask_padding").integer(mask_fill, low=0, high=most)


def _size_name(size: int | str | tuple[int, int], where: str) -> str:
    text = "x".join(str(side) for side in size) if isinstance(size, tuple) else str(size)
    match = re.fullmatch(r"(\d+)(?:x(\d+))?", text)
    if match is None:
        raise SelectionError(f'{where}: size={size!r}: expected 512, "512x384" or (512, 384)')
    return match[1] if match[2] in {None, match[1]} else text


def show_images(rows: Tensor) -> Tensor:
    """Return [B, C, H, W] over the same memory as [B, H, W, C]: channels_last strides."""
    return rows.permute(0, 3, 1, 2)


def show_labels(rows: Tensor) -> Tensor:
    """Return integers of any kind as [B] int64: what losses and `default_collate` use."""
    return rows.to(torch.int64)


def show_keys(rows: Tensor) -> list[str]:
    """Return B paths out of [B, L] zero-padded bytes; bytes that are not UTF-8 as surrogates."""
    keys = rows.numpy().view(f"S{rows.shape[1]}").reshape(-1).tolist()
    return [key.decode(errors="surrogateescape") for key in keys]


def show_plain(rows: Tensor) -> Tensor:
    """Return rows as they are stored."""
    return rows


_SHOWS: Final[Mapping[str, Callable[[Tensor], Any]]] = {
    "image": show_images,
    "label": show_labels,
    "page": show_labels,
    "transform": show_labels,
    "pixel_labels": show_plain,
    "labels": show_plain,
    "targets": show_plain,
}
"""Role of a field of fixed shape -> how a batch shows its rows."""
