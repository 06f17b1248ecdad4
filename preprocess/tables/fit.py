"""Stage two of a table: the splits of its rows, and the schema that all of them are stored by."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.table_column import ENTRIES
from loaders.format.table_schema import TableSchema
from preprocess.errors import SampleError, SourceError, output_error
from preprocess.skipped import Listed
from preprocess.tables.block import Evidence
from preprocess.tables.fit_columns import counted_texts, fit_column
from preprocess.tables.fit_rows import Rows, classes_of
from preprocess.tables.fitted_column import FittedColumn
from preprocess.tables.leaks import leak_notes
from preprocess.tables.options import TableOptions
from preprocess.tables.plan import ColumnPlan, mixed_notes, without_text
from preprocess.tables.quantiles import Part, order_statistics
from preprocess.tables.refusals import TooFewRowsError
from preprocess.tables.schema import plan_time
from preprocess.tables.spill import Spilled, open_block
from preprocess.tables.splits import (
    SKIPPED,
    SPLIT_NAMES,
    TRAIN,
    Strata,
    cuts,
    place_hashes,
    split_by_hash,
    split_by_value,
    text_hashes,
)
from preprocess.tables.target import settle_target
from preprocess.tables.text_codes import CodesFile
from preprocess.tables.values import column_array, texts_of

_NAMED: Final = 50
"""Columns that one note names."""

NOT_STORED: Final = frozenset({"text", "left_out"})
"""Kinds of plans that are no part of the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A table that can be encoded.

    Attributes:
        schema: Its columns.
        vocabularies: Path below the dataset -> bytes of the file.
        splits: [n] uint8 of each block of the spilled table: codes of `table_splits`, where
            `SKIPPED` is a row without a target; None where all rows are of their file's split.
        counts: Rows of train, validation and test.
        skipped: Rows without a target.
        task: "classification" or "regression"; None without a target.
        unknown: Column -> values that its vocabulary does not have, in train, validation and test.
        sources: Column of the schema -> column of the input, and the part of its times.
        notes: What the user should know.
        codes: Column -> the codes of its texts, of columns where they are known already.
    """

    schema: TableSchema
    vocabularies: Mapping[str, bytes]
    splits: tuple[NDArray[np.uint8], ...] | None
    counts: tuple[int, ...]
    skipped: int
    task: str | None
    unknown: Mapping[str, tuple[int, ...]]
    sources: Mapping[str, tuple[str, str | None]]
    notes: tuple[str, ...]
    codes: Mapping[str, CodesFile] = field(default_factory=dict)


def fit(
    spilled: Spilled,
    plans: Sequence[ColumnPlan],
    options: TableOptions,
    workers: int,
    folder: Path | None = None,
) -> Fitted:
    """Split the rows, and fit all columns: types to all rows, all else to train.

    Args:
        spilled: The parsed table.
        plans: What its columns become, as `decide` says.
        options: What the user asks.
        workers: Threads, a column to each; the result does not depend on it.
        folder: Where the codes of texts go, which are found on the way; None for no codes.

    Raises:
        OutputError: The folder cannot take the codes.
        SourceError: Rows or columns cannot be what they should be; places are named.
    """
    own = [np.full(b.count, SPLIT_NAMES.index(b.split), np.uint8) for b in spilled.blocks]
    rows = Rows(blocks=spilled.blocks, splits=own, options=options, folder=folder)
    plans = [settle_target(p, rows) if p.role == "target" else p for p in plans]
    target = next((plan for plan in plans if plan.role == "target"), None)
    notes = [note for plan in plans for note in plan.notes]
    if options.validation or options.test:
        if any(block.split != SPLIT_NAMES[TRAIN] for block in spilled.blocks):
            raise SourceError("the files have splits already; leave --validation and --test out")
        notes += _split(rows, target, spilled.evidence)
    counts = rows.counts()
    if not counts[TRAIN]:
        found = [f"{n:,} of {name}" for n, name in zip(counts, SPLIT_NAMES, strict=True) if n]
        raise TooFewRowsError(
            f"no row is of the train split, which types and vocabularies are fitted to "
            f"(rows: {', '.join(found) or 'none'}); add rows of train"
        )
    rows = replace(rows, train_count=counts[TRAIN])
    stored = [plan for plan in plans if plan.kind not in NOT_STORED]
    with ThreadPoolExecutor(workers, thread_name_prefix="prep-fit") as pool:
        fitted = _fit_columns(stored, rows, pool)
        _check_vectors(fitted)
        leaks = list(leak_notes(stored, rows, pool, workers))
    notes += [note for column in fitted for note in column.notes]
    notes += _unknown_notes(stored, fitted)
    alike = [c.spec.name for c in fitted if c.constant and c.spec.role == "feature"]
    notes += _named(alike, "the same value in all rows of train that have one, and no deviation")
    absent = [plan.name for plan in plans if plan.kind == "left_out"]
    notes += _named(absent, "no value in any row, and left out")
    notes += leaks
    skipped = sum(block.count for block in spilled.blocks) - sum(counts)
    changed = any(
        (now != SPLIT_NAMES.index(b.split)).any()
        for now, b in zip(rows.splits, spilled.blocks, strict=True)
    )
    return Fitted(
        schema=TableSchema(tuple(column.spec for column in fitted)),
        vocabularies={
            column.spec.vocabulary: column.vocabulary
            for column in fitted
            if column.spec.vocabulary is not None and column.vocabulary is not None
        },
        splits=tuple(rows.splits) if changed else None,
        counts=counts,
        skipped=skipped,
        task=None if target is None else target.task,
        unknown={column.spec.name: column.unknown for column in fitted if column.unknown},
        sources={plan.name: (plan.source, plan.part) for plan in stored},
        notes=tuple(dict.fromkeys(notes)),
        codes={column.spec.name: column.codes for column in fitted if column.codes is not None},
    )


def _check_vectors(fitted: Sequence[FittedColumn]) -> None:
    for column in fitted:
        if column.spec.kind == "vector" and column.spec.name in ENTRIES:
            raise SourceError(
                f"column {column.spec.name!r}: lists have a batch's entry of their own, and this "
                "one has another meaning: give the column another name, or leave it out with "
                f"--ignore {column.spec.name}"
            )


def _fit_columns(
    plans: Sequence[ColumnPlan], rows: Rows, pool: ThreadPoolExecutor
) -> list[FittedColumn]:
    try:
        return list(
            pool.map(lambda place: fit_column(plans[place], rows, place), range(len(plans)))
        )
    except OSError as error:
        raise output_error(rows.blocks[0].path.parent, error) from error


def _unknown_notes(plans: Sequence[ColumnPlan], fitted: Sequence[FittedColumn]) -> Iterator[str]:
    for plan, column in zip(plans, fitted, strict=True):
        rare = ", or too rare there" if plan.min_count > 1 else ""
        for split, count in zip(SPLIT_NAMES[1:], column.unknown[1:], strict=False):
            if count:
                said = f"{count:,} values of {split} are not in train{rare}"
                yield f"column {column.spec.name!r}: {said}"


def _named(names: Sequence[str], what: str) -> Iterator[str]:
    """Name columns in one note, however many they are."""
    if names:
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        yield f"columns {', '.join(map(repr, names[:_NAMED]))}{more}: {what}"


def _split(
    rows: Rows, target: ColumnPlan | None, evidence: Mapping[str, Evidence]
) -> Iterator[str]:
    """Split the rows as the options say; rows without a target stay skipped."""
    options = rows.options
    if options.split_by_time is not None:
        yield from _split_by_time(rows, plan_time(options.split_by_time, evidence))
    elif options.group_by is not None:
        if why := without_text(evidence[options.group_by]):
            raise SourceError(
                f"column {options.group_by!r}: {why}, which make no groups; give --group-by another"
            )
        yield from mixed_notes(options.group_by, evidence[options.group_by])
        yield from _split_groups(rows, options.group_by)
    elif options.stratify:
        yield from _split_classes(rows, target)
    else:
        for block, splits in rows.opened():
            hashes = place_hashes(block.key, block.rows, options.split_seed)
            _assign(splits, split_by_hash(hashes, options))
    said = [f"{count:,} {name}" for count, name in zip(rows.counts(), SPLIT_NAMES, strict=True)]
    yield f"splits: {', '.join(said)}"


def _assign(splits: NDArray[np.uint8], found: NDArray[np.uint8]) -> None:
    kept = splits != SKIPPED
    splits[kept] = found[kept]


def _split_groups(rows: Rows, name: str) -> Iterator[str]:
    """Give all rows of a group one split, by the hash of its value."""
    missing = 0
    for array, splits in rows.arrays(name):
        texts = texts_of(array)
        none = np.uint64(rows.options.split_seed)
        hashes = np.append(text_hashes(texts.values, rows.options.split_seed), none)
        found = split_by_hash(hashes, rows.options)
        missing += int(np.count_nonzero(texts.index == len(texts.values)))
        _assign(splits, found[texts.index])
    if missing:
        yield f"column {name!r}: {missing:,} rows have no group; they are one together"


def _split_classes(rows: Rows, target: ColumnPlan | None) -> Iterator[str]:
    """Give every class of the target its shares, by rank of the hashes of its rows' places."""
    import pyarrow.compute as pc

    if target is None or target.task != "classification":
        raise SourceError("--stratify: only with a target of classes; leave it out")
    values, counts = counted_texts(target, rows)

    def parts() -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.bool_]]]:
        for block, splits in rows.opened():
            kept = splits != SKIPPED
            texts = texts_of(column_array(block.table, target.source)).of_rows(kept)
            classes = classes_of(texts.values, target)
            index = pc.index_in(classes, value_set=values).fill_null(0).to_numpy()
            places = place_hashes(block.key, block.rows, rows.options.split_seed)
            yield index.astype(np.int64)[texts.index], places[kept], kept

    strata = Strata(
        ((classes, hashes) for classes, hashes, _ in parts()), len(values), rows.options
    )
    for splits, (classes, hashes, kept) in zip(rows.splits, parts(), strict=True):
        splits[kept] = strata.split(classes, hashes)
    few = int(counts.sum(axis=1).min())
    held, last = cuts(few, rows.options)
    if (rows.options.validation and held == last) or (rows.options.test and last == few):
        yield f"target {target.name!r}: a class has only {few} rows, too few for every split"


