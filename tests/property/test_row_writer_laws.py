"""A shard file holds the rows given to it, and who looks on sees all of them, in whole pixels."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from loaders.format import row_writer
from loaders.format.files import checksum
from loaders.format.row_writer import RowWriter
from preprocess.stats import ChannelTally, channel_statistics


@settings(deadline=None, max_examples=50)
@given(
    channels=st.one_of(st.integers(1, 7), st.sampled_from([129, 513])),
    dtype=st.sampled_from([np.uint8, np.uint16, np.uint32]),
    counts=st.lists(st.integers(1, 200), min_size=1, max_size=5),
    small=st.sampled_from([1, 1 << 10, 1 << 16]),
    blocks=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_blocks_that_are_looked_at_are_whole_pixels_of_all_rows(
    channels: int, dtype: Any, counts: list[int], small: int, blocks: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    top = np.iinfo(dtype).max
    parts = [rng.integers(0, top, (n, channels), dtype, endpoint=True) for n in counts]
    seen: list[NDArray[np.uint8]] = []
    tally = ChannelTally(channels, np.dtype(dtype))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_writer, "_SMALL_ROW", small)
        patch.setattr(row_writer, "_WRITE_BLOCK", 7 * blocks)
        writer = RowWriter(Path(folder) / "rows", b"prefix")

        def look(data: NDArray[np.uint8]) -> None:
            seen.append(data.copy())
            tally.add(data)

        for rows in parts:
            writer.append(rows, look, channels * rows.itemsize)
        writer.finish(b"prefix", b"suffix")
        whole = (Path(folder) / "rows").read_bytes()
        assert writer.crc32c == checksum(Path(folder) / "rows")
    rows = np.concatenate(parts)
    assert whole == b"prefix" + rows.tobytes() + b"suffix"
    assert np.concatenate(seen).tobytes() == rows.tobytes()
    assert all(data.nbytes % (channels * rows.itemsize) == 0 for data in seen)
    values = rows.astype(object)
    assert tally.statistics == channel_statistics(rows[None])
    assert tally.statistics.sums == tuple(values.sum(axis=0))
    assert tally.statistics.squares == tuple((values * values).sum(axis=0))
