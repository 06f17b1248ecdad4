"""A table whose parsed rows find no room: one error that names the folder, and nothing left."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest

from tests.crash.children import ROOT

_SCRIPT = """
import sys
from preprocess import OutputError, table_to_shards
from tests.file_limit import limit_files
limit_files(int(sys.argv[1]))
try:
    table_to_shards(sys.argv[2], sys.argv[3])
except OutputError as error:
    print(error)
"""


@pytest.mark.parametrize("nbytes", [4096, 5000, 1 << 20, (1 << 20) + 4096])
def test_a_block_that_is_cut_short_is_one_error(nbytes: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {f"x{n}": rng.integers(0, 1 << 40, 40_000) for n in range(8)}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    words = [str(nbytes), str(tmp_path / "t.parquet"), str(tmp_path / "out")]
    command = [sys.executable, "-c", _SCRIPT, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]
