"""Small files that say that they hold much: they are refused, or read in little memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253 - a test may load what it compares with
import pytest

from tests.command_peak import peak_of

ROOM = 400_000_000
"""Bytes that a command may take: 150 MB are its packages."""

ROWS = 20_000
WIDE = 1_000_000


@pytest.mark.parametrize("inside", [False, True])
def test_a_wide_column_that_no_table_holds_is_refused_in_little_memory(
    inside: bool, tmp_path: Path
) -> None:
    """Nulls of its type had its width: 20 GB for a file of 1 kB."""
    width = 4 * WIDE if inside else WIDE  # few rows, so that Arrow can write them
    rows = 100 if inside else 300
    column = pa.nulls(rows, pa.binary(width))
    if inside:
        column = pa.StructArray.from_arrays([column, pa.array(range(rows))], ["wide", "narrow"])
    table = pa.table({"y": np.arange(rows) % 2, "x": column})
    pq.write_table(table, tmp_path / "a.parquet", store_schema=False)
    del table, column
    name = "x.wide" if inside else "x"
    peak = peak_of("table", tmp_path / "a.parquet", tmp_path / "out", "--target", "y")
    assert peak.code == 1
    assert f"column '{name}': holds fixed_size_binary[{width}], which no" in peak.said
    assert peak.nbytes < ROOM - 100_000_000
