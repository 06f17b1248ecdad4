"""Laws of `prep tokens`: order is the input's, nothing is lost, and how it runs changes nothing."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.format.spec import read_manifest
from preprocess import RunOptions
from preprocess.texts.options import TextOptions
from preprocess.tokens.options import TokenOptions
from preprocess.tokens.prepare import tokens_to_shards
from tests.token_commands import Alone, prepare, read_files, skipped, stored, write_jsonl
from tests.tokenizers_made import make_bpe

BROKEN = [
    b'{"text": "',
    b"[]",
    b'{"text": null}',
    b'{"text": "\\udc00"}',
    b'{"text": "\xff"}',
    b"{} {}",
]
TEXTS = st.text(max_size=12) | st.sampled_from(["", "a b", "<|endoftext|>", "\r\n\u2028\x85"])
RECORDS = st.lists(TEXTS | st.sampled_from(BROKEN), max_size=8)
FILES = st.lists(RECORDS, min_size=1, max_size=4)


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bpe(tmp_path_factory.mktemp("bpe"))


@cache
def alone(folder: Path) -> Alone:
    return Alone(folder)


@contextmanager
def corpus(files: Sequence[Sequence[str | bytes]]) -> Iterator[Path]:
    """Write files of records: texts as JSON, and bytes as they are; the first text is there."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in"
        source.mkdir()
        (source / "00.txt").write_text("first")
        for number, records in enumerate(files, 1):
            lines = [r if isinstance(r, bytes) else encoded(r) for r in records]
            (source / f"{number:02d}.jsonl").write_bytes(b"\n".join(lines))
        yield Path(folder)


def encoded(text: str) -> bytes:
    return json.dumps({"text": text}).encode()


def options_of(bpe: Path, **changes: Any) -> TokenOptions:
    return TokenOptions(tokenizer=str(bpe), engine="transformers", **changes)


@settings(max_examples=25, deadline=None)
@given(
    files=FILES,
    workers=st.integers(1, 3),
    shard_nbytes=st.sampled_from([1, 40, 1 << 20]),
    container=st.sampled_from(["tensor", "zarr"]),
)
def test_every_document_is_stored_in_its_order_or_skipped_by_name(
    bpe: Path, files: Any, workers: int, shard_nbytes: int, container: Any
) -> None:
    with corpus(files) as folder:
        run = RunOptions(workers=workers, shard_nbytes=shard_nbytes, container=container)
        report = tokens_to_shards(folder / "in", folder / "out", options_of(bpe), run)
        expected, refused = ["first"], []
        for number, records in enumerate(files, 1):
            for line, record in enumerate(records, 1):
                if isinstance(record, bytes):
                    refused.append(f"{number:02d}.jsonl:{line}")
                else:
                    expected.append(record)
        found = stored(folder / "out")
        assert [ids for _, ids in found] == [[*alone(bpe).ids(text), 0] for text in expected]
        assert list(skipped(folder / "out")) == refused
        assert report.tallies["documents"] == (len(expected),)
        assert len(found) + len(report.skipped) == 1 + sum(map(len, files))
        assert len({key for key, _ in found}) == len(found)


@settings(max_examples=10, deadline=None)
@given(files=FILES, workers=st.integers(2, 3), layout=st.sampled_from(["stream", "packed"]))
def test_the_number_of_workers_changes_no_byte(
    bpe: Path, files: Any, workers: int, layout: Any
) -> None:
    options = options_of(bpe, layout=layout, length=8 if layout == "packed" else None)
    with corpus(files) as folder:
        made = []
        for number in (1, workers):
            out = folder / f"out{number}"
            tokens_to_shards(
                folder / "in", out, options, RunOptions(workers=number, shard_nbytes=40)
            )
            made.append(read_files(out))
        assert made[0] == made[1]


@settings(max_examples=10, deadline=None)
@given(files=FILES, share=st.sampled_from([0.1, 0.5]), seed=st.integers(0, 9))
def test_splits_share_out_the_documents_in_their_order(
    bpe: Path, files: Any, share: float, seed: int
) -> None:
    options = options_of(bpe, validation=share, test=0.2, split_seed=seed)
    with corpus(files) as folder:
        run = RunOptions(workers=2, shard_nbytes=40)
        tokens_to_shards(folder / "in", folder / "out", options, run)
        tokens_to_shards(folder / "in", folder / "whole", options_of(bpe), run)
        whole = stored(folder / "whole")
        parts = [stored(folder / "out", name) for name in read_manifest(folder / "out").splits]
        assert sorted(sample for part in parts for sample in part) == sorted(whole)
        places = {key: place for place, (key, _) in enumerate(whole)}
        for part in parts:
            order = [places[key] for key, _ in part]
            assert order == sorted(order)
        assert skipped(folder / "out") == skipped(folder / "whole")


@settings(max_examples=10, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=20), cut=st.integers(0, 20))
def test_how_documents_lie_in_files_changes_no_token(bpe: Path, texts: list[str], cut: int) -> None:
    with corpus([texts]) as one, corpus([texts[:cut], texts[cut:]]) as two:
        made = []
        for folder in (one, two):
            tokens_to_shards(folder / "in", folder / "out", options_of(bpe), RunOptions(workers=1))
            made.append([ids for _, ids in stored(folder / "out")])
        assert made[0] == made[1]


def test_processes_and_threads_store_the_same_bytes(tmp_path: Path, bpe: Path) -> None:
    for number in range(4):
        texts = [f"document {number} {n} " * (n % 5) for n in range(30)]
        write_jsonl(tmp_path / f"in/{number}.jsonl", texts)
    (tmp_path / "in/bad.jsonl").write_bytes(b"\n".join(BROKEN))
    made = []
    for backend in ("threading", "loky"):
        words = ["--backend", backend, "--workers", "2", "--shard-size", "400B"]
        result = prepare(tmp_path / "in", tmp_path / backend, bpe, *words)
        assert result.exit_code == 3, result.stderr
        made.append(read_files(tmp_path / backend))
    assert made[0] == made[1]


def test_text_options_alone_make_the_same_dataset_as_the_command(tmp_path: Path, bpe: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"body": "a", "url": 1}\n{"body": "b"}\n')
    text = TextOptions(text_key="body", metadata_keys=("url",))
    options = options_of(bpe, text=text, validation=0.5)
    tokens_to_shards(tmp_path / "in", tmp_path / "one", options)
    words = ["--text-key", "body", "--metadata-keys", "url", "--validation", "0.5"]
    assert prepare(tmp_path / "in", tmp_path / "two", bpe, *words).exit_code == 0
    assert read_files(tmp_path / "one") == read_files(tmp_path / "two")
