"""Files that hold columns -> ranges of rows: Parquet and Arrow, as Arrow reads them."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item
from preprocess.tables.columns import check_names, is_text, readable_columns, with_unread
from preprocess.tables.int96 import unit_of_times
from preprocess.tables.options import TableOptions
from preprocess.tables.raw_block import RawBlock
from preprocess.tables.structs import leaves
from preprocess.texts.column_limit import check_column_count
from preprocess.texts.from_arrow import MAX_BATCH_ROWS, of_block_size, open_batches, open_table
from preprocess.texts.parquet_sizes import check_held_nbytes
from preprocess.texts.shared_values import cut_shared, is_view, most_rows

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet

_BLOCK_NBYTES: Final = 1 << 23
"""Bytes of columns of Parquet that one thread parses at a time."""

_READ_NBYTES: Final = 1 << 20


def read_parquet(files: ItemFiles, item: Item, options: TableOptions) -> Iterator[RawBlock]:
    """Yield the rows of a file, or of a range of its groups of rows, in order.

    Raises:
        SampleError: The file as a whole is refused.
    """
    import pyarrow as pa
    import pyarrow.parquet

    with (
        files.open(item) as opened,
        open_table(opened, item.key, options.max_item_nbytes) as source,
    ):
        metadata = pyarrow.parquet.read_metadata(source)
        source.seek(0)
        check_column_count(metadata.num_columns, item.key)
        schema = metadata.schema.to_arrow_schema()
        check_names(schema.names, item.key)
        wanted = readable_columns(schema, options, item.key)
        _check_empty_rows(schema, wanted, metadata.num_rows, item.key)
        texts = _dictionaries(metadata, schema)
        with pyarrow.parquet.ParquetFile(
            source,
            buffer_size=_READ_NBYTES,
            pre_buffer=False,
            page_checksum_verification=True,
            coerce_int96_timestamp_unit=unit_of_times(source, item, wanted),
            read_dictionary=texts,
        ) as file:
            count = file.metadata.num_row_groups
            groups = range(item.start, count if item.stop is None else item.stop)
            if groups.stop > count:
                raise SampleError(item.key, "changed while it was prepared: fewer row groups")
            sizes = [file.metadata.row_group(index).num_rows for index in range(groups.stop)]
            row = 1 + sum(sizes[: groups.start])
            if not sum(sizes[groups.start :]):
                return
            check_held_nbytes(file, groups, wanted, options.max_item_nbytes, item.key)
            as_they_are = [name for name in wanted if name not in texts]
            for batch in file.iter_batches(
                batch_size=_batch_rows(source, file, groups, as_they_are),
                row_groups=list(groups),
                columns=wanted,
                use_threads=False,
            ):
                table = with_unread(pa.Table.from_batches([batch]), schema, len(batch), options)
                held = frozenset(texts)
                yield RawBlock(key=item.key, kind="table", first=row, table=table, texts=held)
                row += len(batch)
            if row != 1 + sum(sizes):
                raise SampleError(
                    item.key, f"ends before row {row:,}, and says that it has {sum(sizes):,}"
                )


def _dictionaries(metadata: "pyarrow.parquet.FileMetaData", schema: "pa.Schema") -> list[str]:
    """Name the columns of text that are dictionaries in the file, at least where they begin."""
    names = {field.name for field in schema if is_text(field.type)}
    others: set[str] = set()
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        for number in range(group.num_columns):
            column = group.column(number)
            if not _AS_DICTIONARY.issuperset(column.encodings):
                others.add(column.path_in_schema)
    return sorted(names - others)


_AS_DICTIONARY: Final = frozenset(
    {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
)
"""Encodings that Arrow can read as a dictionary."""


def _batch_rows(
    source: Any, file: "pyarrow.parquet.ParquetFile", groups: range, as_they_are: list[str]
) -> int:
    """Return how many rows hold about a block: of a group of rows, parts of one size."""
    metadata = [file.metadata.row_group(index) for index in groups]
    rows: int = sum(group.num_rows for group in metadata)
    nbytes: int = sum(group.total_byte_size for group in metadata)
    wanted = max(1, min(MAX_BATCH_ROWS, rows * _BLOCK_NBYTES // max(1, nbytes)))
    wanted = min(wanted, most_rows(source, file, groups, as_they_are) or wanted)
    # What is left over at the end of a group would be a small block of its own.
    largest: int = max(group.num_rows for group in metadata)
    parts = max(round(largest / wanted), -(-largest // MAX_BATCH_ROWS))
    return -(-largest // parts) if largest > wanted else wanted


_MAX_EMPTY_ROWS: Final = 1 << 24
"""Rows that take no bytes, of which 1 kB of Arrow holds as many as there are numbers."""


def _check_run_ends(schema: "pa.Schema", options: TableOptions, key: str) -> None:
    """Refuse columns of which one value stands for billions of rows.

    Raises:
        SampleError: There is one, and it is not ignored.
    """
    import pyarrow as pa

    for field in schema:
        for name, kind in leaves(field.name, field.type, options.unread).items():
            if pa.types.is_run_end_encoded(kind) and name not in options.unread:
                raise SampleError(
                    key,
                    f"column {name!r} is run-end encoded, so that a few bytes may be billions of "
                    "rows; write it decoded (pyarrow.compute.run_end_decode), or --ignore it",
                )


def _check_empty_rows(schema: "pa.Schema", wanted: Collection[str], count: int, key: str) -> None:
    """Refuse billions of rows that nothing is in.

    Raises:
        SampleError: That is so.
    """
    import pyarrow as pa

    if count > _MAX_EMPTY_ROWS and all(pa.types.is_null(schema.field(n).type) for n in wanted):
        raise SampleError(
            key,
            f"{count:,} rows without a value: all columns that are read are of no type; "
            f"a file may have {_MAX_EMPTY_ROWS:,} such rows",
        )


def _leaves(kind: "pa.DataType") -> int:
    """Count the columns that a type is made of; one without fields is one."""
    if not kind.num_fields:
        return 1
    return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))


def read_arrow(files: ItemFiles, item: Item, options: TableOptions) -> Iterator[RawBlock]:
    """Yield the rows of a file or stream in order.

    Raises:
        SampleError: The file as a whole is refused.
    """
    with (
        files.open(item) as opened,
        open_table(opened, item.key, options.max_item_nbytes) as source,
    ):
        schema, batches = open_batches(source, item.key)
        check_column_count(sum(_leaves(field.type) for field in schema), item.key)
        check_names(schema.names, item.key)
        _check_run_ends(schema, options, item.key)
        wanted = readable_columns(schema, options, item.key)

        def filled() -> "Iterator[pa.RecordBatch]":
            count = 0
            for batch in batches:
                count += len(batch)
                _check_empty_rows(schema, wanted, count, item.key)
                if len(batch):
                    yield batch.select(wanted)

        row = 1
        for part in of_block_size(filled()):
            views = [part[name].combine_chunks() for name in wanted if is_view(part[name].type)]
            for rows in cut_shared(part, views, _BLOCK_NBYTES):
                table = part.slice(rows.start, rows.stop - rows.start)
                count = len(table)
                table = with_unread(table, schema, count, options)
                yield RawBlock(key=item.key, kind="table", first=row, table=table)
                row += count
