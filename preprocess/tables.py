"""Tables: CSV, Parquet, Arrow, JSON lines and data frames -> packed records, one a row."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from loaders.errors import FormatError
from loaders.format.files import MANIFEST, to_json
from loaders.format.spec import SPLITS, Manifest
from loaders.format.table_schema import TABLE_SCHEMA, TableSchema, read_table_schema
from preprocess.errors import SampleError, SourceError
from preprocess.output import check_paths, check_room, find_complete
from preprocess.plan import Plan, RunOptions
from preprocess.removal import read_known_manifest
from preprocess.report import Report
from preprocess.run import OnProgress, run
from preprocess.sources import Listing
from preprocess.table_codes import find_codes
from preprocess.table_encode import Encoder
from preprocess.table_fit import Fitted, fit
from preprocess.table_frames import frame_listing, is_frame, spill_frame
from preprocess.table_like import Like, fit_like, read_like
from preprocess.table_list import list_tables
from preprocess.table_options import TableOptions
from preprocess.table_recipe import UNKNOWN_VALUES, TableRecipe, recorded
from preprocess.table_scan import spill
from preprocess.table_schema import decide
from preprocess.table_shuffle import Windows
from preprocess.table_spill import Spilled, open_block
from preprocess.table_splits import SKIPPED
from preprocess.table_store import (
    BlockRows,
    RecordSource,
    check_rows,
    cut_records,
    deal_rows,
    plan_window_rows,
)
from preprocess.table_toml import Wish
from preprocess.table_work import Work, hold_work, remove_work, work_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """What is to be prepared, and how.

    Attributes:
        source: Folder, file or pattern; or a data frame of pandas or polars.
        out: Folder to write the dataset to.
        options: How the table is read, typed and split.
        wishes: What is asked of single columns, by name.
        like: Another dataset, whose schema and vocabularies are used.
        limit: Prepare only so many files, evenly spaced.
        follow_links: Take what symbolic links point to.
    """

    source: Any
    out: Path
    options: TableOptions
    wishes: Mapping[str, Wish] = field(default_factory=dict)
    like: Path | None = None
    limit: int | None = None
    follow_links: bool = False

    def recorded(self, like: Like | None) -> dict[str, Any]:
        """Return everything that changes bytes, as JSON values."""
        wishes = {name: asdict(wish) for name, wish in sorted(self.wishes.items())}
        return recorded(self.options, wishes, None if like is None else like.sha256)


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """A run over a table whose columns are known.

    Attributes:
        plan: The run.
        schema: The columns.
        samples: Rows of each split.
        like: Whether schema and vocabularies are another dataset's.
        missing: Rows of all splits without a value, by column; empty where all is done already.
        deals: Rows that are to be shuffled before the run, and their windows.
        work: The folder where the table lies; None where all is done already.
    """

    plan: Plan
    schema: TableSchema
    samples: Mapping[str, int]
    like: bool
    missing: Mapping[str, int] = field(default_factory=dict)
    deals: tuple[tuple[BlockRows, Windows], ...] = ()
    work: Work | None = None


@contextmanager
def plan_table(
    request: TableRequest, run_options: RunOptions, *, dry_run: bool = False
) -> Iterator[TablePlan]:
    """Read a table once, decide what its columns become, and lay out the run.

    The parsed table lies in a hidden folder beside the output folder until the end of the `with`
    block; an interrupted run keeps it.

    Args:
        request: What is to be prepared.
        run_options: How to run.
        dry_run: Put the parsed table in a folder that is removed whatever happens.

    Yields:
        The plan, for `run_table`.

    Raises:
        SourceError: There is nothing to prepare, or columns are not what they should be.
        OutputError: The output folder cannot take the dataset.
    """
    like = None if request.like is None else read_like(request.like)
    described = request.recorded(like)
    framed = is_frame(request.source)
    listing = Listing(root=Path(), splits={}) if framed else _list(request)
    outline = _outline(listing, request, described, run_options)
    if not framed and (done := _finished(outline, request, run_options)) is not None:
        yield done
        return
    workers = run_options.worker_count()
    with hold_work(request.out, dry_run=dry_run) as work:
        if framed:
            spilled = spill_frame(request.source, request.options, work.folder, workers)
            outline = _outline(frame_listing(spilled), request, described, run_options)
            if (done := _finished(outline, request, run_options)) is not None:
                yield done
                return
        else:
            room = sum(item.nbytes for items in listing.splits.values() for item in items)
            check_room(work.folder, room)
            spilled = spill(listing, request.options, work.folder, workers, work.clear)
        yield _plan(outline, spilled, request, like, run_options, work)


def _list(request: TableRequest) -> Listing:
    source = Path(request.source)
    listing = list_tables(source, request.options, follow_links=request.follow_links)
    if source.is_dir():
        check_paths(source, request.out)
    return listing if request.limit is None else listing.limited(request.limit)


def _outline(
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


def _finished(outline: Plan, request: TableRequest, options: RunOptions) -> TablePlan | None:
    """Return the plan of a run that is complete already."""
    kept: Manifest | None = None
    if (request.out / MANIFEST).is_file() and not options.overwrite:
        kept = read_known_manifest(request.out)
        # Class names are part of what the input is known by, and follow from it.
        outline = replace(outline, listing=replace(outline.listing, classes=kept.classes))
    manifest = find_complete(outline, overwrite=options.overwrite)
    if manifest is None:
        return None
    schema = read_table_schema(request.out, manifest)
    if schema is None:
        raise FormatError(f"{request.out}: a table without {TABLE_SCHEMA}; --overwrite makes it")
    recipe = TableRecipe(
        described=to_json({}),
        schema=schema,
        task=manifest.recipe["found_task"],
        columns=(),
        source=None,
    )
    return TablePlan(
        plan=replace(outline, recipes=dict.fromkeys(outline.shards, recipe)),
        schema=schema,
        samples={name: split.count for name, split in manifest.splits.items()},
        like=request.like is not None,
    )


def _plan(
    outline: Plan,
    spilled: Spilled,
    request: TableRequest,
    like: Like | None,
    options: RunOptions,
    work: Work,
) -> TablePlan:
    """Fit the columns and lay out the shards."""
    workers = options.worker_count()
    listing = outline.listing
    listing = replace(listing, skipped=(*listing.skipped, *spilled.errors))
    _check_any(spilled, listing)
    if like is None:
        plans = decide(spilled.evidence, spilled.columns, request.options, request.wishes)
        fitted = fit(spilled, plans, request.options, workers)
    else:
        fitted = fit_like(spilled, like, request.options)
    schema = fitted.schema
    codes = find_codes(spilled.blocks, schema, fitted.vocabularies, work.folder, workers)
    rows = {
        name: BlockRows(
            encoder=Encoder(schema=schema, options=request.options),
            codes=codes,
            blocks=spilled.blocks,
            splits=fitted.splits or (None,) * len(spilled.blocks),
            split=name,
        )
        for name in outline.shards
    }
    _check_splits(rows, request.options)
    if like is not None:
        for each in rows.values():
            check_rows(each, workers)
    sources: dict[str, RecordSource] = dict(rows)
    deals = []
    if request.options.shuffle is not None:
        for name, each in rows.items():
            windows = plan_window_rows(each, request.options.shuffle, work.folder)
            sources[name] = windows
            deals.append((each, windows.windows))
    size = schema.record_dtype.itemsize
    plan = replace(
        outline,
        listing=replace(
            listing,
            skipped=(*listing.skipped, *_without_target(spilled, fitted)),
            classes=_classes(fitted),
            notes=(*listing.notes, *spilled.notes, *fitted.notes),
        ),
        recipes={
            name: TableRecipe(
                described=to_json(request.recorded(like)),
                schema=schema,
                task=fitted.task,
                columns=spilled.columns,
                source=source,
            )
            for name, source in sources.items()
        },
        shards={
            name: cut_records(source, name, size, options.shard_nbytes)
            for name, source in sources.items()
        },
        extras={TABLE_SCHEMA: schema.to_bytes(), **fitted.vocabularies},
    )
    return TablePlan(
        plan=plan,
        schema=schema,
        samples={name: int(each.counts.sum()) for name, each in rows.items()},
        like=like is not None,
        missing={name: found.missing for name, found in spilled.evidence.items()},
        deals=tuple(deals),
        work=work,
    )


def _without_target(spilled: Spilled, fitted: Fitted) -> Iterator[SampleError]:
    """Name the rows that are left out for want of a target."""
    target = next((spec for spec in fitted.schema.columns if spec.role == "target"), None)
    if target is None or not fitted.skipped or fitted.splits is None:
        return
    for block, splits in zip(spilled.blocks, fitted.splits, strict=True):
        for row in open_block(block.path).rows[splits == SKIPPED].tolist():
            yield SampleError(f"{block.key}:{row}", f"the target {target.name!r} has no value")


def _classes(fitted: Fitted) -> tuple[str, ...]:
    """Return the names of the target's classes."""
    for spec in fitted.schema.columns:
        if spec.role == "target" and spec.vocabulary is not None:
            return tuple(json.loads(fitted.vocabularies[spec.vocabulary])["values"])
    return ()


