"""Boxes between a picture and what is stored of it, by the transform that is stored beside it."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from loaders.errors import SelectionError
from loaders.format.fields import TRANSFORM


def boxes_to_original(boxes: Any, transform: Any) -> Tensor:
    """Map boxes, such as predictions, to pixels of the upright picture that a sample was made of.

    Args:
        boxes: [..., 4] left, top, right, bottom in pixels of the stored picture: a tensor of any
            float type, or an array or lists of numbers.
        transform: [10] whole numbers, the sample's "transform".

    Returns:
        [..., 4] of the type of `boxes`, of lists float32; not cut to the picture.

    Raises:
        SelectionError: These are no boxes, or no transform of one sample.
    """
    given, source, target = _boxes(boxes, transform)
    return (given - target[:2].repeat(2)) * _scale(target, source) + source[:2].repeat(2)


def boxes_to_stored(boxes: Any, transform: Any) -> Tensor:
    """Map boxes in pixels of the upright picture to pixels of what is stored of it.

    Args:
        boxes: [..., 4] left, top, right, bottom: a tensor of any float type, or an array or lists
            of numbers.
        transform: [10] whole numbers, the sample's "transform".

    Returns:
        [..., 4] of the type of `boxes`, of lists float32; not cut to what is stored.

    Raises:
        SelectionError: These are no boxes, or no transform of one sample.
    """
    given, source, target = _boxes(boxes, transform)
    return (given - source[:2].repeat(2)) * _scale(source, target) + target[:2].repeat(2)


def _boxes(given: Any, transform_given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return the boxes, the part of the picture that was taken, and the box that it fills."""
    boxes, transform = _tensor("boxes", given), _tensor("transform", transform_given)
    if not isinstance(given, Tensor) and not boxes.is_floating_point():
        boxes = boxes.to(torch.float32)
    if not boxes.numel() and boxes.ndim == 1:  # an empty list: of no box
        boxes = boxes.reshape(0, 4)
    if boxes.shape[-1:] != (4,) or not boxes.is_floating_point():
        raise SelectionError(
            f"boxes are {boxes.dtype} {list(boxes.shape)}: expected floats [..., 4]: left, top, "
            "right, bottom"
        )
    if transform.shape != (TRANSFORM,):
        raise SelectionError(
            f"transform of shape {tuple(transform.shape)}: expected ({TRANSFORM},), of one sample"
        )
    numbers = transform.to(device=boxes.device, dtype=boxes.dtype)
    return boxes, numbers[2:6], numbers[6:10]


def _tensor(name: str, given: Any) -> Tensor:
    if isinstance(given, Tensor):
        return given
    try:
        if isinstance(given, np.ndarray):
            # A copy: torch takes none that is read-only, turned, or of the other byte order.
            given = np.ascontiguousarray(given).astype(given.dtype.newbyteorder("="))
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise SelectionError(
            f"{name} is {type(given).__name__}: expected a tensor, an array or lists of numbers"
        ) from error


def _scale(old: Tensor, new: Tensor) -> Tensor:
    return ((new[2:] - new[:2]) / (old[2:] - old[:2])).repeat(2)
