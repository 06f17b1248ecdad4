"""Values that many rows share take no more memory than others, and come out as they went in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253 - a test may load what it compares with
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.tables.options import TableOptions
from preprocess.tables.read import read_blocks
from preprocess.texts import from_arrow, shared_values
from preprocess.texts.documents import Documents
from preprocess.texts.read import TextOptions, list_texts, read_documents

LONG = "x" * 100_000
ROWS = 6_000
BOUND = 280_000_000
"""Bytes of texts at once: far fewer than the 600 MB that the rows stand for."""


def write_arrow(path: Path, table: pa.Table) -> None:
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)


def shared_dictionary(rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([LONG]))


def shared_views(rows: int) -> pa.Array:
    one = pa.array([LONG], pa.string_view())
    _, views, data = one.buffers()
    many = np.tile(np.frombuffer(views, np.int32), rows)
    return pa.Array.from_buffers(pa.string_view(), rows, [None, pa.py_buffer(many.tobytes()), data])


def write_shared(folder: Path, kind: str) -> Path:
    path = folder / f"a.{'parquet' if 'parquet' in kind else 'arrow'}"
    dictionary = shared_dictionary(ROWS)
    if kind == "parquet":
        table = pa.table({"text": dictionary.dictionary_decode()})
        pq.write_table(table, path, store_schema=False)
    elif kind == "parquet groups":  # each of which may be in memory whole
        table = pa.table({"text": dictionary.dictionary_decode()})
        pq.write_table(table, path, row_group_size=ROWS // 6, store_schema=False)
    elif kind == "parquet fixed prefixes":
        fixed = dictionary.dictionary_decode().view(pa.binary()).cast(pa.binary(len(LONG)))
        pq.write_table(
            pa.table({"text": fixed}), path, use_dictionary=False, column_encoding=PREFIXES
        )
    elif kind == "parquet prefixes":
        texts = pa.array([f"{LONG}{row}" for row in range(ROWS)])
        pq.write_table(
            pa.table({"text": texts}), path, use_dictionary=False, column_encoding=PREFIXES
        )
    elif kind == "parquet list":
        starts = pa.array(np.arange(0, ROWS + 1, 2, dtype=np.int32))
        lists = pa.ListArray.from_arrays(starts, dictionary.dictionary_decode())
        pq.write_table(pa.table({"text": lists}), path, store_schema=False)
    elif kind == "arrow list view":
        every = pa.array([0] * ROWS, pa.int32()), pa.array([2] * ROWS, pa.int32())
        lists = pa.ListViewArray.from_arrays(*every, pa.array([LONG, "b"]))
        write_arrow(path, pa.table({"text": lists}))
    elif kind == "arrow list":
        starts = pa.array(np.arange(ROWS + 1, dtype=np.int32))
        lists = pa.ListArray.from_arrays(starts, dictionary)
        write_arrow(path, pa.table({"text": pa.StructArray.from_arrays([lists], ["a"])}))
    else:
        array = dictionary if kind == "arrow dictionary" else shared_views(ROWS)
        write_arrow(path, pa.table({"text": array}))
    assert path.stat().st_size < 6_000_000
    return path


PREFIXES = {"text": "DELTA_BYTE_ARRAY"}
KINDS = [
    *("parquet", "parquet groups", "parquet prefixes", "parquet list"),
    *("arrow dictionary", "arrow view"),
]


def documents_in(path: Path, options: TextOptions) -> Iterator[Documents]:
    listing = list_texts(path, options)
    for item in listing.splits["train"]:
        yield from read_documents(ItemFiles(listing.root), item, options)


AS_JSON = ["parquet fixed prefixes", "arrow list", "arrow list view"]


@pytest.mark.parametrize("kind", [*KINDS, *AS_JSON])
def test_a_long_value_that_all_rows_share_is_read_a_few_rows_at_a_time(
    kind: str, tmp_path: Path
) -> None:
    path = write_shared(tmp_path, kind)
    options = TextOptions(json_values=kind in {"parquet list", *AS_JSON})
    count = 0
    for documents in documents_in(path, options):
        assert documents.texts.nbytes < BOUND
        count += len(documents.texts)
    assert count == (ROWS // 2 if kind == "parquet list" else ROWS)


@pytest.mark.parametrize("kind", KINDS)
def test_tables_read_such_rows_alike(kind: str, tmp_path: Path) -> None:
    path = write_shared(tmp_path, kind)
    listing = list_texts(path, TextOptions())
    count = 0
    for item in listing.splits["train"]:
        for block in read_blocks(ItemFiles(listing.root), item, TableOptions()):
            assert block.table is not None
            column = block.table.column("text")
            held = column.cast(pa.large_string()) if kind == "arrow view" else column
            assert held.nbytes < BOUND
            count += len(column)
    assert count == (ROWS // 2 if kind == "parquet list" else ROWS)


def test_rows_that_take_no_bytes_are_read_some_at_a_time(tmp_path: Path) -> None:
    rows = 300_000
    write_arrow(tmp_path / "a.arrow", pa.table({"text": pa.nulls(rows)}))
    sizes = [len(d.errors) for d in documents_in(tmp_path / "a.arrow", TextOptions())]
    assert sum(sizes) == rows
    assert max(sizes) <= from_arrow.MAX_BATCH_ROWS


def test_short_values_with_common_beginnings_are_read_many_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"https://example.org/{row:07}/{'p' * 800}" for row in range(6_000)]
    table = pa.table({"text": texts * 40})
    pq.write_table(table, path, use_dictionary=False, column_encoding=PREFIXES)
    with path.open("rb") as source, pq.ParquetFile(source) as file:
        assert file.metadata.row_group(0).column(0).encodings == ("RLE", "DELTA_BYTE_ARRAY")
        most = shared_values.most_rows(source, file, [0], ["text"])
    assert most is None or most > 1_000


def test_run_end_encoded_columns_are_refused_by_name(tmp_path: Path) -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2_000_000_000]), pa.array([LONG]))
    write_arrow(tmp_path / "a.arrow", pa.table({"text": runs}))
    with pytest.raises(SampleError, match=r"a\.arrow: column 'text' is run-end encoded"):
        list(documents_in(tmp_path / "a.arrow", TextOptions(json_values=True)))


@pytest.mark.parametrize("nbytes", [0, 8, 16, 40, 44])
def test_views_in_too_few_bytes_are_refused_by_name(nbytes: int, tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    write_arrow(path, pa.table({"text": pa.array(["abc", "de", "fg"], pa.string_view())}))
    data = bytearray(path.read_bytes())
    # First the whole body's length, then the buffer's.
    _, place, *_ = (at for at in range(0, len(data), 8) if data[at : at + 8] == nbytes_of(48))
    data[place : place + 8] = nbytes_of(nbytes)
    path.write_bytes(data)
    with pytest.raises(SampleError, match=r"a\.arrow: .*too small"):
        list(documents_in(path, TextOptions()))


def nbytes_of(count: int) -> bytes:
    return count.to_bytes(8, "little")


TEXTS = st.lists(
    st.one_of(st.none(), st.text(max_size=3), st.sampled_from(["a" * 300, "b" * 2_000])),
    min_size=1,
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(
    texts=TEXTS,
    how=st.sampled_from(["plain", "dictionary", "prefixes", "arrow dictionary", "arrow view"]),
    nested=st.booleans(),
    rows=st.integers(1, 40),
    cap=st.integers(1, 4_000),
)
def test_texts_are_the_same_however_rows_share_them(
    texts: list[str | None],
    how: str,
    nested: bool,
    rows: int,
    cap: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("texts") / ("a.arrow" if "arrow" in how else "a.parquet")
    array: Any = pa.array(texts, pa.string())
    if how == "arrow dictionary":
        array = array.dictionary_encode()
    elif how == "arrow view":
        array = pa.array(texts, pa.string_view())
    inner = pa.StructArray.from_arrays([array], ["text"]) if nested else array
    table = pa.table({"a" if nested else "text": inner})
    if "arrow" in how:
        write_arrow(path, table)
    else:
        encoding = {"a.text" if nested else "text": "DELTA_BYTE_ARRAY"}
        pq.write_table(
            table,
            path,
            row_group_size=rows,
            use_dictionary=how == "dictionary",
            column_encoding=encoding if how == "prefixes" else None,
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_values, "_BATCH_NBYTES", cap)
        patch.setattr(from_arrow, "BLOCK_NBYTES", cap)
        options = TextOptions(text_key="a.text" if nested else "text")
        found = list(documents_in(path, options))
    got = [text for documents in found for text in documents.texts.to_pylist()]
    places = [place for documents in found for place in documents.places.tolist()]
    assert got == [text for text in texts if text is not None]
    assert places == [row for row, text in enumerate(texts, 1) if text is not None]
    errors = [error.key for documents in found for error in documents.errors]
    assert errors == [f"{path.name}:{row}" for row, text in enumerate(texts, 1) if text is None]
