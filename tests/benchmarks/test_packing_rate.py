"""The packing benchmark works: a tiny run that prints its figures and never judges a time."""

import pytest

from tests.benchmarks import packing_rate


def test_packing_rate_prints_seconds_and_fill(capsys: pytest.CaptureFixture[str]) -> None:
    packing_rate.main(["--count", "500", "--capacities", "256", "--rounds", "1"])
    shown = capsys.readouterr().out
    assert "500 documents into rows of 256" in shown
    assert "fill of best_fit: 0.9" in shown


def test_packing_rate_runs_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        packing_rate.main(["--help"])
    assert "usage" in capsys.readouterr().out
