"""What bursts is given on in small parts, and of long texts only what is looked at is copied."""

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from functools import cache

import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pytest
import zstandard  # noqa: TID253 - a test may load what it compares with
from hypothesis import given
from hypothesis import strategies as st

from preprocess.texts.arrays import beginnings
from preprocess.texts.inflate import inflate
from preprocess.texts.kinds import Compression

COMPRESS: dict[Compression, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstandard.ZstdCompressor(level=19).compress(data),
}


@pytest.mark.parametrize("compression", COMPRESS)
def test_a_file_that_bursts_is_given_on_in_parts_of_a_megabyte(compression: Compression) -> None:
    plain = b"\n" * 40_000_000
    file = io.BytesIO(COMPRESS[compression](plain))
    assert len(file.getvalue()) < 1_000_000
    sizes = [len(part) for part in inflate(file, compression, "a")]
    assert sum(sizes) == len(plain)
    assert max(sizes) <= 1 << 20


@cache
def compressed(compression: Compression, data: bytes) -> bytes:
    return COMPRESS[compression](data)


@given(
    parts=st.lists(st.sampled_from([b"\n" * 3_000_000, b"text and text " * 900, b"", b"x"])),
    compression=st.sampled_from([*COMPRESS]),
    frames=st.booleans(),
)
def test_parts_are_the_whole_whatever_bursts_between_them(
    parts: list[bytes], compression: Compression, frames: bool
) -> None:
    plain = b"".join(parts)
    if frames and parts:
        data = b"".join(compressed(compression, part) for part in parts)
    else:
        data = COMPRESS[compression](plain)
    assert b"".join(inflate(io.BytesIO(data), compression, "a")) == plain


@given(
    texts=st.lists(st.text(st.sampled_from("aé語\U0001f600\0"), max_size=12)),
    most=st.integers(0, 9),
    first=st.integers(0, 4),
)
def test_beginnings_are_whole_letters(texts: list[str], most: int, first: int) -> None:
    array = pa.array(texts, pa.large_string()).slice(first)
    assert beginnings(array, most) == [text[:most] for text in texts[first:]]
