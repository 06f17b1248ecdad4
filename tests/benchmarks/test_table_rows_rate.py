"""The benchmark works: a tiny run that prints its ratios and never judges a time."""

import subprocess
import sys
from pathlib import Path

from tests.benchmarks import table_rows_rate
from tests.benchmarks.rounds import report, show


def test_table_rows_rate_measures_every_contender(tmp_path: Path) -> None:
    python = Path(sys.executable)
    runs, rows = table_rows_rate.measure(
        tmp_path, count=1000, batch_size=64, rounds=1, python=python
    )
    assert len(runs) >= 12
    assert rows == 960
    for limit in (table_rows_rate.LIMIT, table_rows_rate.LIMIT_WRITTEN):
        show(report("tiny", runs, count=rows, unit="rows", reference=limit))


def test_table_rows_rate_runs_from_the_command_line() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.table_rows_rate", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "usage" in shown
