"""Where the records of a split come from: parsed blocks, or windows of shuffled rows."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from loaders.format.spec import SPLITS
from preprocess.errors import output_error
from preprocess.items import Item
from preprocess.recipe import Ragged
from preprocess.tables.codes import BlockCodes
from preprocess.tables.encode import UNKNOWN, Encoder
from preprocess.tables.encode_lists import Chosen
from preprocess.tables.shuffle import Dealer, Windows, plan_windows
from preprocess.tables.shuffle_lists import DealtLists
from preprocess.tables.spill import SpilledBlock, map_block
from preprocess.tables.texts import Texts, join_texts, texts_in


class RecordSource(Protocol):
    """Gives the records of one split, in order."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """Records that are best read together, one number for each such part of the split."""
        ...

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return some records of the split, [stop - start], all of one part."""
        ...

    def lists(self, start: int, stop: int) -> dict[str, Ragged]:
        """Return the ragged lists of the same rows, by field."""
        ...

    def texts(self, name: str, start: int, stop: int) -> Texts:
        """Return the texts of a column in the same rows."""
        ...

    def may_be_unknown(self, start: int, stop: int) -> Collection[str]:
        """Name the columns in which the vocabulary may lack a value of the same rows."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockRows:
    """The rows of one split, in the order of the input.

    Attributes:
        encoder: Makes records of them.
        codes: Codes of the texts in the blocks.
        blocks: Parsed rows of all splits.
        splits: For each block the split of each row, as its place in `SPLITS`, of a row that is
            left out another number; None where all are of the split of the file.
        split: The split.
    """

    encoder: Encoder
    codes: BlockCodes
    blocks: Sequence[SpilledBlock]
    splits: Sequence[NDArray[np.uint8] | None]
    split: str

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Rows of the split in each block."""
        number = SPLITS.index(self.split)
        counts = [
            (block.count if block.split == self.split else 0)
            if splits is None
            else int(np.count_nonzero(splits == number))
            for block, splits in zip(self.blocks, self.splits, strict=True)
        ]
        return np.array(counts, np.int64)

    @cached_property
    def firsts(self) -> NDArray[np.int64]:
        """Place of the first row of each block in the split."""
        return np.cumsum(self.counts) - self.counts

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return the records of some rows, all of one block.

        Raises:
            SourceError: A value does not fit.
        """
        part, chosen = self._chosen(start, stop)
        block = map_block(self.blocks[part])
        return self.encoder.encode(block, chosen, self.codes.of_block(part))

    def lists(self, start: int, stop: int) -> dict[str, Ragged]:
        """Return the ragged lists of some rows, all of one block, by field.

        Raises:
            SourceError: A value does not fit.
        """
        if not self.encoder.schema.list_fields:
            return {}
        part, chosen = self._chosen(start, stop)
        block = map_block(self.blocks[part])
        return self.encoder.lists(block, chosen, self.codes.of_block(part))

    def outside(self, start: int, stop: int) -> dict[str, int]:
        """Count the numbers that no code stands for, of some rows of one block: by column."""
        part, chosen = self._chosen(start, stop)
        return self.encoder.outside(map_block(self.blocks[part]), chosen)

    def texts(self, name: str, start: int, stop: int) -> Texts:
        """Return the texts of a column in some rows, all of one block."""
        part, chosen = self._chosen(start, stop)
        return texts_in(map_block(self.blocks[part]), name, chosen)

    def may_be_unknown(self, start: int, stop: int) -> Collection[str]:  # noqa: ARG002
        """Name the columns in which the vocabulary lacks a text of the block."""
        part, _ = part_at(self.firsts, start)
        codes = self.codes.of_block(part)
        return [name for name, of_texts in codes.items() if (of_texts == UNKNOWN).any()]

    def texts_at(self, name: str, places: NDArray[np.int64]) -> Texts:
        """Return the texts of a column at [n] places in the split, of any blocks, in any order."""
        order = np.argsort(places, kind="stable")
        parts = np.searchsorted(self.firsts, places[order], side="right") - 1
        found = []
        for part in np.unique(parts).tolist():
            within = places[order][parts == part] - self.firsts[part]
            rows = self._rows_of(part)
            chosen = within if rows is None else rows[within]
            found.append(texts_in(map_block(self.blocks[part]), name, chosen))
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return join_texts(found, back)

    def _chosen(self, start: int, stop: int) -> tuple[int, Chosen]:
        """Return the block of some rows of the split, and which rows of it they are."""
        part, first = part_at(self.firsts, start)
        rows = self._rows_of(part)
        if rows is None:
            return part, slice(start - first, stop - first)
        return part, rows[start - first : stop - first]

    def _rows_of(self, part: int) -> NDArray[np.int64] | None:
        """Return which rows of a block are of the split; None for all."""
        splits = self.splits[part]
        return None if splits is None else np.flatnonzero(splits == SPLITS.index(self.split))


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowRows:
    """The rows of one split, in the order of its windows.

    Attributes:
        windows: Where they are.
        rows: Where they come from.
    """

    windows: Windows
    rows: BlockRows

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Rows in each window."""
        return np.array(self.windows.counts, np.int64)

    @cached_property
    def firsts(self) -> NDArray[np.int64]:
        """Place of the first row of each window in the new order."""
        return np.cumsum(self.counts) - self.counts

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return some records of the new order, all of one window.

        Raises:
            FormatError: The window's file cannot be read.
        """
        window, first = part_at(self.firsts, start)
        records: NDArray[Any] = self._hold("", window, lambda: self.windows.read(window))
        return records[start - first : stop - first]

    def lists(self, start: int, stop: int) -> dict[str, Ragged]:
        """Return the ragged lists of the same rows, by field.

        Raises:
            FormatError: A file of the window, or of the lists, cannot be read.
        """
        fields = self.rows.encoder.schema.list_fields.values()
        if not fields:
            return {}
        window, first = part_at(self.firsts, start)
        places = self.windows.places(window)[start - first : stop - first]
        dealt = DealtLists(self.windows.folder, self.rows.split, self.rows.counts)
        return {field.name: dealt.read(field, places) for field in fields}

    def texts(self, name: str, start: int, stop: int) -> Texts:
        """Return the texts of a column in the same rows, out of all blocks.

        Raises:
            FormatError: The window's file cannot be read.
        """
        window, first = part_at(self.firsts, start)
        texts: Texts = self._hold(
            name, window, lambda: self.rows.texts_at(name, self.windows.places(window))
        )
        return texts.part(start - first, stop - first)

    def may_be_unknown(self, start: int, stop: int) -> Collection[str]:  # noqa: ARG002
        """Name all columns: a window is of rows of any block."""
        return [spec.name for spec in self.rows.encoder.schema.columns]

    @cached_property
    def _held(self) -> threading.local:
        """What each thread has of its last window, which small shards take many parts of."""
        return threading.local()

    def _hold(self, what: str, window: int, make: Callable[[], Any]) -> Any:
        """Return what is held of a window, by the name of a column, or make and hold it."""
        held: dict[str, tuple[int, Any]] = vars(self._held)
        if what not in held or held[what][0] != window:
            held.pop(what, None)  # before the next is there as well
            held[what] = window, make()
        return held[what][1]

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs: nothing that is held."""
        return {name: value for name, value in vars(self).items() if name != "_held"}


