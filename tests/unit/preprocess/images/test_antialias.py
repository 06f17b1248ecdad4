"""torch's resize by its library alone: the pixels, the threads and the failures of the package."""

import ctypes.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preprocess.images.antialias import (
    OPERATORS,
    Torch,
    TorchLibrary,
    TorchPackage,
    one_torch_thread,
    open_library,
    resize_antialiased,
)

HERE = {"linux": "libtorch_cpu.so", "darwin": "libtorch_cpu.dylib"}.get(sys.platform)
SIDES = st.integers(1, 90)


@pytest.fixture(scope="module")
def library() -> Torch:
    if HERE is None:
        pytest.skip("the library is called on Linux and macOS alone")
    opened = open_library(Path(torch.__file__).parent / "lib" / HERE)
    assert isinstance(opened, TorchLibrary)
    return opened


@given(SIDES, SIDES, st.sampled_from([1, 3]), SIDES, SIDES, st.sampled_from([*OPERATORS]))
def test_the_library_makes_the_package_s_pixels(
    library: Torch, height: int, width: int, channels: int, high: int, wide: int, resample: str
) -> None:
    rng = np.random.default_rng([height, width, high, wide])
    pixels = rng.integers(0, 256, (height, width, channels), np.uint8)
    pixels.flags.writeable = False
    before = pixels.copy()
    scaled = library.resize(pixels, (high, wide), resample)
    assert (scaled.shape, scaled.dtype) == ((high, wide, channels), np.uint8)
    assert scaled.flags.c_contiguous
    np.testing.assert_array_equal(
        scaled, TorchPackage().resize(pixels, (high, wide), resample), strict=True
    )
    np.testing.assert_array_equal(pixels, before)


@given(SIDES, SIDES, SIDES, SIDES, st.booleans(), st.sampled_from([*OPERATORS]))
def test_grey_that_goes_by_four_has_the_pixels_of_one_channel_alone(
    height: int, width: int, high: int, wide: int, extreme: bool, resample: str
) -> None:
    rng = np.random.default_rng([height, width, high, wide])
    pixels = rng.integers(0, 256, (height, width, 1), np.uint8)
    if extreme:  # bicubic overshoots
        pixels = np.where(pixels < 128, 0, 255).astype(np.uint8)
    before = pixels.copy()
    for size in ((high, wide), (height, wide), (high, width)):
        scaled = resize_antialiased(pixels, size, resample)
        assert scaled.flags.c_contiguous
        np.testing.assert_array_equal(
            scaled, TorchPackage().resize(pixels, size, resample), strict=True
        )
    np.testing.assert_array_equal(pixels, before)


def test_the_library_s_threads_are_the_package_s(library: Torch) -> None:
    before = torch.get_num_threads()
    try:
        library.set_threads(3)
        assert (torch.get_num_threads(), library.count_threads()) == (3, 3)
        TorchPackage().set_threads(2)
        assert (TorchPackage().count_threads(), library.count_threads()) == (2, 2)
        with one_torch_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_what_the_library_refuses_is_an_error(library: Torch) -> None:
    with pytest.raises(RuntimeError, match=r"torch refused to resize a picture: .*(0|stderr)"):
        library.resize(np.zeros((4, 4, 3), np.uint8), (0, 4), "bicubic")


def test_a_library_that_lacks_the_calls_is_left_to_the_package(tmp_path) -> None:
    other = ctypes.util.find_library("m") or ctypes.util.find_library("c")
    assert other is not None
    assert open_library(Path(other)) is None
    assert open_library(tmp_path / "none.so") is None
    assert open_library(None) is None


def test_many_sizes_leave_no_memory_behind(library: Torch) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    if not Path("/proc/self/statm").exists():
        pytest.skip("memory is read in /proc")
    pixels = np.zeros((500, 500, 3), np.uint8)
    for _ in range(20):
        library.resize(pixels, (400, 400), "bicubic")
    before = resident()
    for _ in range(300):  # 330 MB of pictures
        resize_antialiased(pixels, (600, 600), "bicubic")
    assert resident() - before < 20_000_000
