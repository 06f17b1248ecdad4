"""Token files that others read: each is read here by nothing but its description."""

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from loaders.errors import FormatError
from preprocess.errors import OutputError, SourceError
from preprocess.tokens.files import (
    Exported,
    Part,
    export_llmc,
    export_megatron,
    export_nanogpt,
    pointers_of,
)
from tests.file_limit import limited_files

ROOT = Path(__file__).parents[4]
Export = Callable[[Sequence[Part], Path], Exported]


def part(*documents: Sequence[int], dtype: str = "uint16") -> Part:
    """Return one shard that holds these documents."""
    offsets = np.cumsum([0, *map(len, documents)]).astype(np.uint64)
    return np.array([i for ids in documents for i in ids], dtype), offsets


def to_nanogpt(parts: Sequence[Part], folder: Path) -> Exported:
    return export_nanogpt(parts, folder / "train.bin")


def to_megatron(parts: Sequence[Part], folder: Path) -> Exported:
    return export_megatron(parts, folder / "corpus.v1")


def to_llmc(parts: Sequence[Part], folder: Path) -> Exported:
    return export_llmc(parts, folder / "train", model="gpt-2", tokens_per_shard=3)


every_export = pytest.mark.parametrize("export", [to_nanogpt, to_megatron, to_llmc])


def read_megatron(prefix: Path) -> tuple[int, list[list[int]]]:
    """Return the code of the type, and the documents by the pointers of their sequences."""
    index, data = Path(f"{prefix}.idx").read_bytes(), Path(f"{prefix}.bin").read_bytes()
    assert index[:9] == b"MMIDIDX\0\0"
    version, code, sequences, boundaries = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1
    rest = struct.unpack_from(f"<{sequences}i{sequences}q{boundaries}q", index, 34)
    assert len(index) == 34 + 12 * sequences + 8 * boundaries
    lengths, pointers = rest[:sequences], rest[sequences : 2 * sequences]
    assert rest[2 * sequences :] == tuple(range(sequences + 1))
    letter = {8: "H", 4: "i"}[code]
    documents = [
        list(struct.unpack_from(f"<{length}{letter}", data, pointer))
        for length, pointer in zip(lengths, pointers, strict=True)
    ]
    assert len(data) == struct.calcsize(f"<{sum(lengths)}{letter}")
    return code, documents


def read_llmc(path: Path, letter: str) -> tuple[tuple[int, ...], list[int]]:
    """Return the 256 numbers of the header, and the ids."""
    data = path.read_bytes()
    header = struct.unpack_from("<256i", data)
    assert len(data) == struct.calcsize(f"<256i{header[2]}{letter}")
    return header, list(struct.unpack_from(f"<{header[2]}{letter}", data, 1024))


def test_nanogpt_gets_the_ids_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "data" / "mine" / "train.bin"
    parts = [part([1, 2, 65_535], []), part(), part([7, 300], dtype="uint32")]
    exported = export_nanogpt(parts, path)
    assert path.read_bytes() == struct.pack("<5H", 1, 2, 65_535, 7, 300)
    assert exported == Exported(files=(path,), dtype="uint16", documents=3, tokens=5)


def test_an_id_over_uint16_is_named_and_never_wraps(tmp_path: Path) -> None:
    parts = [part([1, 2]), part([3], [4, 70_000, 70_001], dtype="uint32")]
    for export in (to_nanogpt, to_megatron, to_llmc):
        with pytest.raises(SourceError, match=r"shard 1 token 2: id 70000 is over 65535"):
            export(parts, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("dtype", "code", "top"), [("uint16", 8, 65_535), ("uint32", 4, 2**31 - 1)]
)
def test_megatron_gets_every_document_by_its_pointer(
    tmp_path: Path, dtype: str, code: int, top: int
) -> None:
    documents = [[1, top, 3], [], [4], [5, 6], []]
    parts = [part(*documents[:2], dtype=dtype), part(), part(*documents[2:], dtype=dtype)]
    prefix = tmp_path / "corpus.v1"
    exported = export_megatron(parts, prefix)
    assert read_megatron(prefix) == (code, documents)
    assert exported.files == (tmp_path / "corpus.v1.bin", tmp_path / "corpus.v1.idx")
    assert (exported.documents, exported.tokens) == (5, 6)


def test_the_first_shard_decides_megatrons_type(tmp_path: Path) -> None:
    export_megatron([part([9], dtype="uint32"), part([65_535])], tmp_path / "a")
    assert read_megatron(tmp_path / "a") == (4, [[9], [65_535]])
    export_megatron([part([9]), part([65_535], dtype="uint32")], tmp_path / "b")
    assert read_megatron(tmp_path / "b") == (8, [[9], [65_535]])


def test_an_id_that_megatrons_int32_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"id 2147483648 is over 2147483647.*int32"):
        export_megatron([part([2**31], dtype="uint32")], tmp_path / "a")


