"""New rows of a table that is a dataset already: encoded by its schema and its vocabularies."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError
from loaders.format.files import checksum
from loaders.format.out_of_range import FLOAT32_RANGE, OutOfRange
from loaders.format.spec import read_manifest
from loaders.format.table_schema import ColumnSpec, TableSchema, read_table_schema
from preprocess.errors import SourceError
from preprocess.tables.asked import check_names
from preprocess.tables.block import NULL, Evidence
from preprocess.tables.coded_texts import source_of
from preprocess.tables.fit import Fitted
from preprocess.tables.fit_rows import Rows
from preprocess.tables.fractions import first_fraction
from preprocess.tables.options import TableOptions
from preprocess.tables.plan import ColumnPlan, mixed_notes, without_text
from preprocess.tables.recipe import read_facts
from preprocess.tables.rounded import rounded_whole
from preprocess.tables.spill import Spilled, open_block
from preprocess.tables.splits import SKIPPED, SPLIT_NAMES
from preprocess.tables.values import EXACT_FLOAT, column_array, numbers_of

_NO_ROWS: Final = np.zeros(SKIPPED + 1, np.int64)

_INT64: Final = 1 << 63
_SHOWN: Final = 5
"""Columns that are named in one message."""

_ACCEPTED: Final[Mapping[str, frozenset[str]]] = {
    "integer": frozenset({"integer", "float", "time"}),
    "float": frozenset({"float", "integer", "decimal"}),
    "boolean": frozenset({"boolean"}),
    "date": frozenset({"date"}),
    "datetime": frozenset({"datetime", "date"}),
    "decimal": frozenset({"decimal", "float", "integer"}),
    "vector": frozenset({"list"}),
}
"""Kind of a column -> kinds of new values that can be of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Like:
    """Another dataset's columns.

    Attributes:
        root: Its folder.
        schema: Its columns.
        columns: Names of all columns that its source had.
        task: "classification", "regression", or None without a target.
        vocabularies: Path below the dataset -> bytes.
        recipe: As its manifest has it.
        sha256: Of all that.
    """

    root: Path
    schema: TableSchema
    columns: tuple[str, ...]
    task: str | None
    vocabularies: Mapping[str, bytes]
    recipe: Mapping[str, Any]
    sha256: str


def read_like(root: Path) -> Like:
    """Read the schema and the vocabularies of a dataset.

    Raises:
        SourceError: It is none of a table.
        IncompleteError: It is no dataset.
        FormatError: It is damaged.
    """
    manifest = read_manifest(root)
    schema = read_table_schema(root, manifest)
    if schema is None:
        raise SourceError(f"{root}: a dataset of {manifest.kind}, and no table (--like)")
    digest = hashlib.sha256(schema.to_bytes())
    vocabularies = {}
    for spec in schema.columns:
        if spec.vocabulary is not None:
            path = root / spec.vocabulary
            if checksum(path) != manifest.extras[spec.vocabulary][1]:
                raise FormatError(f"{path}: changed or damaged; copy the dataset again")
            vocabularies[spec.vocabulary] = path.read_bytes()
            digest.update(vocabularies[spec.vocabulary])
    facts = read_facts(manifest, root)
    return Like(
        root=root,
        schema=schema,
        columns=facts.columns,
        task=facts.task,
        vocabularies=vocabularies,
        recipe=manifest.recipe,
        sha256=digest.hexdigest(),
    )


def check_like(
    spilled: Spilled, like: Like, options: TableOptions, out_of_range: OutOfRange = "refuse"
) -> None:
    """Refuse rows with other columns than the dataset's, or of other kinds.

    Raises:
        SourceError: It names the columns.
    """
    target = next((spec.name for spec in like.schema.columns if spec.role == "target"), None)
    if options.target not in {None, target}:
        has = "no target" if target is None else f"the target {target!r}"
        remedy = "leave --target out, or prepare that one again with it"
        raise SourceError(f"--target {options.target!r}: {like.root} has {has}; {remedy}")
    needed = {source_of(spec, like.schema)[0] for spec in like.schema.columns}
    missing = [name for name in like.columns if name in needed - set(spilled.columns)]
    ignored = set(options.ignore)
    check_names(spilled.columns, TableOptions(ignore=options.ignore), {})
    both = sorted(needed & ignored)
    extra = [name for name in spilled.columns if name not in {*like.columns, *ignored}]
    said = []
    for names, what in (
        (missing, "missing"),
        (both, "named by --ignore, and needed"),
        (extra, "not among its columns"),
    ):
        if names:
            more = ", ..." if len(names) > _SHOWN else ""
            said.append(f"{', '.join(map(repr, names[:_SHOWN]))}{more}: {what}")
    if not missing:
        said += _retyped(spilled, like, options, out_of_range)
    if said:
        raise SourceError(
            f"columns differ from {like.root}: {'; '.join(said[:_SHOWN])}; "
            "--ignore leaves out what is not among its columns"
        )


def _retyped(
    spilled: Spilled, like: Like, options: TableOptions, out_of_range: OutOfRange
) -> Iterator[str]:
    for spec in like.schema.columns:
        name, part = source_of(spec, like.schema)
        found = spilled.evidence[name]
        if part is not None or found.kinds == NULL or found.missing == found.count:
            continue
        if spec.kind == "categorical":
            if why := without_text(found):
                yield f"{name!r}: categorical there, and {why} here"
        elif not found.kinds & _ACCEPTED[spec.kind]:
            value, place = found.not_kind.get(
                "float" if spec.kind == "decimal" else spec.kind, ("", "")
            )
            here = f"{value!r} at {place}" if place else ", ".join(sorted(found.kinds))
            yield f"{name!r}: {spec.kind} there, here {here}"
        elif spec.kind == "integer":
            yield from _not_whole(spec, spilled, options, out_of_range)


