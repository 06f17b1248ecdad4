"""The leak report: rows of validation and test whose whole record is a row of train too."""

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from itertools import islice
from typing import IO, TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from preprocess.errors import output_error
from preprocess.tables.buffers import validity
from preprocess.tables.columns import list_counts
from preprocess.tables.fit_rows import Rows, column_numbers
from preprocess.tables.list_values import list_items
from preprocess.tables.plan import ColumnPlan
from preprocess.tables.splits import SPLIT_NAMES, TEST, TRAIN, VALIDATION, mixed, text_hashes
from preprocess.tables.values import column_array, texts_of

if TYPE_CHECKING:
    import pyarrow as pa

_HELD: Final = 1 << 22
"""Hashes of rows outside train that are held at a time: 32 MiB."""

_AHEAD: Final = 4
"""Blocks to a thread whose hashes wait to be written."""

_SOME_BITS: Final = 22
_SOME: Final = np.uint64((1 << _SOME_BITS) - 1)

_MISSING: Final = np.uint64(0x5DEECE66D1CE4E5B)
_ODD: Final = 0x9E3779B97F4A7C15


def leak_notes(
    plans: Sequence[ColumnPlan], rows: Rows, pool: Executor, workers: int
) -> Iterator[str]:
    """Say how many rows outside train have the features of a row of train.

    Args:
        plans: The columns; targets, and parts of other columns, are not compared.
        rows: All rows and their splits.
        pool: Threads that hash rows.
        workers: How many there are.

    Raises:
        OutputError: The folder of the blocks cannot take the hashes.
    """
    counts = rows.counts()
    if not counts[TRAIN] or not counts[VALIDATION] + counts[TEST]:
        return
    try:
        found = count_leaks(plans, rows, pool, workers)
    except OSError as error:
        raise output_error(rows.blocks[0].path.parent, error) from error
    for code in (VALIDATION, TEST):
        if counts[code]:
            share = found[code] / counts[code]
            yield (
                f"leaks: {found[code]:,} of {counts[code]:,} rows of {SPLIT_NAMES[code]} "
                f"({share:.1%}) have the same features as a row of train"
            )


def count_leaks(
    plans: Sequence[ColumnPlan], rows: Rows, pool: Executor, workers: int, held: int = _HELD
) -> tuple[int, ...]:
    """Return how many rows of each split have the features of a row of train; 0 for train.

    Rows are compared by hashes of 64 bits, which lie in a file meanwhile; `held` of them are held
    at a time.
    """
    features = [p for p in plans if p.role == "feature" and p.part is None]
    features = [p for p in features if p.kind not in {"text", "left_out"}]
    counts = rows.counts()
    parts = max(1, -(-(counts[VALIDATION] + counts[TEST]) // held))
    totals = [0] * len(SPLIT_NAMES)
    # Nameless, and gone with the process.
    with tempfile.TemporaryFile(dir=rows.blocks[0].path.parent) as file:
        blocks = rows.opened()
        while together := list(islice(blocks, _AHEAD * workers)):
            tables = [block.table for block, _ in together]
            for found in pool.map(lambda table: _row_hashes(table, features, rows), tables):
                file.write(found.data)
        for part in range(parts):
            for code, number in enumerate(_count_part(file, rows, part, parts)):
                totals[code] += number
    return tuple(totals)


def _count_part(file: IO[bytes], rows: Rows, part: int, parts: int) -> list[int]:
    """Count leaks among the rows whose hashes are in one of several equal parts of all hashes."""

    def hashes() -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint8]]]:
        file.seek(0)
        for splits in rows.splits:
            found = np.frombuffer(file.read(8 * len(splits)), "<u8")
            mine = ((found >> np.uint64(32)) * np.uint64(parts)) >> np.uint64(32) == part
            yield found[mine], splits[mine]

    outside = [found[(splits == VALIDATION) | (splits == TEST)] for found, splits in hashes()]
    known = np.sort(np.concatenate(outside))
    known = known[np.diff(known, prepend=~known[:1]) != 0]
    leaked = np.zeros(len(known), np.bool_)
    # Most rows of train are told from all of these by a few bits, in a table that caches hold.
    some = np.zeros(1 << _SOME_BITS, np.bool_)
    some[known & _SOME] = True
    for found, splits in hashes():
        train = found[splits == TRAIN]
        train = train[some[train & _SOME]]
        places = np.minimum(np.searchsorted(known, train), len(known) - 1)
        leaked[places[known[places] == train]] = True
    totals = [0] * len(SPLIT_NAMES)
    for found, splits in hashes():
        for code in (VALIDATION, TEST):
            totals[code] += int(leaked[np.searchsorted(known, found[splits == code])].sum())
    return totals


def _row_hashes(table: "pa.Table", plans: Sequence[ColumnPlan], rows: Rows) -> NDArray[np.uint64]:
    """Return a hash of the features of each row, [n] uint64."""
    found = np.zeros(table.num_rows, np.uint64)
    for place, plan in enumerate(plans):
        column = _column_hashes(column_array(table, plan.source), plan, rows)
        # These are mixed well: a sum, each times an odd number of its own, will do.
        found += column * np.uint64(_ODD * (2 * place + 1) % (1 << 64))
    return mixed(found)


def _column_hashes(array: "pa.Array", plan: ColumnPlan, rows: Rows) -> NDArray[np.uint64]:
    if plan.kind == "vector":
        return _list_hashes(array)
    if plan.kind == "categorical":
        texts = texts_of(array)
        return np.append(text_hashes(texts.values), _MISSING)[texts.index]
    numbers = column_numbers(array, plan, rows.options)
    return _number_hashes(numbers.values, numbers.valid, numbers.index)


def _number_hashes(
    values: NDArray[np.float64] | NDArray[np.int64],
    valid: NDArray[np.bool_],
    index: NDArray[np.int64] | None,
) -> NDArray[np.uint64]:
    # -0.0 is 0.0.
    bits = (values + 0.0).view(np.uint64) if values.dtype == np.float64 else values.view(np.uint64)
    hashes = np.where(valid, mixed(bits), _MISSING)
    return hashes if index is None else hashes[index]


def _list_hashes(array: "pa.Array") -> NDArray[np.uint64]:
    """Return a hash of each list: of the texts of its values, in their order."""
    counts = list_counts(array)
    texts = texts_of(list_items(array))
    each = np.append(text_hashes(texts.values), _MISSING)[texts.index]
    starts = np.cumsum(counts) - counts
    places = np.arange(len(each)) - np.repeat(starts, counts)
    sums = np.zeros(len(each) + 1, np.uint64)
    np.cumsum(mixed(each ^ mixed(places.astype(np.uint64))), out=sums[1:])
    found = sums[starts + counts] - sums[starts] + mixed(counts.astype(np.uint64))
    return np.where(validity(array), found, _MISSING)
