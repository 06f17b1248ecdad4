"""Datasets from strangers: some thousands of mutated files; `python -m tests.fuzz` tries more."""

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from loaders import FormatError, open_table, open_tokens
from loaders.format.files import crc32c_digits, to_json
from preprocess.errors import OutputError
from preprocess.skipped import read_skipped_lines
from tests.fuzz import fuzz
from tests.small_datasets import Made


def test_mutated_files_are_refused_or_read_and_nothing_else(tmp_path: Path) -> None:
    counted = fuzz(1000, 7, tmp_path)
    assert counted.total() == 1000
    assert counted["FormatError"] > 300
    assert counted["read"] > 50  # mutations that are none, or that mean something else


@pytest.mark.slow
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris has wheels for Linux on x86-64")
def test_files_changed_for_what_they_reach_are_refused_or_read_and_nothing_else(
    tmp_path: Path,
) -> None:
    """The fuzzer of a million inputs counts what runs, keeps what reaches more, and goes on."""
    words = ["--count", "400", "--seed", "3", "--corpus", str(tmp_path), "--kinds", "table"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz_guided", *words],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    covered = [
        int(n) for n in re.findall(r"^#\d+\s+(?:INITED|DONE)\s+cov: (\d+)", done.stderr, re.M)
    ]
    first, last = covered
    assert 400 < first < last


@pytest.mark.parametrize("number", [-1, 1 << 16, 1 << 40, 1 << 70])
@pytest.mark.parametrize("name", ["pad_id", "eos_id"])
def test_an_id_that_the_stored_type_cannot_hold_is_refused(
    name: str, number: int, made: Made, tmp_path: Path
) -> None:
    """Found by the mutations: NumPy's OverflowError came out of a batch."""
    for kind in ("table", "tokens"):
        out = Path(shutil.copytree(made(kind, "tensor")[1], tmp_path / kind))
        manifest = json.loads((out / "manifest.json").read_bytes())
        manifest["recipe"]["tokenizer"].update({"pad_id": None, name: number})
        del manifest["crc32c"]
        manifest["crc32c"] = crc32c_digits(to_json(manifest))
        (out / "manifest.json").write_bytes(to_json(manifest))
        with pytest.raises(FormatError, match=rf"recipe\.tokenizer\.{name} is {number}, not an"):
            open_table(out) if kind == "table" else open_tokens(out).padded(8)


@pytest.mark.parametrize("written", [b"\xff", b"[" * 30, b"9" * 30])
def test_metadata_that_is_no_object_is_refused(written: bytes, made: Made, tmp_path: Path) -> None:
    """Found by mutations of every file of a shard: what decodes JSON raised out of a batch."""
    out = Path(shutil.copytree(made("tokens", "tensor")[1], tmp_path / "out"))
    for path in (out / "train").glob("*.metadata.npy"):
        data = path.read_bytes()
        place = 128  # behind the header
        path.write_bytes(data[:place] + (written * len(data))[: len(data) - place])
    documents = open_tokens(out).documents()
    said = r"out: train: metadata of a document is b.*, expected an object of JSON"
    with pytest.raises(FormatError, match=said):
        documents.__getitems__([0])


def test_a_list_of_what_was_skipped_that_nests_too_deeply_is_refused(tmp_path: Path) -> None:
    """Found by mutations of it: RecursionError, which names no file."""
    path = tmp_path / "skipped.jsonl"
    path.write_bytes(b'{"key":"a","reason":"b"}\n' + b"[" * 100_000)
    with pytest.raises(OutputError, match=r"skipped\.jsonl: the dataset is there, the list"):
        list(read_skipped_lines(path))