def test_a_document_that_megatrons_lengths_cannot_count_is_refused(tmp_path: Path) -> None:
    values = np.broadcast_to(np.uint16(0), 2**31 + 1)
    offsets = np.array([0, 1, 2**31 + 1], np.uint64)
    with pytest.raises(SourceError, match=r"shard 0 document 1: 2147483648 tokens"):
        export_megatron([(values, offsets)], tmp_path / "a")


def test_positions_go_on_beyond_32_bits() -> None:
    pointers, end = pointers_of(np.array([2**31 - 1, 2**31 - 1, 5], "<i4"), 4, 2**40)
    first = 2**40 + 4 * (2**31 - 1)
    assert pointers.dtype == np.dtype("<i8")
    assert pointers.tolist() == [2**40, first, first + 4 * (2**31 - 1)]
    assert end == pointers[-1] + 20


def test_shards_and_documents_of_many_blocks_come_out_whole(tmp_path: Path) -> None:
    lengths = np.arange(600_000) % 5  # no two blocks of documents are alike
    offsets = np.append(0, np.cumsum(lengths)).astype(np.uint64)
    ids = (np.arange(offsets[-1]) % 50_257).astype(np.uint16)
    np.memmap(tmp_path / "ids", np.uint16, "w+", shape=len(ids))[:] = ids
    mapped = np.memmap(tmp_path / "ids", np.uint16, "r")
    export_megatron(
        [(mapped, offsets), (ids[::2], np.array([0, len(ids[::2])], "u8"))], tmp_path / "a"
    )
    export_llmc([(mapped, offsets)], tmp_path / "b", model="llama-3", tokens_per_shard=777_777)
    code, documents = read_megatron(tmp_path / "a")
    assert code == 8
    assert documents[-1] == ids[::2].tolist()
    assert [len(document) for document in documents[:-1]] == lengths.tolist()
    assert [i for document in documents[:-1] for i in document] == ids.tolist()
    found = [read_llmc(path, "I")[1] for path in sorted((tmp_path / "b").iterdir())]
    assert found == [ids[:777_777].tolist(), ids[777_777:].tolist()]


@pytest.mark.parametrize(
    ("model", "letter", "magic", "version", "top"),
    [("gpt-2", "H", 20240520, 1, 65_535), ("llama-3", "I", 20240801, 7, 2**32 - 1)],
)
def test_llmc_gets_shards_of_the_stated_tokens(
    tmp_path: Path, model: Any, letter: str, magic: int, version: int, top: int
) -> None:
    parts = [part([1, 2], [3, top], dtype="uint32"), part([5], [6, 7, 8, 9])]
    exported = export_llmc(parts, tmp_path / "out", model=model, name="c4", tokens_per_shard=4)
    assert [path.name for path in exported.files] == [f"c4_{i:06d}.bin" for i in range(3)]
    assert sorted((tmp_path / "out").iterdir()) == list(exported.files)
    read = [read_llmc(path, letter) for path in exported.files]
    assert [ids for _, ids in read] == [[1, 2, 3, top], [5, 6, 7, 8], [9]]
    for header, ids in read:
        assert header == (magic, version, len(ids), *[0] * 253)
    assert (exported.documents, exported.tokens) == (4, 9)


@pytest.mark.parametrize("tokens", [0, 2**31])
def test_llmc_shards_hold_what_their_header_can_count(tmp_path: Path, tokens: int) -> None:
    with pytest.raises(ValueError, match=f"tokens_per_shard: {tokens}, not from 1"):
        export_llmc([part([1])], tmp_path / "a", model="gpt-2", tokens_per_shard=tokens)


@every_export
@pytest.mark.parametrize("parts", [[], [part()], [part([], [])]])
def test_nothing_to_export_is_refused(tmp_path: Path, export: Export, parts: list[Part]) -> None:
    with pytest.raises(SourceError, match="no tokens to export"):
        export(parts, tmp_path)
    assert list(tmp_path.iterdir()) == []


@every_export
@pytest.mark.parametrize(
    ("values", "offsets", "said"),
    [
        (np.zeros(3, np.int64), np.array([0, 3], "u8"), r"ids of int64 \[3\]"),
        (np.zeros((3, 1), np.uint16), np.array([0, 3], "u8"), r"ids of uint16 \[3, 1\]"),
        (np.zeros(3, np.uint16), np.array([0, 3], "i8"), r"offsets of int64 \[2\]"),
        (np.zeros(0, np.uint16), np.array([], "u8"), r"offsets of uint64 \[0\]"),
        (np.zeros(3, np.uint16), np.array([0, 4], "u8"), "offsets from 0 to 4, not from 0 to 3"),
        (np.zeros(3, np.uint16), np.array([1, 3], "u8"), "offsets from 1 to 3, not from 0 to 3"),
        (np.zeros(3, np.uint16), np.array([0, 2, 1, 3], "u8"), "below the one before it"),
    ],
)
def test_a_shard_whose_columns_disagree_is_refused(
    tmp_path: Path, export: Export, values: NDArray[Any], offsets: NDArray[Any], said: str
) -> None:
    with pytest.raises(FormatError, match=f"shard 1: .*{said}"):
        export([part([1]), (values, offsets)], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("export", "name"),
    [
        (to_nanogpt, "train.bin"),
        (to_megatron, "corpus.v1.bin"),
        (to_megatron, "corpus.v1.idx"),
        (to_llmc, "train"),
    ],
)
def test_what_is_there_is_never_replaced(tmp_path: Path, export: Export, name: str) -> None:
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(OutputError, match=f"{name}: already there"):
        export([part([1, 2])], tmp_path)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [(name, b"mine")]


