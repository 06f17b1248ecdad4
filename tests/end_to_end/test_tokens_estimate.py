"""What a dry run of tokens foretells, beside what the run then writes."""

import gzip
import json
import os
import random
from pathlib import Path

import pyarrow as pa  # noqa: TID253 - a test may write what it reads
import pyarrow.parquet as pq  # noqa: TID253 - likewise
import pytest

from tests.token_commands import call, prepare
from tests.tokenizers_made import make_bpe

WORDS = [
    "def",
    "return",
    "the",
    "of",
    "a",
    "value",
    "(self):",
    "index",
    "+",
    "1,",
    "x",
    "==",
    "[0]",
]


def made_texts(count: int) -> list[str]:
    """Return texts of many lengths; some are of letters that the tokenizer has hardly seen."""
    chance = random.Random(7)
    texts = []
    for number in range(count):
        words = chance.choices(WORDS, k=chance.randrange(5, 300))
        texts.append(" ".join(words) if number % 5 else "ж".join(words))
    return texts


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bpe(tmp_path_factory.mktemp("made") / "bpe")


def write(folder: Path, form: str) -> Path:
    texts = made_texts(600)
    lines = "".join(
        json.dumps({"text": text, "page": f"https://a.b/{number}"}) + "\n"
        for number, text in enumerate(texts)
    )
    path = folder / f"in.{form}"
    if form == "txt":
        path = folder / "texts"
        path.mkdir()
        for number, text in enumerate(texts[:100]):
            (path / f"{number:04d}.txt").write_text(text)
    elif form == "jsonl.gz":
        path.write_bytes(gzip.compress(lines.encode()))
    elif form == "parquet":
        pq.write_table(pa.table({"text": texts, "n": range(len(texts))}), path)
    else:
        path.write_text(lines)
    return path


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("jsonl", ()),
        ("jsonl", ("--metadata-keys", "page")),
        ("jsonl", ("--layout", "fixed", "--length", "64")),
        ("jsonl", ("--layout", "fixed", "--length", "64", "--stride", "8")),
        ("jsonl", ("--layout", "packed", "--length", "256")),
        ("jsonl", ("--validation", "0.3")),
        ("jsonl.gz", ()),
        ("parquet", ()),
        ("txt", ()),
    ],
)
def test_a_dry_run_foretells_the_bytes_of_tokens_within_a_sixth(
    tmp_path: Path, bpe: Path, form: str, words: tuple[str, ...]
) -> None:
    source, out = write(tmp_path, form), tmp_path / "out"
    planned = json.loads(prepare(source, out, bpe, "--dry-run", "--json", *words).stdout)
    made = json.loads(prepare(source, out, bpe, "--json", *words).stdout)
    assert made["nbytes"] == pytest.approx(planned["nbytes"], rel=1 / 6)


def test_a_dry_run_says_that_it_is_an_estimate(tmp_path: Path, bpe: Path) -> None:
    shown = prepare(write(tmp_path, "jsonl"), tmp_path / "out", bpe, "--dry-run").stdout
    assert "to be written: about " in shown


def rows_of(form: str, texts: list[str]) -> bytes:
    """Return a file with some texts, and 500 bytes beside each."""
    beside = "y" * 500
    if form == "csv":
        return "".join(f"{row}\n" for row in ["text,x", *(f"{t},{beside}" for t in texts)]).encode()
    if form == "jsonl":
        records = ({"text": text, "x": beside} for text in texts)
        return "".join(json.dumps(record) + "\n" for record in records).encode()
    table = pa.table({"text": texts, "x": [beside] * len(texts)})
    sink = pa.BufferOutputStream()
    if form == "parquet":
        pq.write_table(table, sink)
    else:
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table, max_chunksize=1000)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow"])
def test_few_texts_beside_other_columns_are_not_taken_for_all_of_a_file(
    tmp_path: Path, bpe: Path, form: str
) -> None:
    texts = ["" if number % 1000 else "def value" for number in range(12_000)]
    source, out = tmp_path / f"in.{form}", tmp_path / "out"
    source.write_bytes(rows_of(form, texts))
    planned = json.loads(prepare(source, out, bpe, "--dry-run", "--json").stdout)
    made = json.loads(prepare(source, out, bpe, "--json").stdout)
    assert made["nbytes"] / 2 < planned["nbytes"] < made["nbytes"] * 2


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow"])
def test_a_file_that_begins_with_empty_texts_is_prepared(
    tmp_path: Path, bpe: Path, form: str
) -> None:
    source = tmp_path / f"in.{form}"
    source.write_bytes(rows_of(form, [""] * 1000 + ["def value"]))
    made = json.loads(prepare(source, tmp_path / "out", bpe, "--json").stdout)
    assert made["nbytes"]


def test_records_of_which_nearly_none_is_good_do_not_raise_the_estimate(
    tmp_path: Path, bpe: Path
) -> None:
    source = tmp_path / "in.jsonl"
    good = json.dumps({"text": "def value"}) + "\n"
    source.write_text(good * 2 + '{"other": 1}\n' * 400_000)
    planned = json.loads(prepare(source, tmp_path / "out", bpe, "--dry-run", "--json").stdout)
    assert planned["nbytes"] < 10_000


def test_a_dry_run_does_not_read_a_refused_file_to_its_end(
    tmp_path: Path, bpe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "in.csv"
    source.write_bytes(b"no,text\n" + b"def,value\n" * 600_000)
    read: list[int] = []
    whole = os.pread

    def pread(descriptor: int, nbytes: int, offset: int) -> bytes:
        read.append(nbytes)
        return whole(descriptor, nbytes, offset)

    monkeypatch.setattr(os, "pread", pread)
    prepare(source, tmp_path / "out", bpe, "--dry-run", "--text-key", "body")
    assert not read
    prepare(source, tmp_path / "out", bpe, "--text-key", "body")
    assert read


def test_the_tokenizer_that_is_copied_counts_beside_the_shards(
    bpe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "a.txt").write_text("a short text")
    words = ("tokens", source, out, "--tokenizer", bpe, "--engine", "transformers")
    planned = json.loads(call(*words, "--dry-run", "--json").stdout)
    beside = planned["nbytes_beside"]

    # Room for the shards, and for half of the tokenizer.
    free = planned["nbytes"] * 101 // 100 + 1_000_000 + beside // 2
    with monkeypatch.context() as patch:
        patch.setattr("preprocess.room.free_nbytes", lambda _: free)
        for more in (("--dry-run",), ()):
            refused = call(*words, *more)
            assert refused.exit_code == 1
            assert "to be written" in refused.stderr
    assert call(*words).exit_code == 0
    assert beside == sum(path.stat().st_size for path in (out / "tokenizer").iterdir())
