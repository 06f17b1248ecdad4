"""The benchmark of `prep table` works: tiny runs that print ratios and never judge a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import table_rate
from tests.benchmarks.rounds import report, show


def test_table_rate_measures_every_contender(tmp_path: Path) -> None:
    setting = table_rate.Setting(count=500, rounds=1, pandas_python=_pretender(tmp_path))
    runs = table_rate.measure(setting, tmp_path)
    assert len(runs) == 7
    assert runs[table_rate.PANDAS] == [2.5]
    show(report("tiny", runs, count=500, unit="rows", reference=table_rate.FROM_CSV))
    assert len(table_rate.shares(runs)) == 5


def _pretender(folder: Path) -> Path:
    """Make a program that takes the place of another Python."""
    program = folder / "python"
    program.write_text("#!/bin/sh\necho 2.5\n")
    program.chmod(0o755)
    return program


def test_a_python_without_pandas_is_refused(tmp_path: Path) -> None:
    setting = table_rate.Setting(count=10, rounds=1, pandas_python=Path("/bin/false"))
    with pytest.raises(RuntimeError, match="exit code 1"):
        table_rate.measure(setting, tmp_path)


def test_both_files_hold_the_same_rows(tmp_path: Path) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    csv, parquet = table_rate.write_inputs(tmp_path, 300)
    expected = pyarrow.parquet.read_table(parquet)
    options = pyarrow.csv.ConvertOptions(
        column_types={field.name: field.type for field in expected.schema}
    )
    assert pyarrow.csv.read_csv(csv, convert_options=options).equals(expected)


def test_peak_memory_of_a_tiny_table_is_measured(tmp_path: Path) -> None:
    csv, _ = table_rate.write_inputs(tmp_path, 100)
    show([f"tiny: {table_rate.peak_memory(csv, tmp_path / 'out', 1) / 1e6:.0f} MB"])


def test_table_rate_runs_from_the_command_line() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.table_rate", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "--pandas-python" in shown
