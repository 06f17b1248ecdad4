"""Parsed tables in files: whole, in the order of the input, and used again only if they are."""

import gc
import os
import tempfile
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.format.crc32c import extend
from preprocess.errors import OutputError, SampleError, SourceError
from preprocess.tables.block import Block, Evidence
from preprocess.tables.block_sink import BlockSink
from preprocess.tables.gathered import Load, Part
from preprocess.tables.listing import list_tables
from preprocess.tables.options import TableOptions
from preprocess.tables.parse import parse_block
from preprocess.tables.parts import Reading
from preprocess.tables.raw_block import RawBlock
from preprocess.tables.scan import spill, spill_parts
from preprocess.tables.spill import Origin, open_block, write_block
from preprocess.tables.work import SPILL, claim_work, hold_work, work_folder
from tests.waiting import SECONDS


def make_block(key: str, first: int, values: list[str | None], **more: list[int]) -> Block:
    table = pa.table(
        {
            "text": pa.array(values, pa.large_string()).dictionary_encode(),
            **{name: pa.array(column) for name, column in more.items()},
        }
    )
    evidence = {
        "text": Evidence(
            count=len(values), missing=values.count(None), kinds=frozenset({"string"})
        ),
        **{
            name: Evidence(
                count=len(column),
                missing=0,
                kinds=frozenset({"integer"}),
                minimum=min(column),
                maximum=max(column),
            )
            for name, column in more.items()
        },
    }
    rows = np.arange(first, first + len(values))
    errors = (SampleError(f"{key}:{first + 100}", "bad"),)
    return Block(key, table, rows, evidence, errors)


def loads(*blocks: Block, error: SampleError | None = None) -> Iterator[Load]:
    for block in blocks:
        yield lambda block=block: block  # type: ignore[misc]
    if error is not None:
        raise error


def stop_with_a_block(out: Path, *, dry_run: bool, parsed: bool = True) -> None:
    with hold_work(out, dry_run=dry_run) as work:
        (work.folder / "00000000.arrow").write_bytes(b"x")
        if parsed:
            (work.folder / SPILL).write_bytes(b"{}")
        raise KeyboardInterrupt


def test_blocks_are_numbered_in_the_order_of_the_input_whichever_is_made_first(
    tmp_path: Path,
) -> None:
    later_is_made = threading.Event()

    def first() -> Block:
        assert later_is_made.wait(SECONDS)
        return make_block("a.csv", 2, ["x", None])

    def second() -> Block:
        later_is_made.set()
        return make_block("a.csv", 4, ["y"])

    part = Part(key="a.csv", split="train", loads=iter([first, second]))

    found = spill_parts([part], tmp_path, 2, "run")

    assert [(block.index, block.count) for block in found.blocks] == [(0, 2), (1, 1)]
    assert found.evidence["text"].count == 3
    assert [error.key for error in found.errors] == ["a.csv:102", "a.csv:104"]
    opened = open_block(found.blocks[0].path)
    assert opened.key == "a.csv"
    assert opened.rows.tolist() == [2, 3]
    assert opened.table.column("text").to_pylist() == ["x", None]
    # Places in dictionaries, and whole numbers, are of the narrowest type in the file.
    assert opened.table.schema.field("text").type == pa.dictionary(pa.int8(), pa.large_string())


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([-128, None, 127], "int8"),
        ([-129, 0], "int16"),
        ([32_768], "int32"),
        ([-(1 << 31), (1 << 31) - 1], "int32"),
        ([1 << 31, None], "int64"),
        ([None, None], "int64"),
    ],
)
def test_whole_numbers_are_spilled_in_the_narrowest_type_that_holds_them(
    values: list[int | None], kind: str, tmp_path: Path
) -> None:
    block = parse_block(
        RawBlock(
            key="a.parquet", kind="table", table=pa.table({"n": pa.array(values, pa.int64())})
        ),
        TableOptions(),
    )
    written = write_block(block, tmp_path, Origin(0, "a.parquet", "train"))
    column = open_block(written.path).table.column("n")
    assert str(column.type) == kind
    assert column.to_pylist() == values


@pytest.mark.parametrize(
    ("count", "kind"), [(128, pa.int8()), (129, pa.int16()), (32_769, pa.int32())]
)
def test_places_of_texts_are_spilled_in_the_narrowest_type_that_holds_them(
    count: int, kind: pa.DataType, tmp_path: Path
) -> None:
    texts = [None, *map(str, range(count))]
    table = pa.table({"text": pa.array(texts, pa.large_string())})
    block = parse_block(RawBlock(key="a.parquet", kind="table", table=table), TableOptions())
    written = write_block(block, tmp_path, Origin(0, "a.parquet", "train"))
    column = open_block(written.path).table.column("text")
    assert column.type == pa.dictionary(kind, pa.large_string())
    assert column.to_pylist() == texts


def test_of_a_file_that_is_refused_in_the_middle_nothing_stays(tmp_path: Path) -> None:
    bad = loads(make_block("bad.csv", 2, ["x"]), error=SampleError("bad.csv", "damaged"))
    parts = [
        Part(key="a.csv", split="train", loads=loads(make_block("a.csv", 2, ["y"]))),
        Part(key="bad.csv", split="train", loads=bad),
    ]

    found = spill_parts(parts, tmp_path, 2, "run")

    assert [block.key for block in found.blocks] == ["a.csv"]
    assert [str(error) for error in found.errors] == ["a.csv:102: bad", "bad.csv: damaged"]
    assert found.evidence["text"].count == 1
    assert sorted(os.listdir(tmp_path)) == ["00000000.arrow", "00000000.skipped"]


