"""TIFF of floating point: 0 to 1 is black to white where a depth is chosen, all else is refused."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from loaders import open_dataset
from preprocess.errors import SampleError
from preprocess.images.decode import decode_image, decode_pictures
from preprocess.images.orientation import turn_upright
from preprocess.images.policy import DecodePolicy
from tests.tiffs_made import make_tiff
from tests.token_commands import call as invoke

LEVELS = {8: 255, 16: 65535}


def decode(data: bytes, **options: Any) -> NDArray[Any]:
    return decode_image(data, key="k", policy=DecodePolicy(floats=True, **options))


def floats(height: int, width: int, channels: int, dtype: str = "f4", seed: int = 0) -> Any:
    return np.random.default_rng(seed).random((height, width, channels)).astype(dtype)


@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    channels=st.sampled_from([1, 3, 4]),
    dtype=st.sampled_from(["f4", "f8"]),
    packed=st.sampled_from([0, 1, 3]),
    order=st.sampled_from(["<", ">", "big"]),
    orientation=st.integers(1, 8),
    rows=st.sampled_from([None, 1, 7]),
    depth=st.sampled_from([8, 16]),
    seed=st.integers(0, 9),
)
def test_every_layout_gives_its_values_rounded_and_upright(
    height: int,
    width: int,
    channels: int,
    dtype: str,
    packed: int,
    order: str,
    orientation: int,
    rows: int | None,
    depth: int,
    seed: int,
) -> None:
    samples = floats(height, width, channels, dtype, seed)
    data = make_tiff(
        samples,
        extra=2 if channels == 4 else None,
        packed=packed > 0,
        predictor=max(1, packed),
        order=">" if order == ">" else "<",
        orientation=orientation,
        rows=rows,
        big=order == "big",
    )
    found = decode(data, depth=depth, alpha="keep")
    upright = turn_upright(samples, orientation).reshape(*found.shape[:2], channels)
    whole = np.rint(upright.astype(np.float64) * LEVELS[depth])
    assert found.dtype == f"uint{depth}"
    np.testing.assert_array_equal(found[:, :, :channels], whole)
    if channels == 1:
        np.testing.assert_array_equal(found[:, :, :3], np.dstack([whole] * 3))
    if channels < 4:
        assert (found[:, :, 3] == LEVELS[depth]).all()


@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("beyond", [-0.01, 1.01, 255.0, np.inf, -np.inf, np.nan])
def test_values_beyond_0_and_1_are_refused_with_their_range(depth: int, beyond: float) -> None:
    samples = floats(5, 6, 3)
    samples[4, 5, 2] = beyond
    expected = f"{beyond:.6g}" if np.isfinite(beyond) else "1 of its floating-point samples"
    with pytest.raises(SampleError, match=expected):
        decode(make_tiff(samples), depth=depth)


def test_what_rounds_to_black_or_white_is_within() -> None:
    samples = np.array([[[-1e-6], [0.0], [1.0], [np.nextafter(np.float32(1), np.float32(2))]]])
    assert decode(make_tiff(samples), depth=16)[0, :, 0].tolist() == [0, 0, 65535, 65535]


def test_without_a_depth_they_are_refused_by_name() -> None:
    with pytest.raises(SampleError, match="floating-point samples are taken only where --depth"):
        decode_image(make_tiff(floats(4, 5, 3)), key="k")


@pytest.mark.parametrize(
    ("cause", "data"),
    [
        ("a plane a colour", make_tiff(floats(4, 5, 3), planar=True)),
        ("of 16 bits", make_tiff(floats(4, 5, 3, "f2"))),
        ("neither grey, RGB nor RGBA", make_tiff(floats(4, 5, 1), photometric=0)),
        ("neither grey, RGB nor RGBA", make_tiff(floats(4, 5, 2), extra=2)),
        ("neither grey, RGB nor RGBA", make_tiff(floats(4, 5, 5))),
        ("multiplied by alpha", make_tiff(floats(4, 5, 4), extra=1)),
        ("alpha is no alpha", make_tiff(floats(4, 5, 4))),
        (r"more than 4 \(--max-pixels\)", b""),
        ("of floating point and of integers", b"mixed"),
    ],
)
def test_what_no_decoder_reads_whole_is_refused_by_name(cause: str, data: bytes) -> None:
    options: dict[str, Any] = {}
    if not data:
        data, options = make_tiff(floats(1, 5, 3)), {"max_pixels": 4}
    if data == b"mixed":
        data = make_tiff([floats(4, 5, 3), np.zeros((4, 5, 3), np.uint8)])
        options = {"pages": "all"}
    with pytest.raises(SampleError, match=cause):
        list(decode_pictures(data, key="k", policy=DecodePolicy(depth=16, **options)))


def test_wide_floats_count_against_the_pixels_that_are_allowed() -> None:
    data = make_tiff(floats(4, 5, 4, "f8"), extra=2)
    assert decode(data, max_pixels=40).shape == (4, 5, 3)
    with pytest.raises(SampleError, match=r"640 bytes, more than 624 \(16 times --max-pixels\)"):
        decode(data, max_pixels=39)


def test_pages_are_taken_one_by_one_but_for_thumbnails() -> None:
    pages = [floats(4, 5, 3, seed=n) for n in range(3)]
    policy = DecodePolicy(depth=16, pages="all")
    for subfile, numbers in ((None, [0, 1, 2]), (1, [0])):
        data = make_tiff(pages, subfile=subfile)
        found = list(decode_pictures(data, key="k", policy=policy))
        assert [picture.page for picture in found] == numbers
        for picture in found:
            whole = np.rint(pages[picture.page].astype(np.float64) * 65535)
            np.testing.assert_array_equal(picture.pixels, whole)


@given(share=st.floats(0, 0.99))
def test_one_that_is_cut_is_refused(share: float) -> None:
    data = make_tiff(floats(20, 30, 3), packed=True)
    with pytest.raises(SampleError):
        decode(data[: int(len(data) * share)])


@given(place=st.integers(8, 1 << 16), value=st.integers(0, 255))
def test_one_that_is_damaged_is_refused_or_within(place: int, value: int) -> None:
    data = bytearray(make_tiff(floats(6, 7, 3), packed=True, rows=2))
    data[place % len(data)] = value
    with suppress(SampleError):  # and nothing else
        assert decode(bytes(data)).dtype == np.uint8


def test_the_command_takes_them_where_a_depth_is_given(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "a.tif").write_bytes(make_tiff(np.full((8, 8, 3), 0.5, np.float32)))
    (photos / "b.tif").write_bytes(make_tiff(np.full((8, 8, 3), 51, np.uint8)))

    def call(out: str, *words: str) -> Any:
        return invoke("images", photos, tmp_path / out, "--sizes", "4", *words)

    plain = call("plain")
    assert plain.exit_code == 3
    assert "a.tif: cannot decode this TIFF: floating-point" in plain.stdout + plain.stderr
    for depth, half in (("8", 128), ("16", 32768)):
        assert call(depth, "--depth", depth).exit_code == 0
        dataset = open_dataset(tmp_path / depth)
        assert int(dataset[0]["image"].to(int).unique()) == half
        assert call(depth, "--depth", depth).exit_code == 0  # recorded, and so the same again
    other = call("plain", "--depth", "8")
    assert other.exit_code != 0
    assert "--depth, for what is of floating point" in other.stdout + other.stderr
