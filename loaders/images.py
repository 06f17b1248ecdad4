"""What images add on the reading side: which stored field is "image", and how it is shown."""

import re
from typing import Final

import torch
from torch import Tensor

from loaders.errors import SelectionError
from loaders.format.spec import SplitSpec
from loaders.views import View

Size = int | str | tuple[int, int] | None
"""512 for a square, "512x384" or (512, 384) for width x height; None for the only one there is."""

_PREFIX: Final = "image_"


def image_views(split: SplitSpec, size: Size, where: str) -> tuple[View, ...]:
    """Choose what samples show: one image size, the label if stored, the key.

    Args:
        split: The split's description.
        size: Which stored size to serve.
        where: Names the dataset in errors.

    Raises:
        SelectionError: The size is not stored, or several are and none was chosen.
    """
    stored = {f.name.removeprefix(_PREFIX): f for f in split.fields if f.role == "image"}
    name = _size_name(size, where) if size is not None else None
    if name is None and len(stored) == 1:
        name = next(iter(stored))
    if name not in stored:
        asked = "no size was chosen" if name is None else f"no size {name}"
        raise SelectionError(f"{where}: {asked}; stored are {', '.join(stored)}: give size=...")
    views = [View(name="image", field=stored[name], show=show_images)]
    for field in split.fields:
        if field.role == "label":
            views.append(View(name="label", field=field, show=show_labels))
        elif field.role == "key":
            views.append(View(name="key", field=field, show=show_keys, on_device=False))
        elif field.role == "page":
            views.append(View(name="page", field=field, show=show_labels, on_device=False))
    return tuple(views)


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
