"""What a dry run of tokens foretells, beside what the run then writes."""

import gzip
import json
import random
from pathlib import Path

import pyarrow as pa  # noqa: TID253 - a test may write what it reads
import pyarrow.parquet as pq  # noqa: TID253 - likewise
import pytest

from tests.token_commands import prepare
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
