"""Rows taken by index and images normalized, each in one pass: Triton on CUDA, torch elsewhere."""

import math
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from types import ModuleType
from typing import Final

import torch
from torch import Tensor

_PROGRAMS: Final = 64
"""Programs that read page-locked memory. On an H200 32 to 256 of them reached 0.91 of the link, 16
of them 0.60; so few fit beside the kernels of a model."""

_PROGRAMS_EACH: Final = 16
"""Programs for each processor of the GPU that read its own memory. Of images of 224 x 224 an H200
gathered and normalized 4.9 million a second with 2, 6.8 with 4, 7.5 with 8 and 16, 7.8 with 64."""

_TILE: Final = 1024
"""Words of a tile: 32 bytes a thread, of the longest word."""

_VALUES: Final = 4096
"""Values normalized by a program at a time, 16 a thread: 7.5 million images a second out of the
GPU's own memory, 7.3 with twice as many, 4.7 with half. Over the link it makes no difference."""

_LOADED: Final = 16
"""Bytes that a thread can load at once."""

_SHOWN: Final = 1024
"""Values of cut images that a program works out at a time: each takes many registers."""

_WARPS: Final = 8
"""Of 32 threads: 7.4 million images a second; 4 of them 6.9, 2 of them 7.5."""

LEVELS: Final = {torch.uint8: 255.0, torch.uint16: 65535.0}
"""The largest value of each stored type: what 1.0 is in the 0..1 scale of the statistics."""

_WORDS: Final = ((8, torch.int64), (4, torch.int32), (2, torch.int16), (1, torch.uint8))

WRITTEN: Final = frozenset({torch.float32, torch.float16, torch.bfloat16})
"""What the kernel writes."""


def kernels_for(device: torch.device) -> ModuleType | None:
    """Return our kernels where they run: on CUDA, with Triton installed."""
    return _kernels() if device.type == "cuda" else None


@lru_cache(maxsize=1)
def _kernels() -> ModuleType | None:
    try:
        import triton  # noqa: F401
    except ImportError:
        return None
    from loaders import gather_kernels

    return gather_kernels


def take_rows(source: Tensor, index: Tensor) -> Tensor:
    """Copy rows by index.

    Args:
        source: [N, L] uint8, C-contiguous, on the device of `index`, or in page-locked memory that
            this, a CUDA device with Triton, reads by itself.
        index: [B] int64 in 0..N-1.

    Returns:
        [B, L] uint8 on the device of `index`.
    """
    width, device = source.shape[1], index.device
    out = torch.empty((len(index), width), dtype=torch.uint8, device=device)
    if not out.numel():
        return out
    word = next(dtype for nbytes, dtype in _WORDS if width % nbytes == 0)
    rows, target = source.view(word), out.view(word)
    kernels = kernels_for(device)
    if kernels is not None:
        launch_take(kernels, rows, index, target)
    elif device.type == "cpu":
        # In the thread that asks: torch's own gather calls a team of threads, which stand still
        # where another process uses a core.
        rows.numpy().take(index.numpy(), axis=0, out=target.numpy(), mode="clip")
    else:
        torch.index_select(rows, 0, index, out=target)
    return out


