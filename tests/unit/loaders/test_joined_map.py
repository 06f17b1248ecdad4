"""Files of rows as one array: the very rows of each file, and nothing left when it is gone."""

import errno
import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from loaders import open_dataset, open_table, stored_column
from loaders.errors import FormatError, ShardsError
from loaders.format.maps import map_file
from loaders.joined_map import JoinedMap, distance
from preprocess import ImageOptions, RunOptions, images_to_shards
from tests.synthetic import write_image_tree
from tests.table_stores import write_people

HEADER = 128


@pytest.fixture
def make_photos(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that prepares 12 photos of one size in several shards."""

    def make(container: str, size: tuple[int, int]) -> Path:
        write_image_tree(tmp_path / "photos", ["ant", "bee"], 6)
        options = ImageOptions(sizes=(size,))
        run = RunOptions(container=container, shard_nbytes=60_000)
        images_to_shards(tmp_path / "photos", tmp_path / "out", options, run)
        return tmp_path / "out"

    return make


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


def test_more_addresses_than_64_bits_count_are_refused_not_cut_down() -> None:
    row_nbytes = (1 << 32) - 1  # rows lie 2^44 bytes apart: 2^20 of them come to 2^64
    with pytest.raises(ShardsError, match="bytes of addresses are free"):
        JoinedMap(row_nbytes, HEADER + row_nbytes, (1 << 20) + 1, "data")


@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_rows_of_an_odd_size_are_gathered_in_pieces_where_they_would_lie_too_far_apart(
    container: str, make_photos: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = open_dataset(make_photos(container, size=(65, 63)))
    assert len(ds[0]["image"]) == 3  # opens it
    monkeypatch.setattr(stored_column, "_ADDRESSES", 0)
    pieces = open_dataset(ds.path)
    assert len(pieces[0]["image"]) == 3
    assert pieces._columns.rows("image_65x63")._pieces > 1
    assert ds._columns.rows("image_65x63")._pieces == 1
    indices = np.random.default_rng(0).integers(0, len(ds), 50)
    found, expected = pieces.__getitems__(indices), ds.__getitems__(indices)
    assert found["key"] == expected["key"]
    assert torch.equal(found["image"], expected["image"])


def test_shards_without_rows_take_no_addresses(tmp_path: Path) -> None:
    table = open_table(write_people(tmp_path / "few", 50, shards=[0, 20, 0, 1, 29, 0, 0]))
    whole = open_table(write_people(tmp_path / "all", 50))
    step = distance(table._rows.row_nbytes, 1) // table._rows.row_nbytes
    assert table._rows._column.firsts.tolist() == [0, 0, 0, step, *[2 * step] * 3]
    indices = list(range(50))
    expected = whole.__getitems__(indices)
    for name, found in table.__getitems__(indices).items():
        torch.testing.assert_close(found, expected[name], rtol=0, atol=0, equal_nan=True)


def test_too_many_maps_are_no_fault_of_the_file(tmp_path: Path) -> None:
    def place(descriptor: int, nbytes: int) -> NDArray[np.uint8]:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    write(tmp_path, 10, [4])
    with pytest.raises(ShardsError, match=r"no room for another map.*vm\.max_map_count") as caught:
        map_file(tmp_path / "0", HEADER + 40, place)
    assert not isinstance(caught.value, FormatError)
