"""The benchmark works: a tiny run that prints its ratios and never judges a time."""

import subprocess
import sys
from pathlib import Path

from tests.benchmarks import blocks_rate
from tests.benchmarks.rounds import report, show


def test_blocks_rate_measures_every_contender(tmp_path: Path) -> None:
    store, single = blocks_rate.prepare(tmp_path, 10_000, 3)
    runs, tokens = blocks_rate.measure(store, single, batch_size=4, block_size=64, rounds=2)
    assert len(runs) == 5
    assert tokens == 156 // 4 * 4 * 64
    show(report("tiny", runs, count=tokens, unit="tokens", reference="loaders.Loader"))


def test_blocks_rate_runs_from_the_command_line() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.blocks_rate", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "usage" in shown
