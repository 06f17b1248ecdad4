"""One column, fitted: its codes by a vocabulary of train, or its numbers."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.table_schema import Loss
from preprocess.errors import SourceError
from preprocess.tables.fit_numbers import fit_floats, fit_whole
from preprocess.tables.fit_rows import Rows, classes_of
from preprocess.tables.fitted_column import FittedColumn, code_dtype, make_spec
from preprocess.tables.list_values import ITEM_WORDS, kind_of_items
from preprocess.tables.plan import ColumnPlan, with_name
from preprocess.tables.splits import SKIPPED, SPLIT_NAMES, TRAIN
from preprocess.tables.text_codes import FIRST, MISSING, UNKNOWN, is_coded_text, write_codes
from preprocess.tables.values import Texts, texts_of
from preprocess.tables.vocabulary import (
    TextTally,
    are_numbers,
    are_times,
    by_count,
    by_value,
    vocabulary_bytes,
)
from preprocess.texts.kinds import kind_by_name

if TYPE_CHECKING:
    import pyarrow as pa

    from loaders.format.table_column import ColumnKind

_OWN_VALUES: Final = 0.9
"""Share of rows with a value of their own from which on a column looks like an id."""

_SOME_NUMBERS: Final = 0.25
"""Share of numbers from which on words among them are named."""

_MOST_TIMES: Final = 0.25
"""Share of dates and times from which on what is none is named."""

_FEW: Final = 1000
"""Different values that are no burden, ids or not."""

_SHOWN: Final = 80


def fit_column(plan: ColumnPlan, rows: Rows, place: int) -> FittedColumn:
    """Fit one column.

    Args:
        plan: What it becomes.
        rows: All of them.
        place: Its number in the schema, which names its vocabulary.

    Raises:
        SourceError: It does not fit what is asked for; column, value, file and line are named.
    """
    if plan.kind == "vector":
        plan = _with_values(plan, rows)
    if plan.buckets is not None:
        return _fit_hashed(plan, rows, plan.buckets)
    if plan.kind == "categorical" or plan.values == "texts":
        return _fit_codes(plan, rows, place)
    if plan.kind == "float" or plan.values == "floats":
        return fit_floats(plan, rows)
    return fit_whole(plan, rows)


def _with_values(plan: ColumnPlan, rows: Rows) -> ColumnPlan:
    """Look at what lists hold, and refuse what has no place in a record."""
    import pyarrow as pa

    types: dict[pa.DataType, str] = {}
    kinds: set[ColumnKind] = set()
    for spilled, (array, _) in zip(rows.blocks, rows.arrays(plan.source), strict=True):
        if (kind := kind_of_items(array)) is not None:  # not of empty lists alone
            types.setdefault(array.type.value_type, spilled.key)
            kinds.add(kind)
    words = {ITEM_WORDS[kind] for kind in kinds}
    if len(words) > 1 or (kinds == {"datetime"} and len(types) > 1):
        said = ", ".join(f"{kind} ({key})" for kind, key in sorted(types.items(), key=str))
        raise SourceError(
            f"column {plan.name!r}: holds lists of {said}; a column takes those of one kind; "
            f"{with_name('--ignore', plan.name)}"
        )
    if words <= {"texts"}:
        return replace(plan, values="texts")
    (holds,) = kinds if len(kinds) == 1 else (None,)
    if holds == "boolean":
        return replace(plan, values="whole", holds=holds, low=0, high=1)
    if holds == "date" or holds == "datetime":
        return replace(plan, values="whole", holds=holds)
    whole = all(pa.types.is_integer(t) for t in types)
    floats = plan.dtype in {"float32", "float64"}
    unsigned = pa.uint64() in types and all(pa.types.is_unsigned_integer(t) for t in types)
    if whole and not floats:
        return replace(plan, values="whole", unsigned=unsigned)
    beyond = any(pa.types.is_integer(t) for t in types)
    return replace(plan, values="floats", beyond_float=beyond)


def _fit_hashed(plan: ColumnPlan, rows: Rows, buckets: int) -> FittedColumn:
    if plan.values in {"whole", "floats"}:
        raise SourceError(f"column {plan.name!r}: lists of numbers are not hashed")
    present = sum(
        int(texts.of_rows(splits != SKIPPED).counts()[:-1].sum())
        for texts, splits in rows.texts(plan)
    )
    loss = Loss(what=f"hashed into {buckets} buckets", values=present, worst=0.0)
    dtype = code_dtype(plan, buckets, f"{buckets} buckets")
    return FittedColumn(spec=make_spec(plan, dtype, (loss,), buckets=buckets))


def counted_texts(plan: ColumnPlan, rows: Rows) -> "tuple[pa.LargeStringArray, NDArray[np.int64]]":
    """Return the different texts of a column, and [k, 3] how often each is in which split."""
    values, counts = _tallied(plan, rows).found()
    used = counts.any(axis=1)  # texts of rows without a target are none
    return (values, counts) if used.all() else (values.filter(used), counts[used])


def _tallied(plan: ColumnPlan, rows: Rows, numbers: IO[bytes] | None = None) -> TextTally:
    """Count the texts of a column, block by block."""
    found = TextTally(len(SPLIT_NAMES), numbers)
    if plan.kind == "vector":
        for texts, splits in rows.texts(plan):
            found.add(texts.values, _counts(texts, splits))
        return found
    for array, splits in rows.arrays(plan.source):
        if not is_coded_text(array) or not len(splits) or (splits != splits[0]).any():
            texts = texts_of(array)
            values, counts = texts.values, _counts(texts, splits)
        else:
            values, counts = array.dictionary, _counts_of_split(array, int(splits[0]))
        found.add(classes_of(values, plan), counts)
    return found


def _counts_of_split(array: "pa.DictionaryArray", split: int) -> NDArray[np.int64]:
    """Return how often each text is in which split, [k, 3] int64, where all rows are of one."""
    counts = np.zeros((len(SPLIT_NAMES), len(array.dictionary)), np.int64)
    if split != SKIPPED:
        indices = array.indices.drop_null() if array.null_count else array.indices
        counts[split] = np.bincount(indices.to_numpy(), minlength=counts.shape[1])
    return counts.T


def _counts(texts: Texts, splits: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return how often each text is in which split, [k, 3] int64."""
    size = len(texts.values) + 1
    counts = np.zeros((len(SPLIT_NAMES), size), np.int64)
    if len(splits) and (splits == splits[0]).all():
        if splits[0] != SKIPPED:
            counts[splits[0]] = texts.counts()
    else:
        kept = np.flatnonzero(splits != SKIPPED)
        places = texts.index[kept] + size * splits[kept].astype(np.int64)
        counts[:] = np.bincount(places, minlength=counts.size).reshape(counts.shape)
    return counts[:, :-1].T


