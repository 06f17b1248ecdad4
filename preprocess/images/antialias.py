"""torch's antialiased resize of uint8 pixels, without importing torch's Python package.

The import runs a thousand modules, which takes several times as long as loading the library, in
every process that prepares photos; nothing of it is needed to resize one. So the library is loaded
by itself and its operator called through its stable C interface. Where it cannot be loaded so, the
package is imported and the same operator called through it.

Source:
    torch/csrc/stable/c/shim.h and torch/csrc/inductor/aoti_torch/c/shim.h of torch 2.13.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

OPERATORS: Final = {"bilinear": b"_upsample_bilinear2d_aa", "bicubic": b"_upsample_bicubic2d_aa"}
"""Filters that torch has antialiased, and its operators."""

_WRITTEN_FOR: Final = 2 << 56 | 11 << 48
"""The version whose operators are called, 2.11.0: a newer library adapts the call to its own.

As TORCH_ABI_VERSION counts: major, minor and patch in the three highest bytes.
"""

_TOGETHER: Final = 4
"""Channels that torch takes interleaved as they are; three as well, and slower."""

_FILES: Final = {"linux": "libtorch_cpu.so", "darwin": "libtorch_cpu.dylib"}


class Torch(Protocol):
    """What is used of torch."""

    def resize(
        self, pixels: NDArray[np.uint8], size: tuple[int, int], resample: str
    ) -> NDArray[np.uint8]:
        """Scale [H, W, C] to size (height, width), rounded to uint8 after each axis."""

    def count_threads(self) -> int:
        """Return how many threads one operator may use."""

    def set_threads(self, count: int) -> None:
        """Set that."""


def resize_antialiased(
    pixels: NDArray[np.uint8], size: tuple[int, int], resample: str
) -> NDArray[np.uint8]:
    """Scale pixels by torch, one axis after the other, rounded to uint8 between.

    Args:
        pixels: [H, W, C] uint8, C-contiguous; C is 1 or 3.
        size: Height and width wanted.
        resample: One of `OPERATORS`.

    Returns:
        [height, width, C] uint8, C-contiguous.

    Raises:
        RuntimeError: torch refused the call.
    """
    if pixels.shape[2] != 1:
        return _torch().resize(pixels, size, resample)
    # NOTE [ Grey by four ]
    # torch takes one channel apart and spreads it over four before it works. Four at a time gives
    # the very values, an axis being scaled alike in all channels: 1536x1536 to 512 and 1024 in 3 ms
    # instead of 16, and in 9 as RGB.
    grey = pixels[:, :, 0]
    if size[1] != grey.shape[1]:
        grey = _scale_across(grey, size[1], resample)
    if size[0] != grey.shape[0]:
        grey = _scale_down(grey, size[0], resample)
    return np.ascontiguousarray(grey)[:, :, None]


def _scale_across(grey: NDArray[np.uint8], width: int, resample: str) -> NDArray[np.uint8]:
    """Scale [H, W] to another width: a quarter of the rows is a channel."""
    import cv2

    whole = _filled_up(grey, 0)
    rows = len(whole) // _TOGETHER
    shown = cv2.merge([*whole.reshape(_TOGETHER, rows, -1)])  # [H / 4, W, 4]
    scaled = _torch().resize(np.asarray(shown, np.uint8), (rows, width), resample)
    return np.concatenate([np.asarray(part, np.uint8) for part in cv2.split(scaled)])[: len(grey)]


def _scale_down(grey: NDArray[np.uint8], height: int, resample: str) -> NDArray[np.uint8]:
    """Scale [H, W] to another height: every fourth column is of one channel."""
    whole = _filled_up(grey, 1)
    shown = whole.reshape(len(whole), -1, _TOGETHER)  # [H, W / 4, 4]
    scaled = _torch().resize(shown, (height, shown.shape[1]), resample)
    return scaled.reshape(height, -1)[:, : grey.shape[1]]


def _filled_up(grey: NDArray[np.uint8], axis: int) -> NDArray[np.uint8]:
    """Add zeros until an axis is a multiple of four; C-contiguous."""
    missing = [(0, 0), (0, 0)]
    missing[axis] = (0, -grey.shape[axis] % _TOGETHER)
    return np.pad(grey, missing) if any(missing[axis]) else np.ascontiguousarray(grey)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Have torch's operators use one thread each inside, and as many as before afterwards."""
    torch = _torch()
    before = torch.count_threads()
    torch.set_threads(1)
    try:
        yield
    finally:
        torch.set_threads(before)


@cache
def _torch() -> Torch:
    return open_library(_library_path()) or TorchPackage()


def _library_path() -> Path | None:
    """Return where torch's library lies by the folder of the package, which is not imported."""
    found = find_spec("torch")
    places = None if found is None else found.submodule_search_locations
    name = _FILES.get(sys.platform)
    return Path(places[0]) / "lib" / name if places and name else None


