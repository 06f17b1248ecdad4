"""Datasets from strangers: some thousands of mutated files; `python -m tests.fuzz` tries more."""

from pathlib import Path

from tests.fuzz import fuzz


def test_mutated_files_are_refused_or_read_and_nothing_else(tmp_path: Path) -> None:
    counted = fuzz(1000, 7, tmp_path)
    assert counted.total() == 1000
    assert counted["FormatError"] > 300
    assert counted["read"] > 50  # mutations that are none, or that mean something else
