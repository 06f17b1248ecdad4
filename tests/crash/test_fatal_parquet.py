"""Parquet that ends the process which asks what a column of it is: named by the next run."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest

from tests.crash.children import ROOT, SECONDS
from tests.tokenizers_made import make_bpe

_HISTOGRAMS = b"\x19\x06\x19\x26"
"""In Thrift's compact form: no counts of repetition levels, and two of definition levels."""


def write_source(folder: Path) -> None:
    """Write a good file and one whose two histograms have changed places.

    Source:
        parquet.thrift, SizeStatistics: a column that repeats nothing has no counts of that.
    """
    folder.mkdir()
    rows = [f"a text {n}" for n in range(50)]
    pq.write_table(pa.table({"text": [*rows, None]}), folder / "good.parquet")
    data = (folder / "good.parquet").read_bytes()
    at = data.rindex(_HISTOGRAMS)
    changed = data[at + 2 : at + 6] + data[at : at + 2]
    (folder / "bad.parquet").write_bytes(data[:at] + changed + data[at + 6 :])


@pytest.mark.parametrize("kind", ["tokens", "table"])
def test_the_run_dies_once_and_the_next_one_names_the_file(kind: str, tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    write_source(source)
    words = [kind, source, out]
    if kind == "tokens":
        words += ["--tokenizer", make_bpe(tmp_path / "bpe"), "--engine", "transformers"]
        looks = [["--dry-run"]]  # that of a table reads all of it
    else:
        looks = []
    codes = []
    for more in (*looks, [], []):
        command = [sys.executable, "-m", "preprocess.cli", *map(str, words), *more]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=SECONDS, check=False)
        codes.append(done.returncode)
    assert codes == [*(0 for _ in looks), -signal.SIGABRT, 3]
    lines = map(json.loads, (out / "skipped.jsonl").read_text().splitlines())
    assert next(lines) == {
        "key": "bad.parquet",
        "reason": "ended the process that prepared it (SIGABRT(-6))",
    }
