"""Large files of texts and tables, cut into several items for many workers."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from preprocess.errors import SampleError
from preprocess.item_files import check_nbytes, open_item
from preprocess.items import Item
from preprocess.texts.content import open_content
from preprocess.texts.from_arrow import open_table
from preprocess.texts.kinds import (
    HEAD_NBYTES,
    Kind,
    byte_order_mark,
    compression_of,
    kind_by_content,
    kind_by_name,
)
from preprocess.texts.lines import RANGE_NBYTES
from preprocess.texts.options import TextOptions


def cut_item(root: Path, item: Item, options: TextOptions) -> Sequence[Item]:
    """Return a large file as several items, where its records can be found from the middle."""
    if item.nbytes <= RANGE_NBYTES:
        return [item]
    owned: Sequence[tuple[int, int] | None]
    try:
        check_nbytes(item, options.max_item_nbytes)
        kind = kind_by_name(item.key) or kind_inside(root, item)
        if kind == "parquet":
            starts, owned = _group_starts(root, item)
        elif _has_lines(kind, options) and _is_plain_utf8(root, item, options):
            starts = list(range(0, item.nbytes, RANGE_NBYTES))
            owned = [*pairwise([*starts, item.nbytes])]
        else:
            return [item]
    except SampleError:
        return [item]  # the reader meets it again, and names it
    nbytes = -(-item.nbytes // len(starts))
    return [
        replace(item, start=start, stop=stop, part_nbytes=nbytes, own=own)
        for start, stop, own in zip(starts, [*starts[1:], None], owned, strict=True)
    ]


def kind_inside(root: Path, item: Item) -> Kind | None:
    """Return what a file is by its first bytes, if they say it."""
    with open_item(root, item) as file:
        return kind_by_content(open_content(file, item.key).head)


def kind_to_read(root: Path, item: Item) -> Kind | None:
    """Return the same for a reader, which names what is wrong with the file itself."""
    try:
        return kind_inside(root, item)
    except SampleError:
        return None


def _has_lines(kind: Kind | None, options: TextOptions) -> bool:
    return kind == "json" or (options.lines and kind in {"text", None})


def _is_plain_utf8(root: Path, item: Item, options: TextOptions) -> bool:
    with open_item(root, item) as file:
        head = file.read(HEAD_NBYTES)
    mark = byte_order_mark(head)
    encoding = mark[1] if mark else options.other_encoding or "utf-8"
    return compression_of(head) is None and encoding == "utf-8"


def _group_starts(root: Path, item: Item) -> tuple[list[int], list[tuple[int, int] | None]]:
    """Return the row groups at which the parts of a Parquet file begin, and the bytes of each.

    The bytes are shares of the file, as large as the groups say they are: where their pages lie is
    not asked for, since that ends the process where a column of a damaged file is described wrongly
    (pyarrow 26). Of a file that is compressed as a whole, each part has all of them.
    """
    import pyarrow as pa
    import pyarrow.parquet

    with open_item(root, item) as file, open_table(file, item.key) as source:
        metadata = pyarrow.parquet.ParquetFile(source).metadata
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        # Whatever the file says, its parts are all of it, one after the other.
        sizes = [max(0, group.total_byte_size) for group in groups]
        starts, offsets, begun, done, whole = [0], [0], 0, 0, max(1, sum(sizes))
        for index, nbytes in enumerate(sizes):
            if done - begun >= RANGE_NBYTES:
                starts.append(index)
                offsets.append(item.nbytes * done // whole)
                begun = done
            done += nbytes
        if isinstance(source, pa.BufferReader):
            return starts, [None] * len(starts)
    return starts, [*pairwise([*offsets, item.nbytes])]
