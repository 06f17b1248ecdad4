"""The rows of a parsed table, column by column: what the fitting of columns reads."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from preprocess.tables.block import Block
from preprocess.tables.columns import list_counts, value_at
from preprocess.tables.list_values import items_of, list_items, vectors_of
from preprocess.tables.options import TableOptions
from preprocess.tables.plan import ColumnPlan
from preprocess.tables.spill import SpilledBlock, map_block
from preprocess.tables.splits import SKIPPED, SPLIT_NAMES, TRAIN
from preprocess.tables.values import (
    Numbers,
    Texts,
    column_array,
    datetime_part,
    numbers_of,
    texts_of,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """All rows, and the split of each.

    Attributes:
        blocks: Parsed rows.
        splits: [n] uint8 of each block: codes of `table_splits`.
        options: How numbers are written as text.
        train_count: Rows of train, once the splits are settled.
        folder: Where the codes of texts go; None if they are not asked for.
    """

    blocks: Sequence[SpilledBlock]
    splits: Sequence[NDArray[np.uint8]]
    options: TableOptions
    train_count: int = 0
    folder: Path | None = None

    def opened(self) -> Iterator[tuple[Block, NDArray[np.uint8]]]:
        """Yield each block, and the split of each of its rows."""
        for spilled, splits in zip(self.blocks, self.splits, strict=True):
            yield map_block(spilled), splits

    def counts(self) -> tuple[int, ...]:
        """Return the rows of train, validation and test."""
        totals = np.zeros(SKIPPED + 1, np.int64)
        for splits in self.splits:
            totals += np.bincount(splits, minlength=SKIPPED + 1)
        return tuple(totals[: len(SPLIT_NAMES)].tolist())

    def arrays(self, name: str) -> Iterator[tuple["pa.Array", NDArray[np.uint8]]]:
        """Yield a column, block by block, and the split of each row."""
        for block, splits in self.opened():
            yield column_array(block.table, name), splits

    def numbers(self, plan: ColumnPlan) -> Iterator[tuple[Numbers, NDArray[np.uint8]]]:
        """Yield the numbers of a column, block by block, and the split of each.

        Of lists of several lengths they are those that the lists hold.
        """
        for array, splits in self.arrays(plan.source):
            of_each = np.repeat(splits, list_counts(array)) if plan.varies else splits
            yield column_numbers(array, plan, self.options), of_each

    def train(self, plan: ColumnPlan) -> Iterator[Numbers]:
        """Yield the numbers of a column in the rows of train; of all others, none."""
        for numbers, splits in self.numbers(plan):
            yield numbers.of_rows(splits == TRAIN)

    def texts(self, plan: ColumnPlan) -> Iterator[tuple[Texts, NDArray[np.uint8]]]:
        """Yield the texts of a column, or those in its lists, and the split of each."""
        for array, splits in self.arrays(plan.source):
            if plan.kind == "vector":
                yield texts_of(list_items(array)), np.repeat(splits, list_counts(array))
            else:
                yield texts_of(array), splits

    def first(
        self, name: str, wanted: Callable[["pa.Array"], NDArray[np.bool_]]
    ) -> tuple[str, Any] | None:
        """Return the place and the value of the first row of a column that is wanted.

        Args:
            name: The column.
            wanted: Marks rows of a block, [n] bool; rows without a target are passed over.
        """
        for block, splits in self.opened():
            array = column_array(block.table, name)
            marked = np.flatnonzero(wanted(array) & (splits != SKIPPED))
            if len(marked):
                row = int(marked[0])
                return f"{block.key}:{block.rows[row]}", value_at(array, row)
        return None


def column_numbers(array: "pa.Array", plan: ColumnPlan, options: TableOptions) -> Numbers:
    """Convert a column of a block as its plan says: to int64, or to float64."""
    if plan.kind == "vector":
        whole = plan.values == "whole"
        unsigned = plan.unsigned
        kind = plan.holds or ("integer" if whole else "float")
        items = items_of(array, options, kind=kind, unsigned=unsigned, name=plan.source)
        if plan.varies:
            return items
        return vectors_of(items, array, plan.length, whole=whole, unsigned=unsigned)
    if plan.part is not None:
        # A date is the first microsecond of its day.
        found = numbers_of(array, "datetime", options, name=plan.source)
        return Numbers(datetime_part(found.values, "datetime", plan.part), found.valid, found.index)
    return numbers_of(
        array,
        plan.kind,
        options,
        name=plan.name,
        exponent=plan.exponent,
        unsigned=plan.unsigned,
    )


def classes_of(values: "pa.LargeStringArray", plan: ColumnPlan) -> "pa.LargeStringArray":
    """Return what texts count as: truth values are the same however they are written."""
    import pyarrow.compute as pc

    return pc.utf8_lower(values) if plan.folded else values