@every_export
def test_what_a_killed_process_of_the_same_number_left_is_no_hindrance(
    tmp_path: Path, export: Export
) -> None:
    for name in ("train.bin", "corpus.v1.bin", "corpus.v1.idx"):
        (tmp_path / f"tmp-{os.getpid()}-{name}").write_bytes(b"left" * 1000)
    (tmp_path / f"tmp-{os.getpid()}-train").mkdir()
    (tmp_path / f"tmp-{os.getpid()}-train" / "train_000009.bin").write_bytes(b"left")
    (tmp_path / "clean").mkdir()
    found = export([part([1, 2, 3, 4])], tmp_path)
    expected = export([part([1, 2, 3, 4])], tmp_path / "clean")
    for path, clean in zip(found.files, expected.files, strict=True):
        assert path.read_bytes() == clean.read_bytes()
    assert len(list((tmp_path / "train").glob("*"))) == len(
        list((tmp_path / "clean/train").glob("*"))
    )


def test_data_whose_index_cannot_be_named_is_taken_back(tmp_path: Path) -> None:
    def parts() -> Iterator[Part]:
        yield part([1, 2])
        (tmp_path / "a.idx").mkdir()

    with pytest.raises(OutputError, match="cannot write"):
        export_megatron(parts(), tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a.idx"]


@every_export
def test_shards_that_cannot_be_read_leave_nothing_and_keep_their_error(
    tmp_path: Path, export: Callable[[Iterator[Part], Path], Exported]
) -> None:
    def parts() -> Iterator[Part]:
        yield part([1, 2, 3, 4])
        raise PermissionError(13, "no", "shard")

    with pytest.raises(PermissionError, match="shard"):
        export(parts(), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("export", "nbytes"),
    [
        *((to_nanogpt, nbytes) for nbytes in (0, 4096, 1_200_005)),
        *((to_megatron, nbytes) for nbytes in (0, 33, 41, 65, 4096, 1_200_005)),
        *((to_llmc, nbytes) for nbytes in (0, 1023, 1029)),
    ],
)
def test_a_full_disk_is_reported_and_leaves_nothing(
    tmp_path: Path, export: Export, nbytes: int
) -> None:
    ids = np.ones(600_000, np.uint16)
    parts = [part([3, 2, 1]), (ids, np.array([0, 600_000], "u8"))]
    refused = pytest.raises(OutputError, match=r"cannot write: File too large \(.* bytes are free")
    with limited_files(nbytes), refused:
        export(parts, tmp_path)
    assert list(tmp_path.iterdir()) == []


KILLED = """
import sys
from pathlib import Path
from tests.crash.bomb import KILLED, arm, in_child
from tests.unit.preprocess.tokens.test_files import part, to_llmc, to_megatron, to_nanogpt
out, export = Path(sys.argv[1]), globals()[sys.argv[2]]
parts = [part([1, 2], []), part([3, 4, 5])]
def stopped():
    arm(fatal)
    export(parts, out / str(fatal))
for fatal in range(1, 99):
    code = in_child(stopped)
    if code == 0:
        break
    assert code == KILLED, code
print(fatal)
"""


@pytest.mark.parametrize(
    ("export", "last"),
    [(to_nanogpt, "train.bin"), (to_megatron, "corpus.v1.idx"), (to_llmc, "train")],
)
def test_an_export_killed_anywhere_leaves_it_whole_or_absent(
    tmp_path: Path, export: Export, last: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), export.__name__],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    count = int(ended.stdout)
    assert count > 4
    files = export([part([1, 2], []), part([3, 4, 5])], tmp_path / "whole").files
    names = [path.relative_to(tmp_path / "whole") for path in files]
    expected = [path.read_bytes() for path in files]
    folders = [tmp_path / str(fatal) for fatal in range(1, count + 1)]
    seen = [folder for folder in folders if (folder / last).exists()]
    assert folders[0] not in seen
    assert folders[-1] in seen
    for folder in seen:
        assert [(folder / name).read_bytes() for name in names] == expected


@pytest.mark.filterwarnings("ignore")  # of its import, about packages for GPUs
def test_megatrons_own_reader_finds_every_document(tmp_path: Path) -> None:
    indexed = pytest.importorskip("megatron.core.datasets.indexed_dataset")
    documents = [[1, 50_000, 3], [], [4], [5, 6], []]
    for dtype in ("uint16", "uint32"):
        export_megatron([part(*documents, dtype=dtype)], tmp_path / dtype)
        found = indexed.IndexedDataset(str(tmp_path / dtype))
        assert [found[i].tolist() for i in range(len(found))] == documents
        assert found.document_indices.tolist() == [0, 1, 2, 3, 4, 5]
