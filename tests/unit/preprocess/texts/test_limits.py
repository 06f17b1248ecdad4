"""Documents and files that are too long are refused by name, all around them is kept."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253 - a test may load what it compares with
import pytest
import zstandard  # noqa: TID253 - a test may load what it compares with

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.texts.read import TextOptions, list_texts, read_documents

LONG = 9 << 20
"""Longer than two blocks of reading."""


def read(path: Path, options: TextOptions) -> tuple[list[str], dict[str, str], list[int]]:
    texts: list[str] = []
    errors: dict[str, str] = {}
    places: list[int] = []
    listing = list_texts(path, options)
    for item in listing.splits["train"]:
        for documents in read_documents(ItemFiles(listing.root), item, options):
            texts += documents.texts.to_pylist()
            places += documents.places.tolist()
            errors |= {error.key: error.reason for error in documents.errors}
    return texts, errors, places


def records(*texts: str) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


@pytest.mark.parametrize("compressed", [False, True])
def test_a_record_that_is_too_long_is_named_by_its_line(compressed: bool, tmp_path: Path) -> None:
    data = records("one", "x" * LONG, "three")
    path = tmp_path / "a.jsonl"
    path.write_bytes(gzip.compress(data, 1) if compressed else data)
    options = TextOptions(max_document_nbytes=1 << 20, metadata_keys=("id",), pair_key="text")

    texts, errors, places = read(path, options)

    assert texts == ["one", "three"]
    assert list(errors) == ["a.jsonl:2"]
    assert "documents may have 1,048,576" in errors["a.jsonl:2"]
    assert places == [0, data.index(b'{"text": "three"')]


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_last_line_that_is_too_long_is_named(end: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n" + "x" * LONG + end)
    options = TextOptions(max_document_nbytes=1 << 20, lines=True)
    texts, errors, _ = read(tmp_path / "a.txt", options)
    assert (texts, list(errors)) == (["one", "two"], ["a.txt:3"])


def test_a_file_that_is_too_long_is_refused_with_what_can_be_done(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * LONG)
    with pytest.raises(SampleError, match=r"9,437,184 bytes, .* raise --max-document") as caught:
        read(tmp_path / "a.txt", TextOptions(max_document_nbytes=1 << 20))
    assert caught.value.key == "a.txt"
    assert read(tmp_path / "a.txt", TextOptions())[0] == ["x" * LONG]


def test_a_limit_must_leave_room_for_something() -> None:
    with pytest.raises(ValueError, match="max_document_nbytes=0"):
        TextOptions(max_document_nbytes=0)


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}
RECORDS = {
    "a.txt": b"one\n" * 40_000,
    "a.jsonl": records(*["one"] * 10_000),
    "a.csv": b"text\n" + b"one\n" * 40_000,
}


@pytest.mark.parametrize("compressed", COMPRESSED)
@pytest.mark.parametrize("name", [*RECORDS, "a.parquet"])
def test_a_file_that_is_or_becomes_too_large_is_refused_by_name(
    name: str, compressed: str, tmp_path: Path
) -> None:
    if name == "a.parquet":
        texts = [str(n) * 9 for n in range(10_000)]
        pq.write_table(pa.table({"text": texts}), tmp_path / name)
        data = (tmp_path / name).read_bytes()
        limit = len("".join(texts)) - 1
        assert len(data) < limit
    else:
        data = RECORDS[name]
        limit = len(data) - 1
    path = tmp_path / f"{name}{compressed}"
    path.write_bytes(COMPRESSED[compressed](data))
    with pytest.raises(SampleError, match=r"bytes.* files may have.*raise --max-item-bytes") as got:
        read(path, TextOptions(max_item_nbytes=limit))
    assert got.value.key == path.name
    whole = read(path, TextOptions())
    assert whole[0]
    assert read(path, TextOptions(max_item_nbytes=limit + 1)) == whole


def test_a_small_file_that_never_stops_to_decompress_is_read_no_further(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    member = gzip.compress(b'{"text": "x"}\n' * 1_000_000, 9)
    path.write_bytes(member * 100)  # 1.4 GB
    with pytest.raises(SampleError, match=r"decompressed from gzip it has more than the 5,000,000"):
        read(path, TextOptions(max_item_nbytes=5_000_000))


def test_a_limit_on_files_changes_what_is_recorded_only_where_it_is_given() -> None:
    assert "max_item_nbytes" not in TextOptions().recorded()
    assert TextOptions(max_item_nbytes=5).recorded()["max_item_nbytes"] == 5
    with pytest.raises(ValueError, match="max_item_nbytes=0"):
        TextOptions(max_item_nbytes=0)
