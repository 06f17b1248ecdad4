"""The layout of a run over a table: what is known before it is read, and once it is fitted."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from loaders.errors import FormatError
from loaders.format.files import MANIFEST, to_json
from loaders.format.spec import SPLITS
from loaders.format.table_schema import TABLE_SCHEMA, TableSchema, read_table_schema
from preprocess.errors import SourceError
from preprocess.items import Listing
from preprocess.output import find_complete
from preprocess.plan import Plan, RunOptions
from preprocess.removal import read_known_manifest
from preprocess.skipped import listed_together
from preprocess.tables.codes import find_codes
from preprocess.tables.encode import Encoder
from preprocess.tables.encode_lists import beside_nbytes
from preprocess.tables.fit import Fitted, fit, rows_without_target
from preprocess.tables.like import Like, fit_like, outside_notes
from preprocess.tables.options import TableOptions
from preprocess.tables.recipe import FACT_NAMES, KIND, TableRecipe, read_facts
from preprocess.tables.refusals import TooFewRowsError, refuse_empty
from preprocess.tables.request import TableRequest
from preprocess.tables.schema import decide
from preprocess.tables.shuffle import Windows
from preprocess.tables.spill import Spilled
from preprocess.tables.store import (
    BlockRows,
    RecordSource,
    check_rows,
    cut_records,
    plan_window_rows,
)
from preprocess.tables.tokens import TextColumns, settle_text
from preprocess.tables.work import Work
from preprocess.touched import take_touched


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """A run over a table whose columns are known.

    Attributes:
        plan: The run.
        schema: The columns.
        samples: Rows of each split.
        missing: Rows of all splits without a value, by column; empty where all is done already.
        deals: Rows that are to be shuffled before the run, and their windows.
        work: The folder where the table lies; None where all is done already.
        seconds: What it took to read the table and to fit its columns.
    """

    plan: Plan
    schema: TableSchema
    samples: Mapping[str, int]
    missing: Mapping[str, int] = field(default_factory=dict)
    deals: tuple[tuple[BlockRows, Windows], ...] = ()
    work: Work | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Shared:
    """What a run takes from elsewhere.

    Attributes:
        like: Another dataset, whose schema and vocabularies are used.
        text: The columns whose texts become tokens, with the tokenizer.
    """

    like: Like | None
    text: TextColumns | None


def outline_run(
    listing: Listing, request: TableRequest, described: Mapping[str, Any], options: RunOptions
) -> Plan:
    """Return what is known of the run before the table is read: enough to tell it from others."""
    names = _split_names(listing, request.options)
    items = listing.splits.get("train", ())
    if set(names) != set(listing.splits):
        listing = replace(listing, splits=dict.fromkeys(names, items))
    value = {"recipe": described, "container": options.container, "nbytes": options.shard_nbytes}
    recipe_hash = hashlib.sha256(to_json(value)).hexdigest()
    times = [item.mtime_ns for group in listing.splits.values() for item in group]
    whole = to_json([recipe_hash, listing.fingerprint(), times])
    return Plan(
        listing=listing,
        out=request.out,
        recipes={},
        shards=dict.fromkeys(names, ()),
        capacities=dict.fromkeys(names, None),
        container=options.container,
        recipe_hash=recipe_hash,
        run_hash=hashlib.sha256(whole).hexdigest(),
        outlined_kind=KIND,
        outlined=described,
        outlined_facts=FACT_NAMES,
        aside={
            "shard_nbytes": options.shard_nbytes,
            "limit": request.limit,
            "follow_links": request.follow_links,
            "like": None if request.like is None else str(request.like.absolute()),
            "tokenizer": request.options.tokenizer,
        },
    )


def _split_names(listing: Listing, options: TableOptions) -> list[str]:
    shares = {"train": 1.0, "validation": options.validation, "test": options.test}
    asked = [name for name in SPLITS if shares[name]]
    if len(asked) == 1:
        return list(listing.splits) or asked
    if listing.splits and set(listing.splits) != {"train"}:
        raise SourceError(
            f"{listing.root}: has folders for splits ({', '.join(listing.splits)}) already; "
            "--validation and --test split what has none"
        )
    return asked


def finished_plan(outline: Plan, request: TableRequest, options: RunOptions) -> TablePlan | None:
    """Return the plan of a run that is complete already."""
    if (request.out / MANIFEST).is_file() and not options.overwrite:
        kept = read_known_manifest(request.out)
        # Class names are part of what the input is known by, and follow from it.
        outline = replace(outline, listing=replace(outline.listing, classes=kept.classes))
        outline = take_touched(outline, kept, options.worker_count())
    manifest = find_complete(outline, overwrite=options.overwrite)
    if manifest is None:
        return None
    schema = read_table_schema(request.out, manifest)
    if schema is None:
        raise FormatError(f"{request.out}: a table without {TABLE_SCHEMA}; --overwrite makes it")
    recipe = TableRecipe(
        described=to_json({}),
        schema=schema,
        task=read_facts(manifest, request.out).task,
        columns=(),
        source=None,
        like=request.like is not None,
    )
    return TablePlan(
        plan=replace(outline, recipes=dict.fromkeys(outline.shards, recipe)),
        schema=schema,
        samples={name: split.count for name, split in manifest.splits.items()},
    )


def lay_out(
    outline: Plan,
    spilled: Spilled,
    request: TableRequest,
    shared: Shared,
    options: RunOptions,
    work: Work,
) -> TablePlan:
    """Fit the columns and lay out the shards."""
    like, text = shared.like, shared.text
    workers = options.worker_count()
    listing = outline.listing
    listing = replace(listing, skipped=listed_together([listing.skipped, spilled.errors]))
    if not spilled.count:
        refuse_empty(outline, listing.skipped, listed=not work.is_temporary)
    if like is None:
        plans = decide(spilled.evidence, spilled.columns, request.options, request.wishes)
        fitted = fit(spilled, plans, request.options, workers, work.folder)
    else:
        fitted = fit_like(spilled, like, request.options, request.out_of_range)
    schema = fitted.schema
    known = fitted.codes
    codes = find_codes(spilled.blocks, schema, fitted.vocabularies, work.folder, workers, known)
    rows = {
        name: BlockRows(
            encoder=Encoder(
                schema=schema, options=request.options, out_of_range=request.out_of_range
            ),
            codes=codes,
            blocks=spilled.blocks,
            splits=fitted.splits or (None,) * len(spilled.blocks),
            split=name,
        )
        for name in outline.shards
    }
    _check_splits(rows, request.options)
    outside: Counter[str] = Counter()
    if like is not None:
        for each in rows.values():
            outside += check_rows(each, workers)
    if text is not None:
        text = settle_text(text, spilled.blocks, spilled.columns)
    beside = beside_nbytes(spilled.blocks, schema, None if text is None else text.row_nbytes)
    sources: dict[str, RecordSource] = dict(rows)
    deals = []
    if request.options.shuffle is not None:
        for name, each in rows.items():
            windows = plan_window_rows(each, request.options.shuffle, work.folder, beside)
            sources[name] = windows
            deals.append((each, windows.windows))
    size = schema.record_dtype.itemsize + (beside or 0)
    plan = replace(
        outline,
        listing=replace(
            listing,
            skipped=listed_together([listing.skipped, rows_without_target(spilled, fitted)]),
            classes=_classes(fitted),
            notes=(
                *listing.notes,
                *spilled.notes,
                *fitted.notes,
                *outside_notes(outside, schema, request.out_of_range),
                *(text.notes if text else ()),
            ),
        ),
        recipes={
            name: TableRecipe(
                described=to_json(request.recorded(like, text)),
                schema=schema,
                task=fitted.task,
                columns=spilled.columns,
                source=source,
                like=like is not None,
                text=text,
            )
            for name, source in sources.items()
        },
        shards={
            name: cut_records(source, name, size, options.shard_nbytes)
            for name, source in sources.items()
        },
        contents={
            name: spilled.contents.get(name, spilled.contents.get("train", ()))
            for name in outline.shards
        },
        extras={
            TABLE_SCHEMA: schema.to_bytes(),
            **fitted.vocabularies,
            **({} if text is None else text.files()),
        },
    )
    return TablePlan(
        plan=plan,
        schema=schema,
        samples={name: int(each.counts.sum()) for name, each in rows.items()},
        missing={name: found.missing for name, found in spilled.evidence.items()},
        deals=tuple(deals),
        work=work,
    )


def _classes(fitted: Fitted) -> tuple[str, ...]:
    """Return the names of the target's classes."""
    for spec in fitted.schema.columns:
        if spec.role == "target" and spec.vocabulary is not None:
            names = tuple(json.loads(fitted.vocabularies[spec.vocabulary])["values"])
            if "" in names:
                raise SourceError(
                    f"target {spec.name!r}: a class is the empty text, which names nothing; if it "
                    "is a missing value, leave it unquoted"
                )
            return names
    return ()


def _check_splits(rows: Mapping[str, BlockRows], options: TableOptions) -> None:
    """Refuse splits without rows: nothing could be fitted to train, or measured on the others."""
    for name, each in rows.items():
        if not each.counts.sum():
            ways = {
                "--group-by": options.group_by,
                "--split-by-time": options.split_by_time,
                "--stratify": options.stratify or None,
            }
            way = next((way for way, value in ways.items() if value is not None), None)
            said = f" by {way}" if way else ""
            raise TooFewRowsError(
                f"split {name!r} has no row{said}; give other shares, or --split-seed, or more rows"
            )