def open_library(path: Path | None) -> Torch | None:
    """Load torch's library; None where there is none or it lacks what is called."""
    try:
        return None if path is None else TorchLibrary(path)
    except (OSError, AttributeError):
        return None


class TorchPackage:
    """torch as its Python package."""

    def resize(
        self, pixels: NDArray[np.uint8], size: tuple[int, int], resample: str
    ) -> NDArray[np.uint8]:
        """Scale [H, W, C] to size (height, width), rounded to uint8 after each axis."""
        import torch

        writable = pixels if pixels.flags.writeable else pixels.copy()  # no read-only tensors there
        # [H, W, C] -> [1, C, H, W] as channels_last, in and out: the other layouts cost a copy.
        shown = torch.from_numpy(writable)[None].permute(0, 3, 1, 2)
        scaled = torch.nn.functional.interpolate(shown, size=size, mode=resample, antialias=True)
        return np.ascontiguousarray(scaled.permute(0, 2, 3, 1)[0].numpy())  # no copy

    def count_threads(self) -> int:
        """Return how many threads one operator may use."""
        import torch

        return torch.get_num_threads()

    def set_threads(self, count: int) -> None:
        """Set that."""
        import torch

        torch.set_num_threads(count)


class TorchLibrary:
    """torch as its C++ library, by its C interface.

    Raises:
        OSError: The library cannot be loaded.
        AttributeError: It lacks a function that is called here.
    """

    def __init__(self, path: Path) -> None:
        # Calls through `library` keep the interpreter's lock, those through CDLL hand it on.
        library = ctypes.PyDLL(str(path))
        pointer, word = ctypes.c_void_p, ctypes.c_uint64
        number, small = ctypes.c_int64, ctypes.c_int32
        to_pointer, to_numbers = ctypes.POINTER(pointer), ctypes.POINTER(number)
        self._call = ctypes.CDLL(str(path)).torch_call_dispatcher
        self._call.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(word), word]
        self._wrap = library.aoti_torch_create_tensor_from_blob
        self._wrap.argtypes = [pointer, number, to_numbers, to_numbers, number]
        self._wrap.argtypes += [small, small, small, to_pointer]
        self._drop = library.aoti_torch_delete_tensor_object
        self._drop.argtypes = [pointer]
        self._new_list = library.torch_new_list_reserve_size
        self._new_list.argtypes = [ctypes.c_size_t, to_pointer]
        self._push = library.torch_list_push_back
        self._push.argtypes = [pointer, word]
        self._count_threads = library["_ZN2at15get_num_threadsEv"]  # at::get_num_threads()
        self._set_threads = library["_ZN2at15set_num_threadsEi"]  # at::set_num_threads(int)
        self._set_threads.restype = None
        # Of this thread's last failed call; older libraries print it.
        self._cause = getattr(library, "torch_exception_get_what_without_backtrace", None)
        if self._cause is not None:
            self._cause.argtypes, self._cause.restype = [], ctypes.c_char_p
        self._uint8 = library.aoti_torch_dtype_uint8()
        self._cpu = library.aoti_torch_device_type_cpu()

    def resize(
        self, pixels: NDArray[np.uint8], size: tuple[int, int], resample: str
    ) -> NDArray[np.uint8]:
        """Scale [H, W, C] to size (height, width), rounded to uint8 after each axis."""
        scaled = np.empty((*size, pixels.shape[2]), np.uint8)
        wanted = ctypes.c_void_p()
        self._check(self._new_list(2, ctypes.byref(wanted)))
        for side in size:
            self._check(self._push(wanted, side))
        shown, result = self._tensor(pixels), self._tensor(scaled)
        # self, output_size, align_corners, scales_h, scales_w, out: the call takes them over.
        stack = (ctypes.c_uint64 * 6)(shown, cast("int", wanted.value), 0, 0, 0, result)
        self._check(self._call(b"aten::" + OPERATORS[resample], b"out", stack, _WRITTEN_FOR))
        self._check(self._drop(stack[0]))
        return scaled

    def _tensor(self, pixels: NDArray[np.uint8]) -> int:
        """Return a handle of [H, W, C] shown as [1, C, H, W] in channels_last, no copy."""
        height, width, channels = pixels.shape
        numbers, handle = ctypes.c_int64 * 4, ctypes.c_void_p()
        sizes = numbers(1, channels, height, width)
        strides = numbers(pixels.nbytes, 1, width * channels, channels)
        place = (sizes, strides, 0, self._uint8, self._cpu, 0)
        self._check(self._wrap(pixels.ctypes.data, 4, *place, ctypes.byref(handle)))
        return cast("int", handle.value)

    def count_threads(self) -> int:
        """Return how many threads one operator may use."""
        return int(self._count_threads())

    def set_threads(self, count: int) -> None:
        """Set that."""
        self._set_threads(count)

    def _check(self, code: int) -> None:
        if code:
            cause = b"the cause is on stderr" if self._cause is None else self._cause()
            raise RuntimeError(f"torch refused to resize a picture: {cause.decode()}")
