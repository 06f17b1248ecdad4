"""The pipeline for tokens: a tokenizer of its own, shards, and a loss that falls."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_small_gpt_learns_from_the_standard_library(tmp_path: Path) -> None:
    script = ROOT / "pipelines" / "tokens_gpt.py"
    texts = f"{Path(subprocess.__file__).parent}/[a-c]*.py"
    command = [sys.executable, script, texts, tmp_path / "out", "--steps", "31", "--length", "64"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if "loss" in line]
    assert len(losses) == 4
    assert losses[-1] < losses[0] - 1
