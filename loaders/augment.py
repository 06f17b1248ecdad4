"""Random crops, flips and resized crops of a batch, on the device where it is.

The same place of the same epoch is cut alike on any device, in any process, for any batch size,
number of threads and of ranks: boxes follow from seed, epoch and place, and pixels between pixels
are worked out with integers. A sample that is drawn again in an epoch is cut anew.
"""

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from loaders.augment_boxes import FLIPPED, HEIGHT, LEFT, TOP, WIDTH, Boxes
from loaders.device_rows import LEVELS, WRITTEN, kernels_for, launch_cut
from loaders.errors import ImageTypeError, SelectionError
from loaders.normalize import Normalize, normalize_innermost

FRACTION: Final = 11
"""Bits of a place between two pixels, as in OpenCV: 8 bits of a value and 22 of two weights fit
into 31, and uint16 is worked out in 64."""

_SIGNED: Final = {torch.uint8: torch.uint8, torch.uint16: torch.int16}
"""Types of the same bytes that torch can gather."""


class Augment(nn.Module):
    """Random crop, random resized crop and horizontal flip of stored images, in one pass.

    Without `scale`, boxes of `size` are cut out of the image, which `padding` surrounds with zeros.
    With it, boxes of a random share of the area and random proportions are scaled to `size`,
    bilinear without smoothing: where boxes are more than twice `size`, store a smaller size. Give
    it to a `Loader`, which knows seed, epoch and places.

    Args:
        size: What is shown, a square or (height, width). None: whole images, or with `padding`
            boxes as large as the image.
        scale: Least and greatest share of the area, (0.08, 1.0) for ImageNet.
        ratio: Least and greatest width / height of scaled boxes.
        padding: Rows and columns of zeros on each side.
        flip: Probability of a horizontal flip.

    Raises:
        SelectionError: An option is out of range or excludes another.
    """

    def __init__(
        self,
        size: int | tuple[int, int] | None = None,
        *,
        scale: tuple[float, float] | None = None,
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        padding: int = 0,
        flip: float = 0.5,
    ) -> None:
        super().__init__()
        square = (size, size) if isinstance(size, int) else size
        self.boxes = Boxes(
            size=_pair(square), scale=_pair(scale), ratio=_pair(ratio), padding=padding, flip=flip
        )

    def draw(
        self, indices: NDArray[np.int64], height: int, width: int, *, seed: int = 0, epoch: int = 0
    ) -> NDArray[np.int32]:
        """Return which part of each image is shown.

        Args:
            indices: [B] what tells them apart: a `Loader` gives their places in the epoch.
            height: Of the images.
            width: Of the images.
            seed: Any integer >= 0.
            epoch: Number of the epoch.

        Returns:
            [B, 5] int32: top, left, height, width of the box, and 1 where it is mirrored.

        Raises:
            SelectionError: No box fits into the images.
        """
        self.boxes.check(height, width)
        return self.boxes.draw(indices, height, width, seed, epoch)

    def forward(self, images: Tensor, indices: Any, *, seed: int = 0, epoch: int = 0) -> Tensor:
        """Augment a batch.

        Args:
            images: [B, C, H, W] uint8 or uint16 on any device.
            indices: [B] integers that tell them apart, such as which samples of the dataset they
                are; best in host memory. A `Loader` gives their places in the epoch.
            seed: Any integer >= 0.
            epoch: Number of the epoch.

        Returns:
            [B, C, height, width] of the same dtype, channels_last.

        Raises:
            ImageTypeError: The images are not uint8 or uint16.
            SelectionError: Their number is not that of the indices, or no box fits.
        """
        known = torch.as_tensor(indices).cpu().to(torch.int64).numpy()
        if images.dtype not in LEVELS:
            raise ImageTypeError(
                f"images are {images.dtype}, expected stored uint8 or uint16: augment first, then "
                "normalize"
            )
        if images.dim() != 4 or known.shape != (len(images),):
            raise SelectionError(
                f"images {list(images.shape)} and indices {list(known.shape)}: expected "
                "[B, C, H, W] and [B]"
            )
        boxes = self.draw(known, images.shape[2], images.shape[3], seed=seed, epoch=epoch)
        moved = torch.from_numpy(boxes).to(images.device)
        return self.cut(images.permute(0, 2, 3, 1), moved).permute(0, 3, 1, 2)

    def cut(self, rows: Tensor, boxes: Tensor) -> Tensor:
        """Show the boxes of images.

        Args:
            rows: [B, H, W, C] uint8 or uint16.
            boxes: [B, 5] int32 on the same device, as `draw` gives them.

        Returns:
            [B, height, width, C] of the same dtype.
        """
        size = self.boxes.size or (rows.shape[1], rows.shape[2])
        kernels = kernels_for(rows.device)
        if kernels is not None and rows.is_contiguous() and rows.numel():
            out = rows.new_empty((len(rows), *size, rows.shape[3]))
            launch_cut(kernels, rows, boxes, out, None, self.fraction)
            return out
        signed = rows.view(_SIGNED[rows.dtype])
        cut = _scaled if self.boxes.scale is not None else _cropped
        return cut(signed, boxes.to(torch.int64), size).view(rows.dtype)

    @property
    def fraction(self) -> int | None:
        """Bits of a place between two pixels; None where boxes are not scaled."""
        return None if self.boxes.scale is None else FRACTION

    def cut_normalized(self, rows: Tensor, boxes: Tensor, normalize: Normalize) -> Tensor:
        """Show the boxes of images, normalized: in one pass where Triton runs.

        Args:
            rows: [B, H, W, C] uint8 or uint16.
            boxes: [B, 5] int32 on the same device.
            normalize: On this device.

        Returns:
            [B, height, width, C] of its output dtype.
        """
        kernels = kernels_for(rows.device)
        dtype = normalize.output_dtype
        if kernels is None or dtype not in WRITTEN or not (rows.is_contiguous() and rows.numel()):
            return normalize_innermost(normalize, self.cut(rows, boxes))
        size = self.boxes.size or (rows.shape[1], rows.shape[2])
        out = rows.new_empty((len(rows), *size, rows.shape[3]), dtype=dtype)
        launch_cut(kernels, rows, boxes, out, (normalize.scale, normalize.bias), self.fraction)
        return out

    def extra_repr(self) -> str:
        """The options, for `print`."""
        boxes = self.boxes
        return (
            f"size={boxes.size}, scale={boxes.scale}, ratio={boxes.ratio}, "
            f"padding={boxes.padding}, flip={boxes.flip}"
        )