def _check_any(spilled: Spilled, listing: Listing) -> None:
    """Refuse a source without rows."""
    if spilled.count:
        return
    if listing.skipped:
        first = listing.skipped[0]
        raise SourceError(
            f"{listing.name}: no row could be read, no dataset is written; the first of "
            f"{len(listing.skipped):,} errors: {first}"
        )
    raise SourceError(f"{listing.name}: empty, it has no row; no dataset is written")


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
            raise SourceError(
                f"split {name!r} has no row{said}; give other shares, or --split-seed, or more rows"
            )


def run_table(
    planned: TablePlan, run_options: RunOptions, on_progress: OnProgress = lambda *_: None
) -> Report:
    """Carry out what `plan_table` has planned: see `preprocess.run.run`.

    Rows that are shuffled are first dealt out to windows beside the output folder.
    """
    plan = planned.plan
    if find_complete(plan, overwrite=run_options.overwrite) is None and planned.work is not None:
        if planned.deals:
            nbytes = sum(sum(w.counts) * w.entry.itemsize for _, w in planned.deals)
            check_room(planned.work.folder, nbytes + plan.nbytes)
        for rows, windows in planned.deals:
            deal_rows(rows, windows, run_options.worker_count())
    report = run(plan, run_options, on_progress)
    return replace(report, notes=(*report.notes, *_notes(planned, report)))


