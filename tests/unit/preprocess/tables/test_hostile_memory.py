"""Small files that say that they hold much: they are refused, or read in little memory."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253 - a test may load what it compares with
import pytest

from preprocess.tables.listing import list_tables
from preprocess.tables.options import TableOptions
from preprocess.tables.parts import Reading
from preprocess.tables.scan import parse_hash
from tests.command_peak import peak_of
from tests.tokenizers_made import make_bpe

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


def test_long_lists_that_take_few_bytes_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """A block of rows was what has so many bytes in the file: 2.2 GB for a file of 2 kB."""
    values = 20 * WIDE
    starts = pa.array(np.arange(0, values + 1, 2_500), pa.int64())
    lists = pa.LargeListArray.from_arrays(starts, pa.array(np.zeros(values, np.int8)))
    table = pa.table({"y": np.arange(len(lists)) % 2, "x": lists})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    peak = peak_of("table", tmp_path / "a.parquet", tmp_path / "out", "--target", "y")
    assert peak.code == 0, peak.said
    assert peak.nbytes < ROOM + 200_000_000


@pytest.mark.parametrize("command", ["table", "tokens"])
def test_what_texts_and_lists_hold_is_counted_before_it_is_read(
    command: str, tmp_path: Path
) -> None:
    """One list, or one text, is in memory whole: --max-item-bytes says how much may be."""
    column: pa.Array = pa.array(["z" * (100 * WIDE)])
    if command == "table":
        values = pa.array(np.zeros(25 * WIDE, np.int32))
        column = pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": column}), path, compression="zstd", use_dictionary=False)
    words = ["--max-item-bytes", "50MB"]
    if command == "tokens":
        make_bpe(tmp_path / "tokenizer")
        words += ["--tokenizer", str(tmp_path / "tokenizer")]
    peak = peak_of(command, path, tmp_path / "out", *words)
    assert peak.code == 1
    said = r"a\.parquet: its texts and lists hold [\d,]+ bytes or more, files may have 50,000,000;"
    assert re.search(said, peak.said), peak.said
    assert peak.nbytes < ROOM - 100_000_000


def test_another_limit_for_files_reads_them_again(tmp_path: Path) -> None:
    """What a run before had parsed was taken, with the files that are over the limit."""
    (tmp_path / "a.csv").write_text("x\n1\n")
    listing = list_tables(tmp_path / "a.csv", TableOptions())
    identities = [
        parse_hash(listing, Reading(TableOptions(max_item_nbytes=most))) for most in (None, 3)
    ]
    assert identities[0] != identities[1]
