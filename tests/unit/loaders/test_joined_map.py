"""Files of rows as one array: the very rows of each file, and nothing left when it is gone."""

import gc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from loaders.errors import FormatError, ShardsError
from loaders.format.files import map_file
from loaders.joined_map import JoinedMap

HEADER = 128


def write(folder: Path, row_nbytes: int, counts: list[int]) -> list[NDArray[np.uint8]]:
    """Write a file of rows for each count, behind a header of other bytes."""
    rng = np.random.default_rng(len(counts) * row_nbytes)
    rows = [rng.integers(0, 255, (count, row_nbytes), np.uint8) for count in counts]
    for number, found in enumerate(rows):
        (folder / str(number)).write_bytes(b"\xff" * HEADER + found.tobytes())
    return rows


def join(folder: Path, row_nbytes: int, counts: list[int]) -> tuple[JoinedMap, NDArray[np.uint8]]:
    """Map all files; give the one array too."""
    sizes = [HEADER + count * row_nbytes for count in counts]
    joined = JoinedMap(row_nbytes, max(sizes), len(sizes), "data")
    for number, nbytes in enumerate(sizes):
        map_file(folder / str(number), nbytes, joined.place(number))
    return joined, joined.rows(HEADER, (len(counts) - 1) * joined.step + counts[-1])


@given(row_nbytes=st.integers(1, 300), counts=st.lists(st.integers(0, 60), min_size=1, max_size=6))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_row_of_every_file_lies_where_the_step_says(
    tmp_path: Path, row_nbytes: int, counts: list[int]
) -> None:
    rows = write(tmp_path, row_nbytes, counts)
    joined, whole = join(tmp_path, row_nbytes, counts)
    for number, found in enumerate(rows):
        first = number * joined.step
        np.testing.assert_array_equal(whole[first : first + len(found)], found)
    places = np.concatenate([np.arange(n) + i * joined.step for i, n in enumerate(counts)])
    if len(places):
        shuffled = np.random.default_rng(0).permutation(places)
        order = np.searchsorted(places, shuffled)
        np.testing.assert_array_equal(whole.take(shuffled, axis=0), np.concatenate(rows)[order])


def test_rows_cannot_be_written_and_outlive_the_map_that_gave_them(tmp_path: Path) -> None:
    (rows,) = write(tmp_path, 7, [5])
    joined, whole = join(tmp_path, 7, [5])
    assert not whole.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        whole.flags.writeable = True
    del joined
    gc.collect()
    np.testing.assert_array_equal(whole, rows)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="counts maps in /proc")
def test_nothing_stays_mapped_when_the_last_array_is_gone(tmp_path: Path) -> None:
    def ours() -> int:
        return Path("/proc/self/maps").read_text().count(str(tmp_path))

    counts = [100, 3, 50]
    write(tmp_path, 116, counts)
    joined, whole = join(tmp_path, 116, counts)
    assert ours() == len(counts)
    part = whole[:2]
    del joined, whole
    gc.collect()
    assert ours() == len(counts)
    del part
    gc.collect()
    assert ours() == 0


def test_a_file_of_another_size_is_refused_before_it_is_mapped(tmp_path: Path) -> None:
    write(tmp_path, 10, [4])
    joined = JoinedMap(10, HEADER + 40, 1, "data")
    with (tmp_path / "0").open("ab") as file:
        file.write(b"x")
    with pytest.raises(FormatError, match="169 bytes, manifest says 168"):
        map_file(tmp_path / "0", HEADER + 40, joined.place(0))


def test_addresses_that_are_not_free_are_refused_by_name() -> None:
    with pytest.raises(ShardsError, match=r"^data: no .* bytes of addresses are free: .*ulimit -v"):
        JoinedMap(4096, 1 << 46, 4, "data")
