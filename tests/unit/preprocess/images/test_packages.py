"""HEIC and JPEG XL, decoded by packages of their own: pixels, turns, alpha, profiles, damage."""

import io
from typing import Any

import numpy as np
import pillow_heif  # noqa: TID253 - a test may load what it compares with
import pillow_jxl  # noqa: TID253
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image  # noqa: TID253

from preprocess.errors import SampleError
from preprocess.images.decode import decode_image, decode_pictures
from preprocess.images.orientation import turn_upright
from preprocess.images.packages import read_jxl_header
from preprocess.images.policy import DecodePolicy
from tests.colour_profiles import red_and_blue_swapped

WIDTH, HEIGHT = 61, 47
EXIF = b"Exif\0\0MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0%c\0\0\0\0\0\0"


def noise(channels: int, dtype: Any = np.uint8, seed: int = 0) -> NDArray[Any]:
    """Random samples, opaque in a part: [H, W, channels]."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, np.iinfo(dtype).max + 1, (HEIGHT, WIDTH, channels), dtype)


def photo() -> NDArray[np.uint8]:
    """A smooth picture that a JPEG holds well: [H, W, 3]."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    return np.stack([x * 4, y * 5, 255 - x * 2], 2).astype(np.uint8)


def heic(samples: NDArray[Any], mode: str, bits: int = 8, **options: Any) -> bytes:
    """A HEIC of these very samples, of 16-bit ones as many upper bits as are asked for."""
    height, width = samples.shape[:2]
    file = pillow_heif.from_bytes(mode, (width, height), samples.tobytes())
    buffer = io.BytesIO()
    pillow_heif.options.SAVE_HDR_TO_12_BIT = bits == 12
    try:
        file.save(buffer, quality=-1, chroma=444, matrix_coefficients=0, **options)
    finally:
        pillow_heif.options.SAVE_HDR_TO_12_BIT = False
    return buffer.getvalue()


def jxl(samples: NDArray[Any], mode: str) -> bytes:
    """A JPEG XL of these very samples, without boxes around it."""
    height, width = samples.shape[:2]
    encode = pillow_jxl.Encoder(mode=mode, lossless=True, quality=100, num_threads=0)
    none = dict.fromkeys(("exif", "jumb", "xmp"))
    return bytes(
        encode(samples.tobytes(), width, height, jpeg_encode=False, compress=False, **none)
    )


def jxl_of_jpeg(jpeg: bytes) -> bytes:
    encode = pillow_jxl.Encoder(mode="RGB", lossless=True, quality=100, num_threads=0)
    return bytes(encode(jpeg, WIDTH, HEIGHT, jpeg_encode=True))


ENCODERS = {"HEIC": heic, "JPEG XL": jxl}


def as_rgba(samples: NDArray[Any], mode: str) -> NDArray[Any]:
    """The RGBA that samples of a mode mean."""
    if mode in ("L", "LA"):
        samples = samples[:, :, [0, 0, 0, *range(1, samples.shape[2])]]
    opaque = np.full((*samples.shape[:2], 1), 255, np.uint8)
    return samples if samples.shape[2] == 4 else np.dstack([samples, opaque])


