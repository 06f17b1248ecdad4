"""The benchmark of decoding works: a tiny run that prints its ratios and never judges a time."""

import subprocess
import sys
from pathlib import Path

from tests.benchmarks import decode_rate
from tests.benchmarks.rounds import report, show


def test_decode_rate_measures_every_way_by_one_and_two_threads(tmp_path: Path) -> None:
    made = decode_rate.prepare(tmp_path, None, 6, 32)
    runs, count = decode_rate.measure(made, batch_size=4, rounds=2)
    assert count == 6
    assert len(runs) == 16
    show(report("tiny", runs, count=count, unit="pictures", reference="raw, Loader"))
    assert len(decode_rate.scaling(runs)) == 9
    assert len(decode_rate.processor_time(made, made, 1)) == 3


def test_it_runs_from_the_command_line() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.decode_rate", "--help"]
    assert "usage" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
