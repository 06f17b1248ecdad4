"""Lists of several lengths on their way into records, and beside them: which values are whose."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loaders.format.ragged import ranges
from loaders.format.table_lists import MOST_VALUES
from loaders.format.table_schema import ColumnSpec, TableSchema
from preprocess.errors import SourceError
from preprocess.tables.block import Block
from preprocess.tables.buffers import validity
from preprocess.tables.columns import list_counts
from preprocess.tables.list_values import check_items, list_items
from preprocess.tables.spill import SpilledBlock, map_block
from preprocess.tables.values import column_array

Chosen = slice | NDArray[np.int64]
"""Rows of a block."""


@dataclass(frozen=True, slots=True)
class ChosenLists:
    """The lists of some rows of a block.

    Attributes:
        counts: [n] int64: values of each; none of a missing one.
        missing: [n] bool.
        block: What all lists of the block hold, a row for each value, in the line of its list.
        chosen: Which of these are of the lists, in their order.
    """

    counts: NDArray[np.int64]
    missing: NDArray[np.bool_]
    block: Block
    chosen: Chosen


def chosen_lists(block: Block, spec: ColumnSpec, chosen: Chosen) -> ChosenLists:
    """Return the lists of a column in some rows of a block.

    Raises:
        SourceError: One has more values than there is room for; it names file and line.
    """
    import pyarrow as pa

    array = column_array(block.table, spec.name)
    check_items(array, spec, block.key)
    counts = list_counts(array)
    mine = counts[chosen]
    most = spec.length if spec.layout == "padded" else MOST_VALUES
    if mine.max(initial=0) > most:
        row = int(np.argmax(mine > most))
        raise SourceError(
            f"{block.key}:{block.rows[chosen][row]}: column {spec.name!r}: a list of {mine[row]} "
            f"values, there is room for {most}"
        )
    items = pa.table({spec.name: list_items(array)})
    starts = np.cumsum(counts) - counts
    inner: Chosen = ranges(starts[chosen], mine)
    if isinstance(chosen, slice):
        first = int(starts[chosen][0]) if len(mine) else 0
        inner = slice(first, first + int(mine.sum()))
    lines = np.repeat(block.rows, counts)
    missing = ~validity(array)[chosen]
    return ChosenLists(mine, missing, Block(block.key, items, lines, {}), inner)


def beside_nbytes(
    blocks: Sequence[SpilledBlock], schema: TableSchema, texts: int | None
) -> int | None:
    """Return the bytes that a row has beside its record, about; None where it has nothing there.

    Args:
        blocks: The rows.
        schema: Says which lists are ragged.
        texts: Bytes of the tokens of a row, about; None where there are none.
    """
    specs = [schema.column(name) for name in schema.list_fields]
    if not specs:
        return texts
    rows = nbytes = 0
    for spilled in blocks:
        block = map_block(spilled)
        rows += len(block.rows)
        for spec in specs:
            count = int(list_counts(column_array(block.table, spec.name)).sum())
            nbytes += count * np.dtype(spec.dtype).itemsize
    offset = np.dtype(np.uint64).itemsize
    return (texts or 0) + offset * len(specs) + -(-nbytes // max(rows, 1))
