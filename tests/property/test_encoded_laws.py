"""Encoded samples: what comes back, and that other bytes than those written are never a sample."""

from typing import Any

import numpy as np
import pytest
import simplejpeg  # noqa: TID253 - what the samples must be equal to
from google_crc32c import value as crc32c
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from loaders.format.codecs import decode_sample, encode_sample
from loaders.format.encoding import Encoding

LOSSLESS = [
    Encoding(codec="zstd", level=1),
    Encoding(codec="zstd", level=9),
    Encoding(codec="blosc-lz4", level=5),
    Encoding(codec="blosc-lz4", level=9),
]


def shaped(channels: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[int, int, int]]:
    return st.tuples(st.integers(1, 40), st.integers(1, 40), channels)


def made(dtype: str, shape: tuple[int, int, int], seed: int, levels: int) -> NDArray[Any]:
    """Return anything between one value and noise."""
    return np.random.default_rng(seed).integers(0, levels, shape).astype(dtype)


def samples(dtypes: list[str], channels: st.SearchStrategy[int]) -> st.SearchStrategy[NDArray[Any]]:
    levels = st.sampled_from([1, 2, 9, 256])
    return st.builds(made, st.sampled_from(dtypes), shaped(channels), st.integers(0, 999), levels)


SAMPLES = samples(["<u1", "<u2"], st.integers(1, 4))
PICTURES = samples(["<u1"], st.sampled_from([1, 3]))


def encoded(encoding: Encoding, sample: NDArray[Any]) -> NDArray[np.uint8]:
    return np.frombuffer(encode_sample(encoding, sample), np.uint8)


def decoded(encoding: Encoding, data: NDArray[np.uint8], like: NDArray[Any]) -> NDArray[Any]:
    out = np.full_like(like, 77)
    decode_sample(encoding, data, out)
    return out


def jpeg(sample: NDArray[np.uint8], level: int = 95) -> Encoding:
    return Encoding(codec="jpeg", level=level, chroma="420" if sample.shape[2] == 3 else None)


@pytest.mark.parametrize("encoding", LOSSLESS, ids=str)
@given(sample=SAMPLES)
def test_what_was_compressed_comes_back_bit_by_bit(
    encoding: Encoding, sample: NDArray[Any]
) -> None:
    assert np.array_equal(decoded(encoding, encoded(encoding, sample), sample), sample)


@given(sample=PICTURES, level=st.integers(1, 100))
def test_a_jpeg_is_what_simplejpeg_makes_of_the_picture(
    sample: NDArray[np.uint8], level: int
) -> None:
    data = encoded(jpeg(sample, level), sample)
    name = "RGB" if sample.shape[2] == 3 else "GRAY"
    sampling = "420" if sample.shape[2] == 3 else "Gray"
    assert data.tobytes() == simplejpeg.encode_jpeg(sample, level, name, sampling)
    expected = simplejpeg.decode_jpeg(data.tobytes(), name)
    assert np.array_equal(decoded(jpeg(sample, level), data, sample), expected)


@pytest.mark.parametrize("encoding", LOSSLESS, ids=str)
@given(sample=SAMPLES, data=st.data())
def test_any_other_bytes_are_no_compressed_sample(
    encoding: Encoding, sample: NDArray[Any], data: st.DataObject
) -> None:
    whole = encoded(encoding, sample)
    changed = whole.copy()
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for bad in (changed, cut, np.append(whole, np.uint8(0))):
        with pytest.raises(ValueError, match="CRC-32C does not hold"):
            decoded(encoding, bad, sample)


@pytest.mark.parametrize("encoding", LOSSLESS, ids=str)
@given(sample=SAMPLES, data=st.data())
def test_forged_bytes_are_refused_or_decode_to_the_size_wanted(
    encoding: Encoding, sample: NDArray[Any], data: st.DataObject
) -> None:
    """A stranger makes the CRC-32C fit: the codec itself must not fall for it."""
    packed = bytearray(encoded(encoding, sample)[:-4])
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    del packed[data.draw(st.integers(1, len(packed))) :]
    forged = bytes(packed) + crc32c(bytes(packed)).to_bytes(4, "little")
    guarded = np.full(sample.nbytes + 64, 77, np.uint8)
    out = guarded[: sample.nbytes].view(sample.dtype).reshape(sample.shape)
    try:
        decode_sample(encoding, np.frombuffer(forged, np.uint8), out)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - either way is right
    assert (guarded[sample.nbytes :] == 77).all()


@pytest.mark.parametrize("encoding", LOSSLESS, ids=str)
@given(sample=SAMPLES, rows=st.integers(1, 41))
def test_a_sample_of_another_size_is_refused_before_it_is_decoded(
    encoding: Encoding, sample: NDArray[Any], rows: int
) -> None:
    other = np.zeros((rows, *sample.shape[1:]), sample.dtype)
    if other.shape != sample.shape:
        with pytest.raises(ValueError, match=rf"decodes to {sample.nbytes} bytes, expected "):
            decode_sample(encoding, encoded(encoding, sample), other)


@given(sample=PICTURES, shape=shaped(st.sampled_from([1, 3])))
def test_a_jpeg_of_another_size_or_other_channels_is_refused(
    sample: NDArray[np.uint8], shape: tuple[int, int, int]
) -> None:
    if shape != sample.shape:
        with pytest.raises(ValueError, match=r"a JPEG of \[H, W, C\] \[.*\], expected \["):
            decode_sample(jpeg(sample), encoded(jpeg(sample), sample), np.empty(shape, np.uint8))


@given(sample=PICTURES, data=st.data())
def test_a_damaged_jpeg_is_refused_or_a_picture_of_its_size(
    sample: NDArray[np.uint8], data: st.DataObject
) -> None:
    changed = bytearray(encoded(jpeg(sample), sample).tobytes())
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    guarded = np.full(sample.nbytes + 64, 77, np.uint8)
    out = guarded[: sample.nbytes].reshape(sample.shape)
    try:
        decode_sample(jpeg(sample), np.frombuffer(bytes(changed), np.uint8), out)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - libjpeg cannot see all damage
    assert (guarded[sample.nbytes :] == 77).all()


@given(sample=PICTURES, data=st.data())
def test_a_cut_jpeg_is_refused(sample: NDArray[np.uint8], data: st.DataObject) -> None:
    whole = encoded(jpeg(sample), sample)
    cut = whole[: data.draw(st.integers(0, len(whole) - 3))]  # the end mark is 2 bytes
    with pytest.raises(ValueError, match=r"\w"):
        decoded(jpeg(sample), cut, sample)
