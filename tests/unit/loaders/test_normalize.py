"""Normalize and NormalizedModel: values, dtypes, layouts, casts, errors, compilers and wrappers."""

import copy
import io
import shutil
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from loaders.errors import ImageTypeError, NormalizeError, SelectionError, ShardsError
from loaders.normalize import Normalize, NormalizedModel

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
STORED = (torch.uint8, torch.uint16)
LEVELS = {torch.uint8: 255, torch.uint16: 65535}


def stored_images(dtype: torch.dtype, shape: tuple[int, ...] = (2, 3, 8, 6)) -> Tensor:
    values = np.random.default_rng(7).integers(0, LEVELS[dtype], shape, endpoint=True)
    values.flat[0], values.flat[1] = 0, LEVELS[dtype]
    return torch.from_numpy(values).to(dtype)


def exact(images: Tensor, mean: Any = MEAN, std: Any = STD) -> Tensor:
    """The definition, in float64."""
    m, s = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in (mean, std))
    return (images.double() / LEVELS[images.dtype] - m) / s


def assert_exact(normalize: Normalize) -> None:
    assert torch.equal(normalize.scale, (1 / torch.tensor(STD, dtype=torch.float64)).float())
    expected = -torch.tensor(MEAN, dtype=torch.float64) / torch.tensor(STD, dtype=torch.float64)
    assert torch.equal(normalize.bias, expected.float())
    torch.testing.assert_close(normalize.mean, torch.tensor(MEAN), rtol=3e-7, atol=0)
    torch.testing.assert_close(normalize.std, torch.tensor(STD), rtol=3e-7, atol=0)


def model() -> NormalizedModel:
    return NormalizedModel(Normalize(MEAN, STD), nn.Conv2d(3, 4, 3))


def test_level_128_gives_the_imagenet_values_of_torchvision() -> None:
    out = Normalize(MEAN, STD)(torch.full((1, 3, 1, 1), 128, dtype=torch.uint8))
    assert [round(v, 4) for v in out.flatten().tolist()] == [0.0741, 0.2052, 0.4265]