def _not_whole(
    spec: ColumnSpec, spilled: Spilled, options: TableOptions, out_of_range: OutOfRange
) -> Iterator[str]:
    """Say which number of a column of whole ones is not whole, or beyond 64 bits."""
    found = spilled.evidence[spec.name]
    if "integer" not in found.kinds and "float" in found.kinds:
        # 1.0 is 1; what is not whole would lose something.
        if (fraction := first_fraction(spilled, spec.name, options)) is not None:
            yield f"{spec.name!r}: integer there, here {str(fraction[0])!r} at {fraction[1]}"
        return
    # What is within these types is told by file and line when it is encoded.
    low, high = (0, 2 * _INT64 - 1) if spec.unsigned else (-_INT64, _INT64 - 1)
    if out_of_range != "refuse" and spec.role != "target":
        low, high = -_INT64, 2 * _INT64 - 1
    ends = [end for end in (found.minimum, found.maximum) if isinstance(end, int)]
    beyond = next((number for number in ends if not low <= number <= high), None)
    if beyond is not None:
        yield f"{spec.name!r}: {beyond} is outside {spec.shown_range}, which is stored there"


def rounded_notes(spilled: Spilled, like: Like, rows: Rows) -> Iterator[str]:
    """Say which new numbers lose something in float64 or float32, and which types are mixed."""
    options = rows.options
    for spec in like.schema.columns:
        if spec.kind == "categorical":
            yield from mixed_notes(spec.name, spilled.evidence[spec.name])
        if spec.kind != "float":
            continue
        plan = ColumnPlan(name=spec.name, kind="float", source=spec.name, beyond_float=True)
        for loss in rounded_whole(plan, rows) if _beyond_float(spilled.evidence[spec.name]) else ():
            yield (
                f"column {spec.name!r}: {loss.values:,} values: {loss.what}, the worst by "
                f"{loss.worst:.6g}"
            )
        if spec.dtype == "float32":
            count, worst = _rounded(spilled, spec, options)
            if count:
                yield (
                    f"column {spec.name!r}: {count:,} values are rounded to float32, as it is in "
                    f"{like.root}, the worst by {worst:.6g}"
                )


def _beyond_float(evidence: Evidence) -> bool:
    low, high = evidence.minimum or 0, evidence.maximum or 0
    return low <= -EXACT_FLOAT or high >= EXACT_FLOAT or "decimal" in evidence.kinds


def _rounded(spilled: Spilled, spec: ColumnSpec, options: TableOptions) -> tuple[int, float]:
    count, worst = 0, 0.0
    for block in spilled.blocks:
        array = column_array(open_block(block.path).table, spec.name)
        values, valid = numbers_of(array, "float", options, name=spec.name).rows()
        with np.errstate(over="ignore"):
            apart = np.abs(values - values.astype(np.float32))[valid & np.isfinite(values)]
        count += int(np.count_nonzero(apart))
        worst = max(worst, float(apart.max(initial=0.0)))
    return count, worst


def outside_notes(counts: Mapping[str, int], schema: TableSchema, how: OutOfRange) -> Iterator[str]:
    """Say how many numbers of each column were outside of what is stored, and what they became."""
    became = "the nearest of these" if how == "clip" else "missing"
    for spec in schema.columns:
        if spec.name in counts:
            low, high = FLOAT32_RANGE
            known = f"{low}..{high}" if spec.dtype == "float32" else spec.shown_range
            unit = f" * 10**{spec.exponent}" if spec.exponent else ""
            yield (
                f"column {spec.name!r}: {counts[spec.name]:,} values outside {known}{unit} "
                f"became {became}"
            )


def fit_like(
    spilled: Spilled, like: Like, options: TableOptions, out_of_range: OutOfRange
) -> Fitted:
    """Return how new rows are encoded by another dataset's schema.

    Raises:
        SourceError: Their columns are not the dataset's.
    """
    check_like(spilled, like, options, out_of_range)
    splits = _splits(spilled, like.schema)
    totals = sum((np.bincount(each, minlength=SKIPPED + 1) for each in splits), _NO_ROWS)
    rows = Rows(blocks=spilled.blocks, splits=splits, options=options)
    return Fitted(
        schema=like.schema,
        vocabularies=like.vocabularies,
        splits=splits,
        counts=tuple(totals[: len(SPLIT_NAMES)].tolist()),
        skipped=int(totals[SKIPPED]),
        task=like.task,
        unknown={},
        sources={spec.name: source_of(spec, like.schema) for spec in like.schema.columns},
        notes=tuple(rounded_notes(spilled, like, rows)),
    )


def _splits(spilled: Spilled, schema: TableSchema) -> tuple[NDArray[np.uint8], ...]:
    """Return the split of each row of each block: its file's, unless its target is missing."""
    target = next((spec for spec in schema.columns if spec.role == "target"), None)
    splits = []
    for block in spilled.blocks:
        rows = np.full(block.count, SPLIT_NAMES.index(block.split), np.uint8)
        if target is not None:
            array = column_array(open_block(block.path).table, target.name)
            rows[np.asarray(array.is_null(nan_is_null=True))] = SKIPPED
        splits.append(rows)
    return tuple(splits)
