"""Token files of other trainers: written here by their description, and damaged in every part."""

import os
import pickle  # noqa: TID251
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaders.errors import FormatError, MissingShardError, SelectionError, VersionError
from loaders.token_files import TokenFile, open_megatron, open_nanogpt


def write_nanogpt(folder: Path, ids: Sequence[int], letter: str = "H") -> Path:
    path = folder / "train.bin"
    path.write_bytes(struct.pack(f"<{len(ids)}{letter}", *ids))
    return path


def write_megatron(folder: Path, ids: Sequence[int], **changed: Any) -> Path:
    """Write 6 ids in 3 sequences of 2 documents, but for what is changed."""
    index: dict[str, Any] = {
        "magic": b"MMIDIDX\0\0",
        "version": 1,
        "code": 8,
        "sequences": 3,
        "boundaries": 3,
        "lengths": [3, 1, 2],
        "pointers": [0, 6, 8],
        "documents": [0, 2, 3],
        "modes": b"",
    } | changed
    letter = "H" if index["code"] == 8 else "i"
    prefix = folder / "corpus.v1"
    Path(f"{prefix}.bin").write_bytes(struct.pack(f"<{len(ids)}{letter}", *ids))
    Path(f"{prefix}.idx").write_bytes(
        index["magic"]
        + struct.pack(
            "<QBQQ", index["version"], index["code"], index["sequences"], index["boundaries"]
        )
        + struct.pack(f"<{len(index['lengths'])}i", *index["lengths"])
        + struct.pack(f"<{len(index['pointers'])}q", *index["pointers"])
        + struct.pack(f"<{len(index['documents'])}q", *index["documents"])
        + index["modes"]
    )
    return prefix


def documents_of(file: TokenFile) -> list[list[int]]:
    bounds = file.offsets.tolist()
    return [file.values[a:b].tolist() for a, b in pairwise(bounds)]


def test_a_nanogpt_file_is_one_document_without_an_end(tmp_path: Path) -> None:
    file = open_nanogpt(write_nanogpt(tmp_path, [5, 0, 65_535]), eos_id=None)
    assert documents_of(file) == [[5, 0, 65_535]]
    assert (file.values.dtype.name, file.offsets.dtype.name, len(file)) == ("uint16", "uint64", 1)


@pytest.mark.parametrize(
    ("ids", "documents"),
    [
        ([1, 2, 0, 3, 0], [[1, 2, 0], [3, 0]]),
        ([1, 0, 0, 7], [[1, 0], [0], [7]]),
        ([0], [[0]]),
        ([4, 4], [[4, 4]]),
    ],
)
def test_a_nanogpt_file_is_split_after_each_end(
    tmp_path: Path, ids: list[int], documents: list[list[int]]
) -> None:
    assert documents_of(open_nanogpt(write_nanogpt(tmp_path, ids), eos_id=0)) == documents


def test_a_long_nanogpt_file_is_split_in_every_block(tmp_path: Path) -> None:
    ids = np.ones(1_200_000, "<u2")
    ends = np.array([0, 524_287, 524_288, 1_048_575, 1_199_000])
    ids[ends] = 9
    path = tmp_path / "train.bin"
    path.write_bytes(ids.tobytes())
    file = open_nanogpt(path, eos_id=9)
    assert file.offsets.tolist() == [0, *(ends + 1).tolist(), len(ids)]


def test_a_file_of_uint32_is_opened_as_such(tmp_path: Path) -> None:
    path = write_nanogpt(tmp_path, [70_000, 2**32 - 1, 1], "I")
    file = open_nanogpt(path, dtype="uint32", eos_id=2**32 - 1)
    assert documents_of(file) == [[70_000, 2**32 - 1], [1]]


@pytest.mark.parametrize("nbytes", [0, 3, 5])
def test_a_nanogpt_file_of_part_of_an_id_is_refused(tmp_path: Path, nbytes: int) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(bytes(nbytes))
    with pytest.raises(FormatError, match=rf"train.bin: {nbytes} bytes, expected at least one"):
        open_nanogpt(path, eos_id=None)


@pytest.mark.parametrize(
    ("dtype", "eos_id"), [("uint16", 65_536), ("uint32", 2**32), ("uint16", -1)]
)
def test_an_end_that_no_id_can_be_is_refused(tmp_path: Path, dtype: Any, eos_id: int) -> None:
    with pytest.raises(SelectionError, match=f"eos_id: {eos_id}, {dtype} holds"):
        open_nanogpt(write_nanogpt(tmp_path, [1, 2]), dtype=dtype, eos_id=eos_id)


def test_a_type_that_holds_no_ids_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SelectionError, match="dtype: 'int64'"):
        open_nanogpt(write_nanogpt(tmp_path, [1]), dtype="int64", eos_id=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [8, 4])
def test_the_code_in_the_index_decides_the_type(tmp_path: Path, code: int) -> None:
    size = {8: 2, 4: 4}[code]
    pointers = [0, 3 * size, 4 * size]
    prefix = write_megatron(tmp_path, [1, 2, 3, 4, 5, 65_535], code=code, pointers=pointers)
    file = open_megatron(prefix)
    assert file.values.dtype == np.dtype(f"u{size}")
    assert documents_of(file) == [[1, 2, 3, 4], [5, 65_535]]


def test_maps_cannot_be_written(tmp_path: Path) -> None:
    for file in (
        open_megatron(write_megatron(tmp_path, range(6))),
        open_nanogpt(write_nanogpt(tmp_path, [1, 2]), eos_id=1),
    ):
        for array in (file.values, file.offsets):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