def part_at(firsts: NDArray[np.int64], place: int) -> tuple[int, int]:
    """Return which part a place lies in, and where that begins; parts may be empty."""
    part = int(np.searchsorted(firsts, place, side="right")) - 1
    return part, int(firsts[part])


def plan_window_rows(
    rows: BlockRows, seed: int, folder: Path, beside: int | None = None
) -> WindowRows:
    """Choose the windows of a split; nothing is written. See `plan_windows`."""
    dtype = rows.encoder.schema.record_dtype
    count = int(rows.counts.sum())
    windows = plan_windows(folder, rows.split, seed, count, dtype, beside)
    return WindowRows(windows=windows, rows=rows)


def deal_rows(rows: BlockRows, windows: Windows, workers: int) -> None:
    """Deal the records of a split out to its windows, a block to a thread; lists stay by block.

    Raises:
        SourceError: A value does not fit.
        OutputError: The folder cannot take them.
    """

    def deal(part: int) -> None:
        first, count = int(rows.firsts[part]), int(rows.counts[part])
        if count:
            dealer.deal(first, rows.read(first, first + count))
            dealt.write(part, rows.lists(first, first + count))

    dealt = DealtLists(windows.folder, rows.split, rows.counts)
    try:
        dealer = Dealer(windows)
        with ThreadPoolExecutor(workers, thread_name_prefix="prep-shuffle") as pool:
            for _ in pool.map(deal, range(len(rows.blocks))):
                pass
    except OSError as error:
        raise output_error(windows.folder, error) from error


def check_rows(rows: BlockRows, workers: int) -> Counter[str]:
    """Encode all rows of a split, and keep nothing: what does not fit is named before a run.

    Returns:
        Column -> numbers that no code stands for, and that are taken all the same.

    Raises:
        SourceError: A value does not fit.
    """
    found: Counter[str] = Counter()

    def check(part: int) -> dict[str, int]:
        first, count = int(rows.firsts[part]), int(rows.counts[part])
        if not count:
            return {}
        rows.read(first, first + count)
        rows.lists(first, first + count)
        taken = rows.encoder.out_of_range != "refuse"
        return rows.outside(first, first + count) if taken else {}

    with ThreadPoolExecutor(workers, thread_name_prefix="prep-check") as pool:
        for outside in pool.map(check, range(len(rows.blocks))):
            found.update(outside)
    return found


def cut_records(source: RecordSource, split: str, size: int, nbytes: int) -> list[tuple[Item, ...]]:
    """Cut the records of a split into shards of equal size; the last one holds the rest.

    Args:
        source: The records.
        split: Names them.
        size: Bytes of a record.
        nbytes: Bytes of a shard.

    Returns:
        The items of each shard: records `start..stop` of the split, all of one part.
    """
    most = max(1, nbytes // size)
    shards: list[tuple[Item, ...]] = []
    items: list[Item] = []
    room = most
    start = 0
    for end in np.cumsum(source.counts).tolist():
        while start < end:
            stop = min(end, start + room)
            items.append(Item(f"{split}:{start}", (stop - start) * size, 0, start=start, stop=stop))
            room -= stop - start
            start = stop
            if not room:
                shards.append(tuple(items))
                items, room = [], most
    return [*shards, tuple(items)] if items else shards