def _split_by_time(rows: Rows, plan: ColumnPlan) -> Iterator[str]:
    """Make the last rows test, and those before them validation; equal times go together."""
    absent = rows.first(plan.source, lambda array: np.asarray(array.is_null(nan_is_null=True)))
    if absent is not None:
        raise SourceError(
            f"{absent[0]}: column {plan.name!r}: no value; --split-by-time needs one in every row"
        )

    def stream() -> Iterator[Part]:
        for numbers, splits in rows.numbers(plan):
            values, counts, _ = numbers.of_rows(splits != SKIPPED).counted()
            yield values, counts

    count = rows.counts()[TRAIN]
    ranks = cuts(count, rows.options)
    found = order_statistics(stream, sorted({rank for rank in ranks if rank < count}))
    for numbers, splits in rows.numbers(plan):
        times, _ = numbers.rows()
        _assign(splits, split_by_value(times, found.get(ranks[0]), found.get(ranks[1])))
    shares = (rows.options.validation, rows.options.test)
    for share, got, name in zip(shares, rows.counts()[1:], SPLIT_NAMES[1:], strict=True):
        if share and not got:
            yield f"column {plan.name!r}: no row is left for {name}: many have the same value"
    if not rows.counts()[TRAIN]:
        raise TooFewRowsError(
            f"column {plan.name!r}: no row is left for train: the first value is that of too many"
        )


def rows_without_target(spilled: Spilled, fitted: Fitted) -> Sequence[SampleError]:
    """Name the rows that are left out for want of a target, as they are asked for."""
    target = next((spec.name for spec in fitted.schema.columns if spec.role == "target"), None)
    splits = fitted.splits
    if target is None or splits is None:
        return ()

    def named() -> Iterator[SampleError]:
        for block, found in zip(spilled.blocks, splits, strict=True):
            for row in open_block(block.path).rows[found == SKIPPED].tolist():
                yield SampleError(f"{block.key}:{row}", f"the target {target!r} has no value")

    return Listed(fitted.skipped, named)
