"""The pipeline for tables: properties of characters, and a score far above the largest class."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_small_network_learns_the_categories_of_characters(tmp_path: Path) -> None:
    script = ROOT / "pipelines" / "tables_mlp.py"
    command = [sys.executable, script, tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.fullmatch(
        r"accuracy ([0-9.]+), of the largest class ([0-9.]+)", done.stdout.splitlines()[-1]
    )
    assert found is not None
    accuracy, largest = map(float, found.groups())
    assert largest < 0.6
    assert accuracy > largest + 0.25