def _fit_codes(plan: ColumnPlan, rows: Rows, place: int) -> FittedColumn:
    """Make a vocabulary: of a feature from train alone; the classes of a target are all."""
    import pyarrow as pa

    path = f"table/vocabulary/{place:04d}.json"
    if rows.folder is None or plan.role == "target":
        return _coded(plan, rows, path, *counted_texts(plan, rows))[0]
    # Nameless, and gone with the process.
    with tempfile.TemporaryFile(dir=rows.folder) as numbers:
        tally = _tallied(plan, rows, numbers)
        values, counts = tally.found()
        used = np.flatnonzero(counts.any(axis=1))
        fitted, order = _coded(plan, rows, path, values.take(pa.array(used)), counts[used])
        codes = np.full(len(values) + 1, UNKNOWN, np.int32)
        codes[-1] = MISSING
        codes[used[order]] = FIRST + np.arange(len(order), dtype=np.int32)
        return replace(fitted, codes=write_codes(numbers, codes, rows.folder, place))


def _coded(
    plan: ColumnPlan,
    rows: Rows,
    path: str,
    values: "pa.LargeStringArray",
    counts: NDArray[np.int64],
) -> tuple[FittedColumn, NDArray[np.int64]]:
    """Return a column of these texts, and which of them have codes, in the order of the codes."""
    import pyarrow as pa

    train = counts[:, TRAIN]
    if plan.role == "target":
        order, first = by_value(values, rows.options), 0
    else:
        order, first = by_count(values, train, plan.min_count), FIRST
    left = np.ones(len(values), np.bool_)
    left[order] = False
    unknown = tuple(counts[left].sum(axis=0).tolist())
    dtype = code_dtype(plan, len(order) + first - 1, f"{len(order)} values")
    losses: tuple[Loss, ...] = ()
    if unknown[TRAIN]:
        what = f"values that occur less than {plan.min_count} times have the code of unknown ones"
        losses = (Loss(what=what, values=unknown[TRAIN], worst=0.0),)
    fitted = FittedColumn(
        spec=make_spec(plan, dtype, losses, vocabulary=path, values=len(order)),
        vocabulary=vocabulary_bytes(values.take(pa.array(order)), train[order]),
        unknown=unknown,
        constant=np.count_nonzero(train) == 1,
        notes=tuple(_code_notes(plan, rows, values, counts)),
    )
    return fitted, order


def _remedy(word: str, where: str) -> str:
    if kind_by_name(where.rpartition(":")[0]) == "json":
        return "null says that a value is missing"
    if not word:
        return "an empty text in quotes is no missing value: leave the quotes out there"
    return "--null-values says which words are missing values"


def _code_notes(
    plan: ColumnPlan, rows: Rows, values: "pa.LargeStringArray", counts: NDArray[np.int64]
) -> Iterator[str]:
    """Say what may not be what it looks like: numbers with a few words, ids, a constant."""
    import pyarrow as pa
    import pyarrow.compute as pc

    name, total = plan.name, int(counts.sum())
    if plan.role == "target":
        absent = values.filter(counts[:, TRAIN] == 0).to_pylist()
        if absent:
            yield f"target {name!r}: no row of train has the class {absent[0][:_SHOWN]!r}"
        if pc.count_distinct(pc.utf8_lower(values)).as_py() < len(values):
            yield f"target {name!r}: some of its classes differ in upper and lower case alone"
        return
    if rows.options.header and pc.index(values, pa.scalar(name, values.type)).as_py() >= 0:
        yield (
            f"column {name!r}: its name is also one of its values; if the header is a row of "
            "values, say --no-header"
        )
    if plan.word is not None:
        numbers = int(counts[are_numbers(values, rows.options)].sum())
        if numbers >= _SOME_NUMBERS * total > 0:
            word, where = plan.word
            yield (
                f"{where}: column {name!r}: {numbers:,} of {total:,} values are numbers, and "
                f"others are words such as {word!r}: taken as categories; {_remedy(word, where)}"
            )
    if plan.odd_time is not None:
        times = int(counts[are_times(values)].sum())
        if times >= _MOST_TIMES * total > 0:
            odd, where = plan.odd_time
            yield (
                f"{where}: column {name!r}: {times:,} of {total:,} values are written like dates "
                f"or times, and {odd!r} is none: taken as categories; mend it, or "
                f"{_remedy(odd, where)}"
            )
    if len(values) > max(_OWN_VALUES * total, _FEW):
        yield (
            f"column {name!r}: {len(values):,} different values in {total:,} rows: an id, perhaps; "
            f"{with_name('--ignore', name)}, or --hash-buckets"
        )