@pytest.mark.parametrize("output", FLOATS, ids=str)
@pytest.mark.parametrize("stored", STORED, ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_values_are_the_float64_definition_to_the_last_bit_or_two_of_the_output(
    stored: torch.dtype, output: torch.dtype, memory_format: torch.memory_format
) -> None:
    images = stored_images(stored).to(memory_format=memory_format)
    out = Normalize(MEAN, STD, dtype=output)(images)
    assert out.dtype == output
    assert out.is_contiguous(memory_format=memory_format)
    error = (out.double() - exact(images)).abs()
    # Rounding of the output, and of three float32 operations on numbers up to 5.
    assert (error <= exact(images).abs() * torch.finfo(output).eps / 2 + 1e-6).all()


@given(
    levels=st.lists(st.integers(0, 65535), min_size=1, max_size=8),
    mean=st.floats(-2, 2),
    std=st.floats(1e-3, 10),
)
@settings(deadline=None)
def test_any_level_mean_and_std_follow_the_definition(
    levels: list[int], mean: float, std: float
) -> None:
    images = torch.tensor(levels).to(torch.uint16)[None, None, :]
    out = Normalize([mean], [std])(images)
    scale = (1 + abs(mean)) / std
    torch.testing.assert_close(
        out.double(), exact(images, [mean], [std]), atol=5e-7 * scale, rtol=0
    )


@given(
    shape=st.tuples(*[st.integers(0, 3)] * 2, st.integers(1, 4), *[st.integers(0, 5)] * 2),
    lead=st.integers(0, 2),
)
@settings(deadline=None)
def test_leading_axes_are_free_and_empty_batches_pass(shape: tuple[int, ...], lead: int) -> None:
    shape = shape[2 - lead :]
    channels = shape[-3]
    out = Normalize([0.5] * channels, [0.25] * channels)(torch.zeros(shape, dtype=torch.uint8))
    assert out.shape == shape
    assert (out == -2).all()


@pytest.mark.parametrize("stored", STORED, ids=str)
def test_a_permuted_view_of_stored_hwc_stays_channels_last(stored: torch.dtype) -> None:
    hwc = stored_images(stored, (2, 8, 6, 3))
    out = Normalize(MEAN, STD)(hwc.permute(0, 3, 1, 2))
    assert out.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(out.double(), exact(hwc.permute(0, 3, 1, 2)), atol=2e-6, rtol=0)


def test_the_largest_uint16_is_finite_in_float16() -> None:
    white = torch.full((1, 3, 2, 2), 65535, dtype=torch.int32).to(torch.uint16)
    assert Normalize(MEAN, STD, dtype=torch.float16)(white).isfinite().all()


@pytest.mark.parametrize(
    ("cast", "output"),
    [
        (lambda m: m.half(), torch.float16),
        (lambda m: m.to(torch.bfloat16), torch.bfloat16),
        (lambda m: m.double(), torch.float64),
        (lambda m: m.half().to("cpu"), torch.float16),
        (lambda m: m.half().to(memory_format=torch.channels_last), torch.float16),
        (lambda m: m.half().float(), torch.float32),
        (lambda m: m.to("cpu").share_memory(), torch.float32),
        (lambda m: copy.deepcopy(m.half()), torch.float16),
    ],
)
def test_a_cast_of_the_model_chooses_the_output_and_leaves_the_statistics_exact(
    cast: Any, output: torch.dtype
) -> None:
    cast_model = cast(model())
    normalize = cast_model.normalize
    assert_exact(normalize)
    assert normalize(stored_images(torch.uint8)).dtype == output
    assert cast_model(stored_images(torch.uint8)).dtype == output


def test_an_explicit_dtype_outlives_casts() -> None:
    assert Normalize(MEAN, STD, dtype=torch.float16).double().output_dtype == torch.float16


def test_a_cast_to_a_type_that_images_cannot_have_is_refused_and_changes_nothing() -> None:
    normalize = Normalize(MEAN, STD)
    with pytest.raises(NormalizeError, match="float8"):
        normalize.to(torch.float8_e4m3fn)
    assert_exact(normalize)
    assert normalize.output_dtype == torch.float32


def test_a_module_made_on_meta_is_filled_by_loading() -> None:
    with torch.device("meta"):
        empty = Normalize((0.5,) * 3, (0.5,) * 3)
    assert repr(empty) == "Normalize(channels=3, dtype=torch.float32)"
    empty = empty.to_empty(device="cpu")
    empty.load_state_dict(Normalize(MEAN, STD).state_dict())
    assert_exact(empty)


def test_the_state_dict_goes_through_a_file_and_back() -> None:
    stream = io.BytesIO()
    torch.save(model().half().state_dict(), stream)
    state = torch.load(io.BytesIO(stream.getvalue()), weights_only=True)
    assert state["normalize.scale"].dtype == state["normalize.bias"].dtype == torch.float32
    other = NormalizedModel(Normalize((0.5,) * 3, (1.0,) * 3), model().backbone)
    other.load_state_dict(state)
    assert_exact(other.normalize)


@pytest.mark.parametrize("assign", [False, True])
def test_statistics_from_a_checkpoint_that_was_cast_are_used_in_float32(assign: bool) -> None:
    state = {name: value.half() for name, value in Normalize(MEAN, STD).state_dict().items()}
    normalize = Normalize((0.5,) * 3, (0.5,) * 3)
    normalize.load_state_dict(state, assign=assign)
    assert normalize.scale.dtype == normalize.bias.dtype == torch.float32
    assert torch.equal(normalize.scale, Normalize(MEAN, STD).scale.half().float())


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int8,
        torch.int16,
        torch.int64,
        torch.bool,
    ],
    ids=str,
)
def test_images_that_are_not_stored_integers_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ImageTypeError, match="probably normalized already") as caught:
        Normalize(MEAN, STD)(torch.zeros((1, 3, 2, 2), dtype=dtype))
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ShardsError)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 1, 8, 6), r"\[2, 1, 8, 6\], expected \[..., C, H, W\] with C = 3"),
        ((2, 4, 8, 6), "C = 3"),
        ((8, 6), "C = 3"),
        ((2, 8, 6, 3), r"look like \[..., H, W, C\]: give images.movedim\(-1, -3\)"),
    ],
)
def test_images_that_do_not_fit_the_statistics_are_refused(
    shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(NormalizeError, match=message):
        Normalize(MEAN, STD)(torch.zeros(shape, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ((0.5, 0.5), (0.5,), "2 means and 1 standard deviations"),
        ((), (), "0 means"),
        ((0.5, float("nan")), (1.0, 1.0), "channel 1: mean is nan"),
        ((0.5, float("inf")), (1.0, 1.0), "channel 1: mean is inf"),
        ((0.5,), (0.0,), "channel 0: std is 0.0, expected a finite number > 0"),
        ((0.5,), (-0.5,), "std is -0.5"),
        ((0.5,), (float("nan"),), "std is nan"),
        ((0.5,), (1e-60,), "std is 1e-60"),
    ],
)
def test_statistics_that_cannot_normalize_are_refused(mean: Any, std: Any, message: str) -> None:
    with pytest.raises(NormalizeError, match=message):
        Normalize(mean, std)


def test_a_constant_channel_of_a_dataset_becomes_zero_and_keeps_its_range() -> None:
    dataset = SimpleNamespace(mean=(0.25, 1.0), std=(0.5, 0.0))
    images = torch.tensor([[[0, 51, 255]], [[255, 255, 51]]], dtype=torch.uint8)
    found = Normalize.for_dataset(dataset)(images)
    torch.testing.assert_close(found[0], torch.tensor([[-0.5, -0.1, 1.5]]))
    torch.testing.assert_close(found[1], torch.tensor([[0.0, 0.0, -0.8]]))


@pytest.mark.parametrize("std", [(0.0, 0.0), (0.5, -0.1), (0.5, float("nan"))])
def test_a_dataset_that_nothing_varies_in_or_of_no_sense_is_refused(std: Any) -> None:
    with pytest.raises(NormalizeError, match=r"channel [01]: std is"):
        Normalize.for_dataset(SimpleNamespace(mean=(0.5, 0.5), std=std))


def test_an_output_that_is_no_float_is_refused() -> None:
    with pytest.raises(NormalizeError, match=r"dtype is torch\.uint8"):
        Normalize(MEAN, STD, dtype=torch.uint8)


def test_the_statistics_come_from_the_dataset() -> None:
    dataset = SimpleNamespace(mean=MEAN, std=STD)
    normalize = Normalize.for_dataset(dataset, dtype=torch.bfloat16)
    assert_exact(normalize)
    assert normalize.output_dtype == torch.bfloat16


def test_a_dataset_without_image_statistics_is_refused() -> None:
    with pytest.raises(SelectionError, match="has no image statistics"):
        Normalize.for_dataset(SimpleNamespace(mean=None, std=None))


def test_the_repr_shows_the_statistics() -> None:
    expected = "Normalize(mean=(0.485,), std=(0.229,), dtype=torch.bfloat16)"
    assert repr(Normalize(MEAN[:1], STD[:1]).bfloat16()) == expected


def test_autocast_does_not_lower_the_arithmetic() -> None:
    images = stored_images(torch.uint16)
    normalize = Normalize(MEAN, STD)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = normalize(images)
    assert torch.equal(out, normalize(images))


def test_vmap_and_functional_call_give_the_same_values() -> None:
    images = stored_images(torch.uint8, (4, 2, 3, 8, 6))
    normalize = Normalize(MEAN, STD)
    assert torch.equal(torch.func.vmap(normalize)(images), normalize(images))
    state = normalize.state_dict()
    assert torch.equal(torch.func.functional_call(normalize, state, images), normalize(images))


def test_the_output_asks_for_no_gradient_and_nothing_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = Normalize(MEAN, STD)(stored_images(torch.uint8))
    assert not out.requires_grad
    assert not list(Normalize(MEAN, STD).parameters())


@pytest.mark.parametrize("stored", STORED, ids=str)
def test_an_exported_program_gives_the_same_values(stored: torch.dtype) -> None:
    images = stored_images(stored)
    normalize = Normalize(MEAN, STD)
    program = torch.export.export(normalize, (images,))
    assert torch.equal(program.module()(images), normalize(images))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize("stored", STORED, ids=str)
def test_a_compiled_normalize_is_one_graph_with_the_same_values(stored: torch.dtype) -> None:
    images = stored_images(stored).to(memory_format=torch.channels_last)
    normalize = Normalize(MEAN, STD)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own
        out = torch.compile(normalize, fullgraph=True)(images)
    assert out.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(out, normalize(images), atol=1e-6, rtol=0)
