"""Copies of what samples of any shards hold, against the samples themselves."""

import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders import ChecksumError, FormatError, MissingShardError
from loaders.format.fields import FieldSpec
from loaders.format.spec import read_manifest
from loaders.split_columns import SplitColumns
from tests.token_stores import write_store

FIELDS = (
    FieldSpec(name="tokens", dtype="uint16", shape=(), role="tokens", ragged=True),
    FieldSpec(name="boxes", dtype="float32", shape=(4,), role="boxes", ragged=True),
    FieldSpec(name="page", dtype="uint32", shape=(), role="page"),
)


def made(sizes: list[list[int]]) -> list[dict[str, list[np.ndarray]]]:
    """Return samples of so many tokens, shard by shard, and half as many boxes."""
    rng = np.random.default_rng(0)
    return [
        {
            "tokens": [rng.integers(0, 1 << 16, n).astype(np.uint16) for n in shard],
            "boxes": [rng.random((n // 2, 4), np.float32) for n in shard],
            "page": [np.uint32(rng.integers(1 << 32)) for _ in shard],
        }
        for shard in sizes
    ]


def opened(folder: Path, shards: list[dict[str, Any]], container: Any) -> SplitColumns:
    write_store(folder, FIELDS, shards, container=container)
    return SplitColumns(folder, "train", read_manifest(folder), verify=True)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """Draw lengths, short ones and long ones, and which samples are asked for."""
    most = draw(st.sampled_from([3, 400]))
    sizes = draw(st.lists(st.lists(st.integers(0, most), max_size=6), min_size=1, max_size=5))
    count = sum(map(len, sizes))
    if not count:
        return sizes, []
    return sizes, draw(st.lists(st.integers(0, count - 1), max_size=12))


@settings(deadline=None)
@given(case=cases(), container=st.sampled_from(["tensor", "zarr"]), width=st.integers(0, 300))
def test_every_copy_holds_what_the_samples_do(
    case: tuple[list[list[int]], list[int]], container: str, width: int
) -> None:
    sizes, chosen = case
    shards = made(sizes)
    indices = np.array(chosen, np.int64)
    with tempfile.TemporaryDirectory() as scratch:
        columns = opened(Path(scratch) / "out", shards, container)
        for field in FIELDS[:2]:
            name = field.name
            every = [rows for shard in shards for rows in shard[name]]
            want = [every[index] for index in chosen]
            lengths = [len(rows) for rows in want]
            assert columns.lengths(name, indices).tolist() == lengths
            for found, rows in zip(columns.slices(name, indices), want, strict=True):
                assert np.array_equal(found, rows)
                assert not (found.size and found.flags.writeable)
            out = np.zeros((sum(lengths), *field.shape), field.numpy_dtype)
            assert columns.values_into(name, indices, out).tolist() == lengths
            assert out.tobytes() == b"".join(rows.tobytes() for rows in want)
        tokens = [rows for shard in shards for rows in shard["tokens"]]
        lists = np.full((len(chosen), width), 7, np.uint16)
        columns.lists_into("tokens", indices, lists)
        for row, index in zip(lists, chosen, strict=True):
            kept = tokens[index][:width].tolist()
            assert row.tolist() == [*kept, *[7] * (width - len(kept))]
        pages = np.zeros(len(chosen), np.uint32)
        columns.rows_into("page", indices, pages)
        every = [page for shard in shards for page in shard["page"]]
        assert pages.tolist() == [every[index] for index in chosen]


@settings(deadline=None)
@given(case=cases(), container=st.sampled_from(["tensor", "zarr"]))
def test_maps_hold_each_field_once_and_stretches_what_is_asked_for(
    case: tuple[list[list[int]], list[int]], container: str
) -> None:
    sizes, chosen = case
    shards = made(sizes)
    names = [field.name for field in FIELDS]
    with tempfile.TemporaryDirectory() as scratch:
        columns = opened(Path(scratch) / "out", shards, container)
        every = list(columns.stretches(names, None))
        maps = list(chain.from_iterable(every))
        assert sum(array.nbytes for array in maps) == sum(whole.nbytes for whole in every)
        assert len({array.ctypes.data for array in maps}) == len(maps)
        indices = np.unique(np.array(chosen, np.int64))
        for name in ("tokens", "boxes"):
            announced = [
                (part.ctypes.data, part.ctypes.data + part.nbytes)
                for part in chain.from_iterable(columns.stretches([name], indices))
            ]
            for piece in columns.slices(name, indices):
                begin, end = piece.ctypes.data, piece.ctypes.data + piece.nbytes
                inside = [first <= begin and end <= last for first, last in announced]
                assert any(inside) or begin == end


def test_shards_are_opened_when_they_are_touched_and_errors_name_them(tmp_path: Path) -> None:
    shards = made([[3], [], [100], [5, 6]])
    columns = opened(tmp_path / "out", shards, "tensor")
    (tmp_path / "out/train/00002.tokens.npy").unlink()
    flipped = tmp_path / "out/train/00003.tokens_offsets.npy"
    data = bytearray(flipped.read_bytes())
    data[-1] ^= 1
    flipped.write_bytes(data)
    (first,) = columns.slices("tokens", np.array([0]))
    assert np.array_equal(first, shards[0]["tokens"][0])
    assert columns.lengths("tokens", np.array([1, 0, 1])).tolist() == [100, 3, 100]
    for _ in range(2):
        with pytest.raises(MissingShardError, match=r"00002\.tokens\.npy"):
            columns.slices("tokens", np.array([0, 1]))
        with pytest.raises(ChecksumError, match=r"00003\.tokens_offsets\.npy"):
            columns.lengths("tokens", np.array([0, 3]))
    error = columns.broken("tokens", 3, "why")
    assert isinstance(error, FormatError)
    assert f"{tmp_path / 'out/train/00003.tokens.npy'}: sample 1: why; run" in str(error)
