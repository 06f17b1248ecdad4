"""Integer images become normalized floats on the device, as part of the model.

Stored images travel as uint8 or uint16 and are normalized where they are used: a float batch is two
to four times the bytes over the link. The statistics are a property of the dataset, so they come
from it (`Normalize.for_dataset`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Protocol, Self

import torch
from torch import Tensor, nn

from loaders.device_rows import LEVELS, can_normalize, normalize_rows
from loaders.errors import ImageTypeError, NormalizeError, SelectionError
from loaders.exact_buffers import ExactModule

# The smallest normal float32: below it 1 / std is no longer a number that float32 can hold well.
_SMALLEST_STD = torch.finfo(torch.float32).tiny

# Stored class indices and masks; losses such as cross-entropy want int64.
_NARROW_INTEGERS = frozenset(
    {torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32}
)


class HasStatistics(Protocol):
    """A dataset that knows the statistics of its images."""

    @property
    def mean(self) -> Sequence[float] | None:
        """Mean of each channel in the 0..1 scale; None without images."""

    @property
    def std(self) -> Sequence[float] | None:
        """Standard deviation of each channel in the 0..1 scale; None without images."""


class Normalize(ExactModule):
    """`(image / levels - mean) / std` for stored integers, levels = 255 (uint8) or 65535 (uint16).

    The arithmetic is float32 whatever the output: 65535 does not fit float16, and bfloat16 has 8
    bits. The statistics are kept as what one multiply-add a value needs, `scale` and `bias`: with
    mean and std as buffers a compiled kernel divides for every value (H200, channels_last uint8 to
    bfloat16: 2.4 TB/s instead of 4.0, where a copy makes 4.2). They are float32 buffers, saved with
    the model, and stay float32, exact, when the model is cast (`model.half()`,
    `.to(torch.bfloat16)`, `.double()`); such a call chooses the output's dtype instead.

    Args:
        mean: Mean of each channel in the 0..1 scale.
        std: Standard deviation of each channel in the 0..1 scale, > 0.
        dtype: The output's dtype, whatever happens to the model. None: float32, or what the module
            was last cast to.

    Raises:
        NormalizeError: The statistics are not finite, std is not positive, the lengths differ, or
            dtype is not a float.
    """

    exact = ("scale", "bias")
    scale: Tensor  # [C] float32, 1 / std
    bias: Tensor  # [C] float32, -mean / std

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], *, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(dtype)
        _check_statistics(mean, std)
        scale = [1.0 / s for s in std]
        bias = [-m / s for m, s in zip(mean, std, strict=True)]
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float32))
        self.register_buffer("bias", torch.tensor(bias, dtype=torch.float32))

    @classmethod
    def for_dataset(cls, dataset: HasStatistics, *, dtype: torch.dtype | None = None) -> Self:
        """Take the statistics from a dataset.

        A channel that never varies, as alpha of photos that are all opaque, is divided by 1: it
        becomes 0, and stays in its range where other pictures vary in it.

        Args:
            dataset: Anything with `mean` and `std`, one number a channel in the 0..1 scale.
            dtype: As in the constructor.

        Raises:
            SelectionError: The dataset has no image statistics.
            NormalizeError: Its statistics cannot normalize: no channel varies.
        """
        mean, std = dataset.mean, dataset.std
        if mean is None or std is None:
            raise SelectionError(
                f"{type(dataset).__name__} has no image statistics (mean and std are None); "
                "open the image field, or pass numbers to Normalize(mean, std)"
            )
        constant = [0 <= s < _SMALLEST_STD for s in std]
        if not all(constant):  # else the constructor says so
            std = [1.0 if same else s for s, same in zip(std, constant, strict=True)]
        return cls(mean, std, dtype=dtype)

    @property
    def mean(self) -> Tensor:
        """Mean of each channel in the 0..1 scale, [C] float32, from the buffers."""
        return -self.bias / self.scale

    @property
    def std(self) -> Tensor:
        """Standard deviation of each channel in the 0..1 scale, [C] float32, from the buffers."""
        return 1.0 / self.scale

    def forward(self, images: Tensor) -> Tensor:
        """Normalize stored images.

        Args:
            images: [..., C, H, W] uint8 or uint16 on the module's device, any strides.

        Returns:
            The same shape in `output_dtype`, strides kept: channels_last stays channels_last.

        Raises:
            ImageTypeError: The images are not uint8 or uint16.
            NormalizeError: The number of channels is not that of the statistics.
        """
        levels = LEVELS.get(images.dtype)
        if levels is None:
            raise ImageTypeError(
                f"images are {images.dtype}, expected stored uint8 or uint16; float images are "
                "probably normalized already: give Normalize what the loader yields"
            )
        if images.dim() < 3 or images.shape[-3] != self.scale.shape[0]:
            raise NormalizeError(self._misfit(images))
        dtype = self.output_dtype
        if images.device == self.scale.device and can_normalize(images, dtype):
            rows = images.permute(0, 2, 3, 1)
            return normalize_rows(rows, None, self.scale, self.bias, dtype).permute(0, 3, 1, 2)
        scale = (self.scale * (1.0 / levels))[:, None, None]  # [C, 1, 1]
        # Integers in, float32 out: one pass, where images.float() would be another.
        return torch.addcmul(self.bias[:, None, None], images, scale).to(dtype)

    def extra_repr(self) -> str:
        """The statistics and the output, for `print(model)`."""
        if self.scale.is_meta:
            return f"channels={self.scale.shape[0]}, dtype={self.output_dtype}"
        mean, std = (tuple(round(v, 6) for v in t.tolist()) for t in (self.mean, self.std))
        return f"mean={mean}, std={std}, dtype={self.output_dtype}"

    def _misfit(self, images: Tensor) -> str:
        channels = self.scale.shape[0]
        message = (
            f"images have shape {list(images.shape)}, expected [..., C, H, W] with "
            f"C = {channels}, the number of channels of the statistics"
        )
        if images.dim() >= 3 and images.shape[-1] == channels:
            message += "; these look like [..., H, W, C]: give images.movedim(-1, -3)"
        return message


class NormalizedModel(nn.Module):
    """A model that takes stored integers: normalize, run, and compute the loss where the data is.

    With the loss inside, what a parallel wrapper (DistributedDataParallel, DataParallel) sees of a
    step is small integers in and a scalar out, and a checkpoint carries the statistics it was
    trained with.

    Args:
        normalize: Turns stored images into floats.
        backbone: The model, called with the normalized images.
        loss: Called as `loss(output, target)`; None for a model that only predicts.
    """

    def __init__(
        self,
        normalize: Normalize,
        backbone: nn.Module,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.normalize = normalize
        self.backbone = backbone
        self.loss = loss

    def forward(self, image: Tensor, target: Tensor | None = None) -> Tensor:
        """Predict, or with a target compute the loss.

        Args:
            image: [..., C, H, W] uint8 or uint16.
            target: What the loss compares with, on the same device. Integers narrower than int64
                become int64 here, so that they travel as stored.

        Returns:
            The backbone's output, or the loss if there is a target.

        Raises:
            NormalizeError: There is a target and no loss, or the images do not fit.
        """
        if target is not None and self.loss is None:
            raise NormalizeError(
                "a target was given and the model has no loss; "
                "make it with NormalizedModel(normalize, backbone, loss) or leave the target out"
            )
        output: Tensor = self.backbone(self.normalize(image))
        if target is None or self.loss is None:
            return output
        if target.dtype in _NARROW_INTEGERS:
            target = target.to(torch.int64)
        return self.loss(output, target)


def normalize_innermost(normalize: Normalize, rows: Tensor) -> Tensor:
    """Normalize images as they are stored, [B, H, W, C]."""
    return normalize(rows.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)  # type: ignore[no-any-return]


def _check_statistics(mean: Sequence[float], std: Sequence[float]) -> None:
    if not len(mean) == len(std) > 0:
        raise NormalizeError(
            f"{len(mean)} means and {len(std)} standard deviations; expected one of each a channel"
        )
    for channel, (m, s) in enumerate(zip(mean, std, strict=True)):
        if not math.isfinite(m):
            raise NormalizeError(f"channel {channel}: mean is {m}, expected a finite number")
        if not (math.isfinite(s) and s >= _SMALLEST_STD):
            raise NormalizeError(
                f"channel {channel}: std is {s}, expected a finite number > 0; a channel that "
                "never varies cannot be normalized by its own statistics"
            )
