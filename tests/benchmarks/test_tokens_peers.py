"""The comparison of ways to prepare tokens works: a tiny run of ours, in its own process."""

import sys
from pathlib import Path

import pytest

from tests.benchmarks import tokens_peers
from tests.benchmarks.rounds import report, show
from tests.tokenizers_made import make_bpe


@pytest.mark.slow
def test_our_job_runs_as_a_process_and_says_how_many_tokens_it_wrote(tmp_path: Path) -> None:
    text = tmp_path / "text.jsonl"
    text.write_text('{"text": "the cat"}\n{"text": ""}\n' * 20)
    setting = tokens_peers.Setting(
        text=text,
        tokenizer=make_bpe(tmp_path / "tokenizer"),
        pythons={tokens_peers.OURS: Path(sys.executable)},
        workers=1,
        rounds=1,
    )
    runs, tokens = tokens_peers.measure(setting, tmp_path)
    assert tokens[tokens_peers.OURS] > 40
    show(report("tokens", runs, count=40, unit="documents", reference=tokens_peers.OURS))