def launch_take(kernels: ModuleType, rows: Tensor, index: Tensor, out: Tensor) -> None:
    """Run the kernel that copies rows, [N, W] of any word -> [B, W]."""
    words = rows.shape[1]
    columns = min(_TILE, _power_of_two(words))
    height = max(1, _TILE // columns)
    tiles = -(-len(index) // height) * -(-words // columns)
    grid = (min(tiles, _programs(rows, out.device)),)
    with _current(out.device):
        kernels.take_rows[grid](
            rows,
            index,
            out,
            len(index),
            WORDS=words,
            ROWS=height,
            COLUMNS=columns,
            num_warps=_WARPS,
        )


def can_normalize(images: Tensor, dtype: torch.dtype) -> bool:
    """Return whether the kernel can write these images, [B, C, H, W], as `dtype`."""
    if type(images) is not Tensor or images.dtype not in LEVELS or dtype not in WRITTEN:
        return False
    if images.dim() != 4 or not images.numel() or torch.compiler.is_compiling():
        return False
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # noqa: SLF001 - no public name
    if kernels_for(images.device) is None or wrapped(images):
        return False
    return images.permute(0, 2, 3, 1).is_contiguous()


def normalize_rows(
    rows: Tensor, index: Tensor | None, scale: Tensor, bias: Tensor, dtype: torch.dtype
) -> Tensor:
    """Normalize images whose channels are innermost, taken by index, in one pass.

    Args:
        rows: [N, H, W, C] uint8 or uint16, C-contiguous, on a CUDA device or in page-locked memory.
        index: [B] int64 in 0..N-1 on the device; None takes all rows.
        scale: [C] float32 on the device.
        bias: [C] float32 on the device.
        dtype: float32, float16 or bfloat16.

    Returns:
        [B, H, W, C] `dtype` on the device.
    """
    kernels = kernels_for(scale.device)
    if kernels is None:
        raise RuntimeError("normalize_rows needs a CUDA device and Triton")
    count = len(rows) if index is None else len(index)
    out = torch.empty((count, *rows.shape[1:]), dtype=dtype, device=scale.device)
    launch_normalize(kernels, rows, index, out, (scale, bias))
    return out


def launch_normalize(
    kernels: ModuleType,
    rows: Tensor,
    index: Tensor | None,
    out: Tensor,
    statistics: tuple[Tensor, Tensor],
) -> None:
    """Run the kernel that takes and normalizes images, [N, H, W, C] -> [B, H, W, C]."""
    scale, bias = statistics
    words = math.prod(rows.shape[1:])
    lanes = _LOADED // rows.itemsize
    columns = max(lanes, min(_VALUES, _power_of_two(words)))
    tiles = len(out) * -(-words // columns)
    grid = (min(tiles, _programs(rows, out.device)),)
    with _current(out.device):
        kernels.normalize_rows[grid](
            rows,
            out if index is None else index,
            out,
            scale,
            bias,
            1.0 / LEVELS[rows.dtype],
            len(out),
            WORDS=words,
            CHANNELS=len(scale),
            COLUMNS=columns,
            LANES=lanes,
            INDEXED=index is not None,
            num_warps=_WARPS,
        )


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Make a CUDA device the current one, to which Triton launches whatever tensors it gets."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _programs(rows: Tensor, device: torch.device) -> int:
    if not rows.is_cuda:
        return _PROGRAMS
    return _PROGRAMS_EACH * _processors(device)


@lru_cache(maxsize=16)
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def launch_cut(
    kernels: ModuleType,
    rows: Tensor,
    boxes: Tensor,
    out: Tensor,
    statistics: tuple[Tensor, Tensor] | None,
    fraction: int | None,
) -> None:
    """Run the kernel that shows boxes of images.

    Args:
        kernels: What `kernels_for` returns.
        rows: [B, H, W, C] uint8 or uint16, C-contiguous.
        boxes: [B, 5] int32, as `Augment.draw` gives them.
        out: [B, height, width, C]; floats to be normalized, else as stored.
        statistics: Scale and bias, [C] float32 each; None leaves values as stored.
        fraction: Bits of a place between two pixels; None where boxes are not scaled.
    """
    columns = min(_SHOWN, _power_of_two(math.prod(out.shape[1:])))
    tiles = len(out) * -(-math.prod(out.shape[1:]) // columns)
    scale, bias = (boxes, boxes) if statistics is None else statistics
    with _current(out.device):
        kernels.cut_rows[(min(tiles, _programs(rows, out.device)),)](
            rows,
            boxes,
            out,
            scale,
            bias,
            1.0 / LEVELS[rows.dtype],
            len(out),
            HIGH=rows.shape[1],
            WIDE=rows.shape[2],
            CHANNELS=rows.shape[3],
            SHOWN_HIGH=out.shape[1],
            SHOWN_WIDE=out.shape[2],
            COLUMNS=columns,
            SCALED=fraction is not None,
            FRACTION=fraction or 0,
            NORMALIZED=statistics is not None,
            num_warps=_WARPS,
        )
