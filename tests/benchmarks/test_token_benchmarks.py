"""Tiny versions of the benchmarks for tokens: they work, and print what they found."""

import json
from pathlib import Path

from tests.benchmarks import token_exactness, token_rate
from tests.benchmarks.rounds import report, show
from tests.tokenizers_made import make_bpe


def write_texts(path: Path) -> Path:
    texts = [f"document {number} of some words, 你好 <|endoftext|>" * 9 for number in range(60)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def test_token_rate_measures_every_contender(tmp_path: Path) -> None:
    text = write_texts(tmp_path / "text.jsonl")
    setting = token_rate.Setting(text=text, tokenizer=make_bpe(tmp_path / "made"), rounds=2)
    runs, nbytes, engine = token_rate.measure(setting, tmp_path)
    assert nbytes > 10_000
    show(report(engine, runs, count=1, unit="runs", reference="run from JSONL"))


def test_token_exactness_compares_every_document(tmp_path: Path) -> None:
    text = write_texts(tmp_path / "text.jsonl")
    found = token_exactness.compare(text, make_bpe(tmp_path / "made"), tmp_path / "out")
    assert found[:2] == (60, 0)
