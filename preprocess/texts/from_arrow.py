"""Parquet and Arrow files -> rows, some MB at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item
from preprocess.texts.columns import Rows, documents_of, find_column, needed_keys, read_column
from preprocess.texts.content import BLOCK_NBYTES, open_content
from preprocess.texts.documents import Documents
from preprocess.texts.kinds import HEAD_NBYTES, compression_of, is_arrow_file
from preprocess.texts.options import TextOptions
from preprocess.texts.parquet_sizes import check_held_nbytes, is_within
from preprocess.texts.shared_values import cut_shared, most_rows

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet

MAX_BATCH_ROWS: Final = 1 << 16
"""Rows that are worked on at once, also where they take no bytes."""

_READ_NBYTES: Final = 1 << 20

_FEW_ROWS: Final = 512
"""Rows that are read one by one: tens of microseconds each."""


_MAX_INFLATED_NBYTES: Final = 256_000_000
"""A table that is compressed as a whole is held in memory."""


@contextmanager
def open_table(file: IO[bytes], key: str, max_nbytes: int | None = None) -> Iterator[Any]:
    """Give a file to Arrow, wholly in memory if it is compressed around what it is.

    Args:
        file: At its beginning.
        key: Names it in errors.
        max_nbytes: What a file may hold.
    """
    import pyarrow as pa

    with named_faults(key):
        head = file.read(HEAD_NBYTES)
        file.seek(0)
        if compression_of(head) is None:
            yield pa.PythonFile(file, mode="r")
        else:
            yield pa.BufferReader(_inflated(file, key, max_nbytes))


def _inflated(file: IO[bytes], key: str, max_nbytes: int | None) -> bytes:
    """Decompress a table whole: its end says where its parts are."""
    chunks, nbytes = [], 0
    for chunk in open_content(file, key, max_nbytes=max_nbytes).chunks:
        nbytes += len(chunk)
        if nbytes > _MAX_INFLATED_NBYTES:
            raise SampleError(
                key,
                f"a compressed table of more than {_MAX_INFLATED_NBYTES:,} bytes would have to be "
                "in memory whole; decompress the file (Parquet and Arrow compress by themselves)",
            )
        chunks.append(chunk)
    return b"".join(chunks)


@contextmanager
def named_faults(key: str) -> Iterator[None]:
    """Name the file in what Arrow says about its bytes."""
    import pyarrow as pa

    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise
        raise SampleError(key, f"cannot be read: {_line(error)}") from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise SampleError(key, f"cannot be read: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def read_parquet(
    files: ItemFiles, item: Item, options: TextOptions, *, few: bool = False
) -> Iterator[Documents]:
    """Yield the documents of a Parquet file, or of some of its row groups.

    What a file says of a column is asked for before it is read, to read no more than has room; in
    a damaged one that ends the process (pyarrow 26). With `few` the first rows are read one by one
    instead, where what is wrong is an error, and none of a file whose rows may be too large.

    Raises:
        SampleError: The file is damaged, or has no such columns of text.
    """
    import pyarrow.parquet

    with (
        files.open(item) as opened,
        open_table(opened, item.key, options.max_item_nbytes) as source,
        pyarrow.parquet.ParquetFile(
            source, buffer_size=_READ_NBYTES, pre_buffer=False, page_checksum_verification=True
        ) as file,
    ):
        count = file.metadata.num_row_groups
        groups = range(item.start, count if item.stop is None else item.stop)
        if groups.stop > count:
            raise SampleError(item.key, "changed while it was prepared: it has fewer row groups")
        sizes = [file.metadata.row_group(index).num_rows for index in range(groups.stop)]
        if not sum(sizes[groups.start :]):
            return
        paths = {key: find_column(file.schema_arrow, key, item.key) for key in needed_keys(options)}
        names = [".".join(path) for path in paths.values()]
        rows, most = MAX_BATCH_ROWS, 1
        if few:
            _check_rows(file, groups, item.key, options)
        else:
            check_held_nbytes(file, groups, names, options.max_item_nbytes, item.key)
            rows = _block_rows(file, groups, names)
            most = min(rows, most_rows(source, file, groups, names) or rows)
        batches = file.iter_batches(
            batch_size=most, row_groups=list(groups), columns=names, use_threads=False
        )
        batches = islice(batches, _FEW_ROWS) if few else batches
        blocks = batches if most == rows else of_block_size(batches)
        yield from _documents(blocks, paths, sum(sizes[: groups.start]), item.key, options)


def _check_rows(
    file: "pyarrow.parquet.ParquetFile", groups: range, key: str, options: TextOptions
) -> None:
    """Refuse row groups of more bytes, of all columns, than a file may hold."""
    limit = options.max_item_nbytes
    nbytes = sum(file.metadata.row_group(index).total_byte_size for index in groups)
    if limit is not None and nbytes > limit:
        raise SampleError(key, f"its rows have {nbytes:,} bytes, files may hold {limit:,}")


def _block_rows(file: "pyarrow.parquet.ParquetFile", groups: range, names: list[str]) -> int:
    """Return how many rows hold about a block of text."""
    rows = nbytes = 0
    for index in groups:
        group = file.metadata.row_group(index)
        rows += group.num_rows
        for number in range(group.num_columns):
            column = group.column(number)
            if is_within(column.path_in_schema, names):
                nbytes += column.total_uncompressed_size
    return max(1, min(MAX_BATCH_ROWS, rows * BLOCK_NBYTES // max(1, nbytes)))


def read_arrow(files: ItemFiles, item: Item, options: TextOptions) -> Iterator[Documents]:
    """Yield the documents of an Arrow file, in the file or the stream format.

    Raises:
        SampleError: The file is damaged, or has no such columns of text.
    """
    with (
        files.open(item) as opened,
        open_table(opened, item.key, options.max_item_nbytes) as source,
    ):
        schema, batches = open_batches(source, item.key)
        filled = (batch for batch in batches if len(batch))
        first = next(filled, None)
        if first is None:
            return
        paths = {key: find_column(schema, key, item.key) for key in needed_keys(options)}
        tops = list(dict.fromkeys(path[0] for path in paths.values()))
        selected = (batch.select(tops) for batch in chain([first], filled))
        yield from _documents(of_block_size(selected), paths, 0, item.key, options)


def open_batches(source: Any, key: str) -> "tuple[pa.Schema, Iterator[pa.RecordBatch]]":
    """Return what an Arrow file, in the file or the stream format, says of its columns, and holds.

    Raises:
        SampleError: It is of a format that Arrow has given up.
    """
    import pyarrow.ipc

    head = source.read(HEAD_NBYTES)
    source.seek(0)
    if head.startswith(b"FEA1"):
        raise SampleError(key, "Feather version 1, which is not read: write it as Arrow or Parquet")
    if is_arrow_file(head):
        file = pyarrow.ipc.open_file(source)
        return file.schema, (file.get_batch(index) for index in range(file.num_record_batches))
    stream = pyarrow.ipc.open_stream(source)
    return stream.schema, iter(stream)


def of_block_size(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the same rows in tables of about a block: small batches together, large ones cut."""
    import pyarrow as pa

    waiting: list[Any] = []
    nbytes = 0
    for batch in batches:
        waiting.append(batch)
        nbytes += batch.nbytes
        if nbytes >= BLOCK_NBYTES:
            table = pa.Table.from_batches(waiting)
            rows = max(1, min(MAX_BATCH_ROWS, len(table) * BLOCK_NBYTES // nbytes))
            for start in range(0, len(table), rows):
                yield table.slice(start, rows)
            waiting, nbytes = [], 0
    if waiting:
        table = pa.Table.from_batches(waiting)
        for start in range(0, len(table), MAX_BATCH_ROWS):
            yield table.slice(start, MAX_BATCH_ROWS)


def _documents(
    tables: Iterator[Any],
    paths: dict[str, tuple[str, ...]],
    done: int,
    key: str,
    options: TextOptions,
) -> Iterator[Documents]:
    import pyarrow.compute as pc

    nbytes, limit = 0, options.max_item_nbytes
    for table in tables:
        columns = {name: read_column(table, path) for name, path in paths.items()}
        for rows in cut_shared(table, [*columns.values()], BLOCK_NBYTES):
            part = {name: column[rows] for name, column in columns.items()}
            numbers = np.arange(done + rows.start + 1, done + rows.stop + 1, dtype=np.int64)
            if not len(numbers):
                continue
            documents = documents_of(Rows(part, numbers), key, options)
            nbytes += pc.sum(pc.binary_length(documents.texts), min_count=0).as_py()
            if limit is not None and nbytes > limit:
                reason = f"its texts have more than the {limit:,} bytes that files may have"
                raise SampleError(key, f"{reason}; raise --max-item-bytes")
            yield documents
        done += len(table)