def test_files_with_other_columns_are_refused_by_name(tmp_path: Path) -> None:
    parts = [
        Part(key="a.csv", split="train", loads=loads(make_block("a.csv", 2, ["y"], n=[1]))),
        Part(key="b.csv", split="train", loads=loads(make_block("b.csv", 2, ["y"], m=[1]))),
    ]

    with pytest.raises(SourceError, match=r"b.csv: other columns than a.csv: lacks 'n'.*'m'"):
        spill_parts(parts, tmp_path, 1, "run")


def test_a_column_that_some_records_do_not_name_is_missing_there(tmp_path: Path) -> None:
    blocks = (make_block("a.jsonl", 1, ["x"]), make_block("a.jsonl", 2, ["y"], n=[5]))

    part = Part(key="a.jsonl", split="train", loads=loads(*blocks))
    found = spill_parts([part], tmp_path, 1, "run")

    assert (found.evidence["n"].count, found.evidence["n"].missing) == (2, 1)
    assert found.evidence["n"].minimum == 5


def test_a_parsed_table_is_used_again_only_if_all_of_it_is_whole(tmp_path: Path) -> None:
    source, folder = tmp_path / "a.csv", tmp_path / "work"
    folder.mkdir()
    source.write_text("name,n\nx,1\ny,2\n\nz,\n")
    options = TableOptions()
    listing = list_tables(source, options)
    cleared: list[int] = []

    def clear() -> None:
        cleared.append(1)

    first = spill(listing, Reading(options), folder, 1, clear)
    again = spill(listing, Reading(options), folder, 2, clear)
    assert again == first
    assert len(cleared) == 1
    spill(listing, Reading(TableOptions(null_values=("x",))), folder, 1, clear)
    assert len(cleared) == 2
    spill(listing, Reading(options), folder, 1, clear)
    data = bytearray(first.blocks[0].path.read_bytes())
    data[-20] ^= 1
    first.blocks[0].path.write_bytes(data)
    assert spill(listing, Reading(options), folder, 1, clear) == first
    assert len(cleared) == 4


def test_decimals_and_infinities_of_a_parsed_table_are_known_again(tmp_path: Path) -> None:
    table = pa.table(
        {
            "d": pa.array([Decimal("1.50"), Decimal("-99999999999999999999.25")]),
            "f": pa.array([float("inf"), 0.1]),
            "l": pa.array([[1], [2, 3]]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    listing = list_tables(tmp_path / "a.parquet", TableOptions())
    cleared: list[int] = []

    first = spill(listing, Reading(TableOptions()), tmp_path, 1, lambda: cleared.append(1))
    again = spill(listing, Reading(TableOptions()), tmp_path, 1, lambda: cleared.append(1))

    assert again == first
    assert len(cleared) == 1
    assert first.evidence["d"].minimum == Decimal("-99999999999999999999.25")


def test_the_folder_between_the_steps_is_one_runs_and_goes_with_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    folder = work_folder(out)
    with hold_work(out, dry_run=False) as work:
        (folder / "00000000.arrow").write_bytes(b"x")
        with pytest.raises(OutputError, match="another prep run"):
            claim_work(folder)
        assert work.folder == folder
    assert not folder.exists()

    with pytest.raises(KeyboardInterrupt):
        stop_with_a_block(out, dry_run=False)
    assert (folder / "00000000.arrow").exists()

    (folder / "mine.txt").write_text("x")
    with pytest.raises(OutputError, match=r"holds 'mine.txt', which prep did not write"):
        claim_work(folder)


def test_blocks_of_a_table_that_was_not_parsed_to_its_end_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        stop_with_a_block(tmp_path / "out", dry_run=False, parsed=False)
    assert os.listdir(tmp_path) == []


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "00000000.arrow").write_bytes(b"x")
    work_folder(tmp_path / "out").symlink_to(other)

    with pytest.raises(OutputError, match="a link"):
        claim_work(work_folder(tmp_path / "out"))

    assert os.listdir(other) == ["00000000.arrow"]


def test_a_dry_run_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        stop_with_a_block(tmp_path / "out", dry_run=True)
    assert os.listdir(tmp_path) == []


@given(st.lists(st.sampled_from([0, 1, 100, (1 << 20) - 1, 1 << 20, (1 << 20) + 7]), max_size=6))
def test_pieces_of_a_block_are_written_in_order_whatever_their_size(sizes: list[int]) -> None:
    pieces = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    with tempfile.TemporaryFile() as file:
        sink = BlockSink(file.fileno())
        with sink.opened() as stream:
            for piece in pieces:
                stream.write(piece)
        file.seek(0)
        assert file.read() == b"".join(pieces)
    assert (sink.nbytes, sink.crc32c) == (sum(sizes), extend(0, b"".join(pieces)))


def test_after_a_failure_nothing_is_written_to_what_has_the_descriptor_by_then() -> None:
    with tempfile.TemporaryFile() as other:
        reader, writer = os.pipe()
        os.close(reader)
        sink = BlockSink(writer)
        with pytest.raises(BrokenPipeError), sink.opened() as stream:
            stream.write(bytes(100))
        os.dup2(other.fileno(), writer)
        del stream
        gc.collect()
        os.close(writer)
        assert os.fstat(other.fileno()).st_size == 0
