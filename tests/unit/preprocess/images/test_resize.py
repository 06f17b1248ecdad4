"""Which part of a picture goes where, and what scaling must keep."""

import numpy as np
import pytest
from numpy.typing import NDArray

from preprocess.images.resize import (
    FILTERS,
    FITS,
    VARIABLE_FITS,
    Fit,
    fit_geometry,
    fit_image,
    fit_sizes,
    to_luma,
)

FIXED_FITS = [fit for fit in FITS if fit not in VARIABLE_FITS]


def noise(width: int, height: int, channels: int = 3) -> NDArray[np.uint8]:
    rng = np.random.default_rng(width * 1000 + height)
    return rng.integers(0, 256, (height, width, channels), dtype=np.uint8)


@pytest.mark.parametrize(
    ("width", "height", "size", "fit", "source", "target"),
    [
        (2048, 1536, (512, 512), "crop", (256, 0, 1792, 1536), (0, 0, 512, 512)),
        (1536, 2048, (512, 512), "crop", (0, 256, 1536, 1792), (0, 0, 512, 512)),
        (2048, 1536, (512, 512), "pad", (0, 0, 2048, 1536), (0, 64, 512, 448)),
        (1536, 2048, (512, 512), "pad", (0, 0, 1536, 2048), (64, 0, 448, 512)),
        (2048, 1536, (512, 512), "stretch", (0, 0, 2048, 1536), (0, 0, 512, 512)),
        (2048, 1536, (400, 300), "crop", (0, 0, 2048, 1536), (0, 0, 400, 300)),
        (5, 4, (4, 4), "crop", (0, 0, 4, 4), (0, 0, 4, 4)),
        (1, 5000, (10, 10), "pad", (0, 0, 1, 5000), (4, 0, 5, 10)),
        (5000, 1, (10, 1000), "crop", (2499, 0, 2500, 1), (0, 0, 10, 1000)),
    ],
)
def test_geometry_is_as_documented(
    width: int,
    height: int,
    size: tuple[int, int],
    fit: Fit,
    source: tuple[int, ...],
    target: tuple[int, ...],
) -> None:
    assert fit_geometry(width, height, size, fit) == (source, target, size)


@pytest.mark.parametrize("fit", FIXED_FITS)
@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize("channels", [1, 3])
def test_results_are_contiguous_arrays_of_the_asked_shape(
    fit: Fit, resample: str, channels: int
) -> None:
    image = noise(37, 23, channels)
    for size in [(16, 16), (16, 5), (64, 40), (1, 1), (37, 23), (23, 37)]:
        fitted = fit_image(image, size=size, fit=fit, resample=resample)  # type: ignore[arg-type]
        assert fitted.shape == (size[1], size[0], channels)
        assert fitted.dtype == np.uint8
        assert fitted.flags.c_contiguous
        assert fitted.flags.writeable
        assert not np.may_share_memory(fitted, image)


@pytest.mark.parametrize("fit", FIXED_FITS)
@pytest.mark.parametrize("resample", FILTERS)
def test_the_same_size_gives_the_very_pixels(fit: Fit, resample: str) -> None:
    image = noise(19, 31)
    fitted = fit_image(image, size=(19, 31), fit=fit, resample=resample)  # type: ignore[arg-type]
    np.testing.assert_array_equal(fitted, image)


def test_two_results_of_the_same_size_do_not_share_memory() -> None:
    first, second = fit_sizes(noise(20, 20), [(20, 20), (20, 20)])
    first[:] = 0
    assert second.any()


def test_a_crop_without_scaling_is_the_middle_of_the_picture() -> None:
    image = noise(40, 20)
    np.testing.assert_array_equal(fit_image(image, size=(20, 20)), image[:, 10:30])


def test_padding_has_the_background_and_the_whole_picture() -> None:
    image = noise(40, 20)
    fitted = fit_image(image, size=(40, 40), fit="pad", background=(1, 2, 3))
    np.testing.assert_array_equal(fitted[10:30], image)
    assert (fitted[:10] == (1, 2, 3)).all()
    assert (fitted[30:] == (1, 2, 3)).all()


def test_grey_padding_is_the_luma_of_the_background() -> None:
    image = noise(40, 20)
    (fitted,) = fit_sizes(image, [(40, 40)], fit="pad", background=(255, 0, 0), grayscale=True)
    np.testing.assert_array_equal(fitted[10:30], to_luma(image))
    assert (fitted[:10] == 76).all()


def test_several_sizes_are_each_what_one_size_gives() -> None:
    image = noise(200, 130)
    sizes = [(64, 64), (32, 32), (48, 20), (130, 130), (300, 300)]
    for fit in FITS:
        for size, fitted in zip(sizes, fit_sizes(image, sizes, fit=fit), strict=True):
            np.testing.assert_array_equal(fitted, fit_image(image, size=size, fit=fit))


def test_grey_is_taken_before_scaling() -> None:
    image = noise(90, 60)
    (grey,) = fit_sizes(image, [(31, 31)], grayscale=True)
    np.testing.assert_array_equal(grey, fit_image(to_luma(image), size=(31, 31)))


def test_luma_is_bt601_within_one_level() -> None:
    image = noise(64, 64)
    exact = image @ np.array([0.299, 0.587, 0.114])
    assert to_luma(image).shape == (64, 64, 1)
    assert np.abs(to_luma(image)[..., 0] - exact).max() <= 0.51


def test_a_read_only_picture_is_taken_and_left_alone() -> None:
    image = noise(50, 40)
    image.flags.writeable = False
    before = image.copy()
    fit_image(image, size=(20, 10), fit="stretch")
    np.testing.assert_array_equal(image, before)


def test_a_view_into_a_larger_picture_gives_the_same() -> None:
    image = noise(80, 70)
    view = image[5:60, 7:70]
    np.testing.assert_array_equal(
        fit_image(view, size=(21, 17), fit="stretch"),
        fit_image(view.copy(), size=(21, 17), fit="stretch"),
    )


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-1, 5)])
def test_a_side_below_one_is_an_error(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        fit_image(noise(5, 5), size=size)


def test_unknown_names_are_errors_that_list_the_known() -> None:
    with pytest.raises(ValueError, match="bicubic, bilinear"):
        fit_image(noise(5, 5), size=(2, 2), resample="nearest")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="crop, pad, stretch"):
        fit_image(noise(5, 5), size=(2, 2), fit="cover")  # type: ignore[arg-type]
