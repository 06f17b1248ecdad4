"""Statistics are exact, whatever the image, and those of parts add up to those of the whole."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from loaders.format.statistics import ChannelStatistics
from preprocess.stats import channel_statistics, no_statistics


def sums_of(image: NDArray[Any]) -> ChannelStatistics:
    values = image.reshape(-1, image.shape[-1]).astype(object if image.itemsize > 2 else np.int64)
    return ChannelStatistics(
        pixels=len(values),
        sums=tuple(values.sum(axis=0).tolist()),
        squares=tuple((values * values).sum(axis=0).tolist()),
        levels=int(np.iinfo(image.dtype).max),
    )


images = st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 6)).flatmap(
    lambda shape: st.sampled_from([np.uint8, np.uint16, np.uint32]).flatmap(
        lambda dtype: hnp.arrays(dtype, shape)
    )
)


@settings(deadline=None)
@given(image=images)
def test_sums_and_squares_are_those_of_integers(image: NDArray[Any]) -> None:
    assert channel_statistics(image) == sums_of(image)


@pytest.mark.parametrize("value", [0, 1, 127, 254, 255])
@pytest.mark.parametrize("shape", [(1, 1, 3), (997, 1009, 3), (2500, 3001, 1)])
def test_large_even_images_lose_nothing(value: int, shape: tuple[int, int, int]) -> None:
    image = np.full(shape, value, np.uint8)
    image[0, 0] = 255 - value

    assert channel_statistics(image) == sums_of(image)


def test_a_large_noisy_image_loses_nothing() -> None:
    image = np.random.default_rng(3).integers(0, 256, (2000, 3000, 3), np.uint8)

    assert channel_statistics(image) == sums_of(image)


def test_views_are_summed_as_they_are_seen() -> None:
    image = np.random.default_rng(4).integers(0, 256, (40, 30, 3), np.uint8)
    for view in (image[::-1, ::-1], image[:, :, ::-1], image.transpose(1, 0, 2), image[::2, ::3]):
        assert channel_statistics(view) == sums_of(view)


@settings(deadline=None)
@given(image=images, cut=st.integers(1, 39))
def test_statistics_of_parts_add_up_to_those_of_the_whole(image: NDArray[Any], cut: int) -> None:
    whole = channel_statistics(image)
    parts = no_statistics(image.shape[-1], int(np.iinfo(image.dtype).max))
    for part in (image[:cut], image[cut:]):
        if part.size:
            parts += channel_statistics(part)

    assert parts == whole
    assert parts.mean == pytest.approx(
        tuple(image.mean(axis=(0, 1)) / np.iinfo(image.dtype).max), rel=1e-12, abs=1e-15
    )
    assert parts.std == pytest.approx(
        tuple(image.std(axis=(0, 1)) / np.iinfo(image.dtype).max), rel=1e-9, abs=1e-9
    )


def test_statistics_of_different_fields_do_not_add_up() -> None:
    for other in (no_statistics(1, 255), no_statistics(3, 65535)):
        with pytest.raises(ValueError, match="statistics of different fields"):
            no_statistics(3, 255) + other
