"""Laws of contents: whatever reads a file, and however, its checksum is that of its own bytes."""

import bz2
import gzip
import json
import lzma
import os
from pathlib import Path
from typing import Any

import pyarrow as pa  # noqa: TID253 - tests may write what they read
import pyarrow.parquet as pq  # noqa: TID253
import pytest
import zstandard  # noqa: TID253
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles, content_of
from preprocess.items import Item
from preprocess.tables.options import TableOptions
from preprocess.tables.read import read_blocks
from preprocess.texts import content as text_bytes
from preprocess.texts import cut as text_cut
from preprocess.texts import lines as text_lines
from preprocess.texts.options import TextOptions
from preprocess.texts.read import list_texts, read_documents
from tests.contents import crc32c

SHARED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def item_of(path: Path, own: tuple[int, int] | None = None) -> Item:
    status = path.stat()
    return Item(path.name, status.st_size, status.st_mtime_ns, own=own)


@SHARED
@given(
    data=st.binary(max_size=3000),
    reads=st.lists(st.tuples(st.none() | st.integers(0, 3000), st.integers(-1, 2000)), max_size=9),
    bounds=st.tuples(st.integers(0, 3000), st.integers(0, 3000)),
    ends=st.sampled_from(["well", "refused", "closed"]),
)
def test_any_reads_in_any_order_give_the_checksum_of_the_items_own_bytes(
    tmp_path: Path, data: bytes, reads: list[Any], bounds: tuple[int, int], ends: str
) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(data)
    first, end = sorted(min(bound, len(data)) for bound in bounds)
    item = item_of(path, (first, end))
    files = ItemFiles(tmp_path)

    def read() -> None:
        with files.open(item) as file:
            for place, nbytes in reads:
                at = file.tell() if place is None else file.seek(place)
                assert file.read(nbytes) == data[at:][: None if nbytes < 0 else nbytes]
            if ends == "refused":
                raise SampleError("a.bin", "no good")
            if ends == "closed":
                file.close()  # as Arrow does

    if ends == "refused":
        with pytest.raises(SampleError, match="no good"):
            read()
    else:
        read()
    expected = crc32c(data[first:end])
    assert files.contents([item]) == [(expected,)]
    assert content_of(tmp_path, item) == expected


COMPRESSED = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@SHARED
@given(data=st.data())
def test_all_kinds_of_texts_are_read_to_the_last_byte(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    lines = data.draw(st.lists(st.text(max_size=30), min_size=1, max_size=40))
    kind = data.draw(st.sampled_from(["jsonl", "txt", "csv", "parquet", "arrow"]))
    path = folder / f"a.{kind}"
    write(path, lines, data.draw(st.integers(1, 9)))
    if kind != "arrow":
        ending = data.draw(st.sampled_from(sorted(COMPRESSED)))
        whole = COMPRESSED[ending](path.read_bytes())
        path.unlink()
        path = folder / f"a.{kind}{ending}"
        path.write_bytes(whole)
    if data.draw(st.booleans()) and path.stat().st_size > 4:  # damaged, and so refused perhaps
        with path.open("r+b") as file:
            file.seek(data.draw(st.integers(0, path.stat().st_size - 1)))
            file.write(b"\xff")
    options = TextOptions(lines=data.draw(st.booleans()))
    with pytest.MonkeyPatch.context() as patch:
        nbytes = data.draw(st.integers(1, 200))
        patch.setattr(text_cut, "RANGE_NBYTES", nbytes)
        for module in (text_bytes, text_lines):
            patch.setattr(module, "BLOCK_NBYTES", data.draw(st.integers(1, 200)))
        listing = list_texts(path, options)
        items = listing.splits["train"]
        for read in (read_texts, read_table):
            files = ItemFiles(listing.root)
            for item in items:
                read(files, item, options)
            check_own(path, list(items), files)


def check_own(path: Path, items: list[Item], files: ItemFiles) -> None:
    """Check that the items of a file have all of it, each what it says."""
    whole = path.read_bytes()
    if any(item.own for item in items):
        ends = [0, *(item.extent[1] for item in items)]
        assert ends == [*(item.extent[0] for item in items), len(whole)]
    own = [whole[slice(*item.extent)] for item in items]
    assert files.contents(items) == [(crc32c(part),) for part in own]


def read_texts(files: ItemFiles, item: Item, options: TextOptions) -> None:
    try:
        for _ in read_documents(files, item, options):
            pass
    except SampleError:
        pass


def read_table(files: ItemFiles, item: Item, options: TextOptions) -> None:
    try:
        for _ in read_blocks(files, item, TableOptions()):
            pass
    except SampleError:
        pass


def write(path: Path, lines: list[str], group: int) -> None:
    """Write texts as a file of the kind that its name says."""
    table = pa.table({"text": lines})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=group)
    elif path.suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=group)
    elif path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps({'text': line})}\n" for line in lines))
    else:
        text = "text\n" if path.suffix == ".csv" else ""
        path.write_text(text + "\n".join(line.replace('"', "") for line in lines))


@SHARED
@given(photo=st.binary(max_size=99), mask=st.binary(max_size=99), again=st.binary(max_size=99))
def test_what_is_read_twice_is_to_be_the_same(
    tmp_path: Path, photo: bytes, mask: bytes, again: bytes
) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(photo)
    item, files = item_of(path), ItemFiles(tmp_path)
    assert files.read(item) == photo
    path.write_bytes(again[: len(photo)].ljust(len(photo)))
    os.utime(path, ns=(item.mtime_ns, item.mtime_ns))
    if path.read_bytes() == photo:
        assert files.read(item) == photo
    else:
        with pytest.raises(SampleError, match="changed while it was prepared: read twice"):
            files.read(item)