def _notes(planned: TablePlan, report: Report) -> Iterator[str]:
    """Say what no vocabulary has, and what could not be removed."""
    columns = planned.schema.columns if planned.like else ()
    known = [s.name for s in columns if s.vocabulary is not None and s.role == "feature"]
    counts = report.tallies.get(UNKNOWN_VALUES, ())
    unknown = [f"{name} {count:,}" for name, count in zip(known, counts, strict=False) if count]
    if unknown:
        yield f"values that no vocabulary has, stored as unknown: {', '.join(unknown)}"
    if planned.work is None:
        left = remove_work(work_folder(planned.plan.out))
    else:
        left = planned.work.try_clear()
    if left is not None:
        yield left


def table_to_shards(
    source: Any,
    out: Path | str,
    options: TableOptions | None = None,
    run_options: RunOptions | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> Report:
    """Prepare a table as a dataset of records: what `prep table` does.

    Args:
        source: Folder, file or pattern of CSV, Parquet, Arrow or JSON lines; or a data frame of
            pandas or polars.
        out: Folder to write the dataset to.
        options: How the table is read, typed and split.
        run_options: How to run; the defaults suit most.
        on_progress: Told (samples, skipped, bytes) as they are made, from worker threads.

    Returns:
        What was done; rows that could not be read are in its `skipped`.

    Raises:
        SourceError: There is nothing to prepare, or columns are not what they should be.
        OutputError: The output folder cannot take the dataset.
    """
    chosen = run_options or RunOptions()
    found = source if is_frame(source) else Path(source)
    request = TableRequest(source=found, out=Path(out), options=options or TableOptions())
    with plan_table(request, chosen) as planned:
        return run_table(planned, chosen, on_progress)