def decode(data: bytes, **options: Any) -> NDArray[Any]:
    return decode_image(data, key="k", policy=DecodePolicy(**options))


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("HEIC", mode) for mode in ("RGB", "RGBA", "L")]
    + [("JPEG XL", mode) for mode in ("RGB", "RGBA", "L", "LA")],
)
def test_pixels_and_alpha_are_those_that_were_encoded(kind: str, mode: str) -> None:
    samples = noise(len(mode))
    data = ENCODERS[kind](samples, mode)
    wanted = as_rgba(samples, mode)
    found = decode(data, alpha="keep")
    assert found.flags.c_contiguous
    assert found.flags.writeable
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(decode(data, alpha="drop"), wanted[:, :, :3])
    canvas = Image.new("RGBA", (WIDTH, HEIGHT), (9, 99, 199, 255))
    over = Image.alpha_composite(canvas, Image.fromarray(wanted)).convert("RGB")
    np.testing.assert_array_equal(decode(data, background=(9, 99, 199)), np.array(over))
    np.testing.assert_array_equal(decode(data, depth=16, alpha="keep"), wanted.astype(int) * 257)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_irot_and_imir_turn_a_heic(orientation: int) -> None:
    samples = noise(3)
    data = heic(samples, "RGB", exif=EXIF % orientation)
    assert (b"irot" in data or b"imir" in data) == (orientation > 1)
    np.testing.assert_array_equal(decode(data), turn_upright(samples, orientation))


def test_exif_turns_no_heic_and_no_jpeg_xl() -> None:
    samples = noise(3)
    upright, turned = EXIF % 1, EXIF % 6
    data = heic(samples, "RGB", exif=upright)
    assert upright[6:] in data
    np.testing.assert_array_equal(decode(data.replace(upright[6:], turned[6:])), samples)
    buffer = io.BytesIO()
    image = Image.fromarray(samples)
    image.save(buffer, "JXL", lossless=True, use_container=True, exif=turned)
    assert turned[6:] in buffer.getvalue()
    np.testing.assert_array_equal(decode(buffer.getvalue()), samples)


