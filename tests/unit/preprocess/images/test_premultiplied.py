"""TIFF of 16 bits whose colours are multiplied by alpha."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from preprocess.errors import SampleError
from preprocess.images.decode import decode_image
from preprocess.images.orientation import turn_upright
from preprocess.images.policy import DecodePolicy
from tests.tiffs_made import make_tiff

HEIGHT, WIDTH = 40, 56
PREMULTIPLIED, STRAIGHT = 1, 2  # tag 338


def premultiplied() -> NDArray[np.uint16]:
    """Random RGBA, of all alphas, none and whole among them: [H, W, 4]."""
    rng = np.random.default_rng(0)
    samples = rng.integers(0, 1 << 16, (HEIGHT, WIDTH, 4)).astype(np.uint64)
    samples[:4, :, 3], samples[4:8, :, 3], samples[8:14, :, 3] = 0, 65535, np.arange(WIDTH)
    samples[:, :, :3] = samples[:, :, :3] * samples[:, :, 3:] // 65535
    return samples.astype(np.uint16)


def decode(data: bytes, depth: Any) -> NDArray[Any]:
    return decode_image(data, key="k", policy=DecodePolicy(depth=depth, alpha="keep"))


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("orientation", [1, 6])
def test_colours_are_divided_by_all_bits_of_alpha(
    order: str, packed: bool, orientation: int
) -> None:
    samples = premultiplied()
    data = make_tiff(
        samples, extra=PREMULTIPLIED, packed=packed, orientation=orientation, order=order
    )
    values = turn_upright(samples, orientation).astype(np.float64)
    alpha = values[:, :, 3:]
    straight = np.divide(values[:, :, :3], alpha, np.zeros_like(values[:, :, :3]), where=alpha > 0)
    wanted = np.dstack([straight, alpha / 65535])
    whole, rounded = decode(data, 16), decode(data, 8)
    assert np.abs(whole - wanted * 65535).max() <= 0.5
    assert np.abs(rounded - wanted * 255).max() <= 0.51
    np.testing.assert_array_equal(rounded, (whole.astype(np.int64) + 128) // 257)


@pytest.mark.parametrize("packed", [False, True])
def test_colours_that_are_not_multiplied_stay_as_they_are(packed: bool) -> None:
    samples = premultiplied()
    np.testing.assert_array_equal(
        decode(make_tiff(samples, extra=STRAIGHT, packed=packed), 16), samples
    )


def test_colours_beyond_alpha_are_the_largest() -> None:
    samples = premultiplied()
    samples[:, :, 0] = 65535
    found = decode(make_tiff(samples, extra=PREMULTIPLIED, packed=False), 16)
    assert (found[samples[:, :, 3] > 0][:, 0] == 65535).all()
    assert not found[samples[:, :, 3] == 0].any()


def test_a_damaged_one_is_refused() -> None:
    data = make_tiff(premultiplied(), extra=PREMULTIPLIED, packed=True)
    with pytest.raises(SampleError, match="cannot decode this TIFF"):
        decode(data[:8] + bytes(40) + data[48:], 16)