def _pair(value: Any) -> Any:
    """Return what was given as a list, as in a file of options, as the tuple that it stands for."""
    return tuple(value) if isinstance(value, list) else value


def _cropped(rows: Tensor, boxes: Tensor, size: tuple[int, int]) -> Tensor:
    high, wide = rows.shape[1:3]
    y = boxes[:, TOP, None] + torch.arange(size[0], device=rows.device)  # [B, h]
    x = boxes[:, LEFT, None] + _places(boxes, size[1])  # [B, w]
    shown = _at(rows, y.clamp(0, high - 1), x.clamp(0, wide - 1))
    inside = ((y >= 0) & (y < high))[:, :, None] & ((x >= 0) & (x < wide))[:, None, :]
    return shown * inside[..., None]


def _scaled(rows: Tensor, boxes: Tensor, size: tuple[int, int]) -> Tensor:
    wide = torch.int32 if rows.dtype == torch.uint8 else torch.int64
    places = torch.arange(size[0], device=rows.device)
    top, bottom, down = _between(places, boxes[:, TOP], boxes[:, HEIGHT], size[0])
    left, right, across = _between(
        _places(boxes, size[1]), boxes[:, LEFT], boxes[:, WIDTH], size[1]
    )
    down, across = down.to(wide)[:, :, None, None], across.to(wide)[:, None, :, None]

    def row(y: Tensor) -> Tensor:
        near, far = (_unsigned(_at(rows, y, x), wide) for x in (left, right))
        return (near << FRACTION) + (far - near) * across

    upper, lower = row(top), row(bottom)
    # As integers the rounding is the same on every device.
    mixed = (upper << FRACTION) + (lower - upper) * down
    return ((mixed + (1 << (2 * FRACTION - 1))) >> (2 * FRACTION)).to(rows.dtype)


def _between(
    places: Tensor, start: Tensor, length: Tensor, size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the pixels before and after each place of a scaled side, and how far it is between.

    Pixel centres lie at halves: place p of `size` is at (p + 1/2) * length / size - 1/2.
    """
    exact = ((2 * places + 1) * length[:, None] << FRACTION) // (2 * size) - (1 << (FRACTION - 1))
    last = length[:, None] - 1
    exact = torch.minimum(exact.clamp_min(0), last << FRACTION)
    before = exact >> FRACTION
    after = torch.minimum(before + 1, last)
    return start[:, None] + before, start[:, None] + after, exact & ((1 << FRACTION) - 1)


def _places(boxes: Tensor, width: int) -> Tensor:
    """Return which column of a box each shown column is, [B, width]: backwards where mirrored."""
    places = torch.arange(width, device=boxes.device)
    return torch.where(boxes[:, FLIPPED, None] != 0, width - 1 - places, places)


def _at(rows: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Return the pixels at y, [B, h], and x, [B, w]: [B, h, w, C]."""
    images = torch.arange(len(rows), device=rows.device)[:, None, None]
    return rows[images, y[:, :, None], x[:, None, :]]


def _unsigned(pixels: Tensor, wide: torch.dtype) -> Tensor:
    values = pixels.to(wide)
    return values & 0xFFFF if pixels.dtype == torch.int16 else values