def turned_jxl(data: bytes, orientation: int) -> bytes:
    """Write the orientation into the header of a JPEG XL of 8-bit RGB without boxes.

    Source:
        ISO/IEC 18181-1 sections D.2 and D.3: fields of the headers, the lowest bit first.
    """
    bits = "".join(f"{byte:08b}"[::-1] for byte in data[2:40])
    place = 0

    def take(count: int) -> str:
        nonlocal place
        place += count
        return bits[place - count : place]

    small = take(1) == "1"
    assert not small
    size = [take(2)]
    size.append(take({"00": 9, "10": 13}[size[0]]))
    assert take(3) == "000"  # the width stands by itself
    size += ["000", take(2)]
    size.append(take({"00": 9, "10": 13}[size[-1]]))
    assert take(2) == "00"  # neither as by default, nor with further fields
    assert take(3) == "000"  # 8 bits, integers
    kind = take(4)  # buffers of 16 bits, no further channels, XYB or not
    assert kind[1:3] == "00"
    assert take(1) == "1"  # sRGB
    assert take(3) == "001"  # no extensions, the usual transform
    fields = f"{orientation - 1:03b}"[::-1] + "000"
    head = "0" + "".join(size) + "01" + fields + "000" + kind + "1" + "1" + "001"
    head += "0" * (-len(head) % 8)
    packed = bytes(int(head[at : at + 8][::-1], 2) for at in range(0, len(head), 8))
    return data[:2] + packed + data[2 + -(-place // 8) :]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_header_turns_a_jpeg_xl(orientation: int) -> None:
    samples = noise(3)
    data = turned_jxl(jxl(samples, "RGB"), orientation)
    assert read_jxl_header(data) == (WIDTH, HEIGHT, True)
    np.testing.assert_array_equal(decode(data), turn_upright(samples, orientation))


def test_a_profile_of_a_heic_is_converted() -> None:
    samples = noise(3)
    data = heic(samples, "RGB", icc_profile=red_and_blue_swapped())
    (picture,) = decode_pictures(data, key="k")
    assert picture.profiled == "converted"
    assert np.abs(picture.pixels.astype(int) - samples[:, :, ::-1]).max() <= 1
    np.testing.assert_array_equal(decode(data, icc="ignore"), samples)


@pytest.mark.parametrize(
    ("mode", "options"),
    [("RGB", {}), ("RGB", {"icc_profile": red_and_blue_swapped()}), ("L", {})],
)
def test_a_transcoded_jpeg_is_decoded_as_that_jpeg(mode: str, options: Any) -> None:
    buffer = io.BytesIO()
    image = Image.fromarray(photo()).convert(mode)
    image.save(buffer, "JPEG", quality=90, exif=EXIF % 6, **options)
    jpeg = buffer.getvalue()
    data = jxl_of_jpeg(jpeg)
    (found,), (wanted,) = (decode_pictures(each, key="k") for each in (data, jpeg))
    np.testing.assert_array_equal(found.pixels, wanted.pixels)
    assert found.pixels.shape == (WIDTH, HEIGHT, 3)
    assert (found.profiled, found.turned) == (wanted.profiled, True)


@pytest.mark.parametrize("bits", [10, 12])
@pytest.mark.parametrize("mode", ["RGB;16", "RGBA;16", "I;16"])
def test_a_deep_heic_is_whole_at_16_bits_and_rounded_at_8(bits: int, mode: str) -> None:
    channels = {"RGB;16": 3, "RGBA;16": 4, "I;16": 1}[mode]
    samples = noise(channels, np.uint16)
    data = heic(samples, mode, bits)
    values = samples.astype(np.int64) >> (16 - bits)
    peak = 2**bits - 1
    for depth in (8, 16):
        levels = 2**depth - 1
        wanted = (values * levels + peak // 2) // peak
        wanted = wanted[:, :, [0, 0, 0]] if channels == 1 else wanted
        found = decode(data, depth=depth, alpha="keep")
        np.testing.assert_array_equal(found[:, :, : wanted.shape[2]], wanted)
        assert channels == 4 or (found[:, :, 3] == levels).all()


@pytest.mark.parametrize("bits", [8, 10, 12])
def test_a_premultiplied_heic_comes_out_straight(bits: int) -> None:
    samples = noise(4, np.uint8 if bits == 8 else np.uint16)
    samples[:, :, :3] = np.minimum(samples[:, :, :3], samples[:, :, 3:])
    samples[:2, :, :] = 0
    data = heic(samples, "RGBa" if bits == 8 else "RGBa;16", bits)
    if bits > 8:
        samples >>= 16 - bits
    values = samples.astype(np.float64) / (2**bits - 1)
    straight = np.divide(
        values[:, :, :3], values[:, :, 3:], np.zeros((HEIGHT, WIDTH, 3)), where=values[:, :, 3:] > 0
    )
    found = decode(data, alpha="keep", depth=8 if bits == 8 else 16).astype(np.float64)
    levels = 255 if bits == 8 else 65535
    assert np.abs(found[:, :, :3] - straight * levels).max() <= 1
    assert np.abs(found[:, :, 3] - values[:, :, 3] * levels).max() <= 0.5


def test_a_jpeg_xl_of_more_than_8_bits_is_refused_by_name() -> None:
    samples = noise(1, np.uint16)
    with pytest.raises(SampleError, match="cannot decode this JPEG XL: I;16 samples are not"):
        decode(jxl(samples, "I;16"))


@pytest.mark.parametrize("kind", ENCODERS)
def test_too_many_pixels_are_refused_before_they_are_decoded(kind: str) -> None:
    data = ENCODERS[kind](noise(3), "RGB")
    cut = data[: len(data) // 2]  # which could not be decoded
    for each in (data, cut) if kind == "JPEG XL" else (data,):
        with pytest.raises(SampleError, match=f"{WIDTH} x {HEIGHT} is 2,867 pixels, more than 99"):
            decode(each, max_pixels=99)


@pytest.mark.parametrize("kind", ENCODERS)
@given(share=st.floats(0.02, 0.98))
def test_a_cut_file_is_refused_by_name(kind: str, share: float) -> None:
    data = ENCODERS[kind](noise(3), "RGB")
    with pytest.raises(SampleError, match=f"cannot decode this {kind}"):
        decode(data[: max(40, round(len(data) * share))])
