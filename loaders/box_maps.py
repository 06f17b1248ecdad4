"""Boxes between a picture and what is stored of it, by the transform that is stored beside it."""

from torch import Tensor

from loaders.errors import SelectionError
from loaders.format.fields import TRANSFORM


def boxes_to_original(boxes: Tensor, transform: Tensor) -> Tensor:
    """Map boxes, such as predictions, to pixels of the upright picture that a sample was made of.

    Args:
        boxes: [..., 4] left, top, right, bottom in pixels of the stored picture; any float type.
        transform: [10] int64, the sample's "transform".

    Returns:
        [..., 4] of the type of `boxes`; not cut to the picture.

    Raises:
        SelectionError: These are no boxes, or no transform of one sample.
    """
    source, target = _boxes(boxes, transform)
    return (boxes - target[:2].repeat(2)) * _scale(target, source) + source[:2].repeat(2)


def boxes_to_stored(boxes: Tensor, transform: Tensor) -> Tensor:
    """Map boxes in pixels of the upright picture to pixels of what is stored of it.

    Args:
        boxes: [..., 4] left, top, right, bottom; any float type.
        transform: [10] int64, the sample's "transform".

    Returns:
        [..., 4] of the type of `boxes`; not cut to what is stored.

    Raises:
        SelectionError: These are no boxes, or no transform of one sample.
    """
    source, target = _boxes(boxes, transform)
    return (boxes - source[:2].repeat(2)) * _scale(source, target) + target[:2].repeat(2)


def _boxes(boxes: Tensor, transform: Tensor) -> tuple[Tensor, Tensor]:
    """Return the part of the picture that was taken, and the box that it fills."""
    for name, given in (("boxes", boxes), ("transform", transform)):
        if not isinstance(given, Tensor):
            raise SelectionError(
                f"{name} is {type(given).__name__}: expected a torch tensor, as by torch.as_tensor"
            )
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
    return numbers[2:6], numbers[6:10]


def _scale(old: Tensor, new: Tensor) -> Tensor:
    return ((new[2:] - new[:2]) / (old[2:] - old[:2])).repeat(2)
