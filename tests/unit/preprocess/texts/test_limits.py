"""Documents that are too long are refused by name, and everything around them is kept."""

import gzip
import json
from pathlib import Path

import pytest

from preprocess.errors import SampleError
from preprocess.texts.read import TextOptions, list_texts, read_documents

LONG = 9 << 20
"""Longer than two blocks of reading."""


def read(path: Path, options: TextOptions) -> tuple[list[str], dict[str, str], list[int]]:
    texts: list[str] = []
    errors: dict[str, str] = {}
    places: list[int] = []
    listing = list_texts(path, options)
    for item in listing.splits["train"]:
        for documents in read_documents(listing.root, item, options):
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