def test_an_opened_file_pickles_as_its_path(tmp_path: Path) -> None:
    ids = [3, 2] + [1] * 50_000 + [2]
    for file in (
        open_megatron(write_megatron(tmp_path, range(6))),
        open_nanogpt(write_nanogpt(tmp_path, ids), eos_id=2),
    ):
        data = pickle.dumps(file)
        assert len(data) < 1000
        assert documents_of(pickle.loads(data)) == documents_of(file)


def test_empty_documents_are_documents(tmp_path: Path) -> None:
    prefix = write_megatron(
        tmp_path,
        range(6),
        lengths=[0, 6, 0],
        pointers=[0, 0, 12],
        boundaries=5,
        documents=[0, 0, 1, 3, 3],
    )
    assert documents_of(open_megatron(prefix)) == [[], [], [0, 1, 2, 3, 4, 5], []]


def test_an_index_of_nothing_is_no_document(tmp_path: Path) -> None:
    none = {"sequences": 0, "lengths": [], "pointers": []}
    prefix = write_megatron(tmp_path, [], **none, boundaries=1, documents=[0])
    assert documents_of(open_megatron(prefix)) == []


def test_sequences_beyond_2_gb_are_found(tmp_path: Path) -> None:
    length = 2**30 + 3
    prefix = write_megatron(
        tmp_path,
        [],
        lengths=[length, length, 2],
        pointers=[0, 2 * length, 4 * length],
        boundaries=4,
        documents=[0, 1, 2, 3],
    )
    with Path(f"{prefix}.bin").open("r+b") as file:
        file.truncate(4 * length + 4)  # a hole: no disk is used
        file.seek(-6, os.SEEK_END)
        file.write(struct.pack("<3H", 7, 8, 9))
    found = open_megatron(prefix)
    assert found.offsets.tolist() == [0, length, 2 * length, 2 * length + 2]
    assert found.values[int(found.offsets[2]) - 1 :].tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"magic": b"MMIDIDX\0\1"}, r"corpus.v1.idx: begins with b"),
        ({"code": 5}, r"type code 5, expected 8 \(uint16\) or 4 \(int32\)"),
        ({"sequences": 4}, "94 bytes, 4 sequences and 3 document boundaries need 106"),
        ({"sequences": 2**61}, "document boundaries need"),
        ({"boundaries": 2**61}, "document boundaries need"),
        ({"boundaries": 0}, "document boundaries need 70"),
        ({"boundaries": 0, "documents": []}, r"document boundaries \[\] to \[\], expected 0 to 3"),
        ({"modes": b"\0\0\0"}, "97 bytes, .* multimodal"),
        ({"lengths": [3, -1, 4]}, "sequence 1 has -1 tokens"),
        ({"lengths": [3, 1, 1]}, "do not add up to the 6 tokens"),
        ({"lengths": [3, 1, 3]}, "do not add up to the 6 tokens"),
        ({"lengths": [2**31 - 1] * 3}, "do not add up to the 6 tokens"),
        ({"lengths": [2, 2, 2]}, "sequence 1 begins at byte 6, expected 4"),
        ({"pointers": [0, 6, 10]}, "sequence 2 begins at byte 10, expected 8"),
        ({"pointers": [-2, 6, 8]}, "sequence 0 begins at byte -2, expected 0"),
        ({"documents": [1, 2, 3]}, r"document boundaries \[1\] to \[3\], expected 0 to 3"),
        ({"documents": [0, 2, 4]}, r"document boundaries \[0\] to \[4\], expected 0 to 3"),
        (
            {"boundaries": 4, "documents": [0, 9, 2, 3]},
            "document boundary 2 is 2, expected 9 or more",
        ),
        ({"code": 4}, "do not add up|begins at byte"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(FormatError, match=said):
        open_megatron(write_megatron(tmp_path, range(6), **changed))


def test_another_version_of_the_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VersionError, match="version 2 of the index, only 1 is known"):
        open_megatron(write_megatron(tmp_path, range(6), version=2))


def test_a_data_file_of_part_of_an_id_is_refused(tmp_path: Path) -> None:
    prefix = write_megatron(tmp_path, range(6))
    with Path(f"{prefix}.bin").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(FormatError, match=r"corpus.v1.bin: 13 bytes, not a multiple of the 2"):
        open_megatron(prefix)


@pytest.mark.parametrize("nbytes", [0, 33])
def test_an_index_without_a_whole_header_is_refused(tmp_path: Path, nbytes: int) -> None:
    prefix = write_megatron(tmp_path, range(6))
    os.truncate(f"{prefix}.idx", nbytes)
    with pytest.raises(FormatError, match=f"{nbytes} bytes, a Megatron index has 34 or more"):
        open_megatron(prefix)


@pytest.mark.parametrize("suffix", [".bin", ".idx"])
def test_a_missing_file_is_named(tmp_path: Path, suffix: str) -> None:
    prefix = write_megatron(tmp_path, range(6))
    Path(f"{prefix}{suffix}").unlink()
    with pytest.raises(MissingShardError, match=f"corpus.v1{suffix}: not found"):
        open_megatron(prefix)
    with pytest.raises(MissingShardError, match=r"train.bin: not found"):
        open_nanogpt(tmp_path / "train.bin", eos_id=None)


def test_what_is_no_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.bin")
    for path in (tmp_path / "train.bin", tmp_path):
        with pytest.raises(FormatError, match="not a regular file"):
            open_nanogpt(path, eos_id=None)
