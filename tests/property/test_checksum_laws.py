"""The checksum is CRC-32C, for data of any size, wherever it begins, in either way."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.format import crc32c

SIZES = st.integers(0, 40) | st.integers(crc32c._LARGE - 2, crc32c._LARGE + 99)


@pytest.mark.parametrize("compiled", [True, False])
@given(
    size=SIZES,
    start=st.integers(0, 9),
    seed=st.integers(0, 99),
    before=st.binary(max_size=20),
    kind=st.sampled_from([np.asarray, bytes, bytearray]),
)
def test_data_of_any_size_have_the_checksum_of_google_crc32c(
    compiled: bool, size: int, start: int, seed: int, before: bytes, kind: Callable[[Any], Any]
) -> None:
    data = np.random.default_rng(seed).integers(0, 256, start + size, np.uint8)[start:]
    found = crc32c._function() if compiled else None
    with patch.object(crc32c, "_function", lambda: found):
        whole = crc32c.extend(crc32c.extend(0, before), kind(data))
    assert whole == google_crc32c.value(before + data.tobytes())


def test_what_is_compiled_is_found_where_there_is_any() -> None:
    assert (crc32c._function() is not None) == (google_crc32c.implementation == "c")


def test_the_check_value_of_the_standard_holds() -> None:
    assert crc32c.extend(0, b"123456789") == 0xE3069283
