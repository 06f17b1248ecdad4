"""The kernels do on the CPU, in Triton's interpreter, what torch does; a GPU runs device_checks."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from loaders import Normalize
from loaders.device_rows import can_normalize, kernels_for, take_rows

ROOT = Path(__file__).parents[3]

PROGRAM = """
import itertools, numpy as np, torch
from loaders import Augment, Normalize, gather_kernels
from loaders.device_rows import launch_cut, launch_normalize, launch_take

random = np.random.default_rng(0)

def stored(dtype, *shape):
    return torch.from_numpy(random.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True))

index = torch.from_numpy(random.integers(0, 20, 13))
types = (np.uint8, np.int16, np.int32, np.int64)
for words, dtype in itertools.product((1, 7, 16, 147, 1500), types):
    rows = stored(dtype, 20, words)
    out = torch.empty((13, words), dtype=rows.dtype)
    launch_take(gather_kernels, rows, index, out)
    assert torch.equal(out, rows[index]), (words, dtype)

def close(found, expected):
    # The interpreter rounds product and sum one after the other, and cuts bfloat16 off.
    size = expected.double().abs().clamp_min(2.0**-10)
    ulp = torch.finfo(expected.dtype).eps * size.log2().floor().exp2()
    product = torch.finfo(torch.float32).eps * 4  # of products up to 5
    return bool(((found.double() - expected.double()).abs() <= ulp + product).all())

for dtype, channels, shown in itertools.product(
    (np.uint8, np.uint16), (1, 3, 5), (torch.float32, torch.float16, torch.bfloat16)
):
    images = stored(dtype, 4, 9, 7, channels)
    module = Normalize([0.5, 0.4, 0.3, 0.6, 0.1][:channels], [0.2] * channels, dtype=shown)
    expected = module(images.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    for taken in (None, index % 4):
        known = expected if taken is None else expected[taken]
        out = torch.empty(known.shape, dtype=shown)
        launch_normalize(gather_kernels, images, taken, out, (module.scale, module.bias))
        assert close(out, known), (dtype, channels, shown)

for dtype, options in itertools.product(
    (np.uint8, np.uint16),
    (
        {},
        {"size": 5},
        {"size": (7, 4), "padding": 2},
        {"size": (6, 9), "scale": (0.08, 1.0)},
        {"size": 30, "scale": (0.3, 0.5), "flip": 1.0},
    ),
):
    images = stored(dtype, 2, 19, 17, 3)
    augment = Augment(**options)
    boxes = torch.from_numpy(augment.draw(np.arange(2), 19, 17, seed=1))
    expected = augment.cut(images, boxes)
    out = torch.empty_like(expected)
    launch_cut(gather_kernels, images, boxes, out, None, augment.fraction)
    assert np.array_equal(out.numpy(), expected.numpy()), (dtype, options)
    module = Normalize([0.5, 0.4, 0.3], [0.2] * 3)
    floats = torch.empty(expected.shape)
    launch_cut(gather_kernels, images, boxes, floats, (module.scale, module.bias), augment.fraction)
    assert close(floats, augment.cut_normalized(images, boxes, module)), (dtype, options)
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_do_in_the_interpreter_what_torch_does() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}  # noqa: TID251
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_there_are_no_kernels_for_the_cpu() -> None:
    assert kernels_for(torch.device("cpu")) is None
    assert not can_normalize(torch.zeros((1, 3, 2, 2), dtype=torch.uint8), torch.float32)


@pytest.mark.parametrize("width", [0, 1, 2, 3, 4, 6, 8, 24])
def test_rows_of_any_width_are_taken(width: int) -> None:
    source = torch.arange(7 * width, dtype=torch.int64).to(torch.uint8).view(7, width)
    index = torch.tensor([6, 0, 0, 3])
    assert torch.equal(take_rows(source, index), source[index])


def test_an_import_of_all_loaders_loads_no_triton() -> None:
    program = (
        "import sys, loaders\n"
        "for name in loaders.__all__: getattr(loaders, name)\n"
        "assert 'triton' not in sys.modules and 'loaders.gather_kernels' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
    assert Normalize([0.5], [0.5])(torch.zeros((1, 1, 2, 2), dtype=torch.uint8)).shape[1] == 1
