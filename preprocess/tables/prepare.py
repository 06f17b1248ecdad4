"""Tables: CSV, Parquet, Arrow, JSON lines and data frames -> packed records, one a row."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from preprocess.errors import OutputError
from preprocess.fatal import FATAL
from preprocess.items import Listing
from preprocess.output import check_paths, find_complete
from preprocess.plan import Plan, RunOptions
from preprocess.report import Report
from preprocess.room import check_room, saying_what_is_wanted
from preprocess.run import OnProgress, Runner, run
from preprocess.spelling import in_python
from preprocess.tables.block import FRAME
from preprocess.tables.frames import frame_listing, is_frame, spill_frame
from preprocess.tables.layout import (
    Shared,
    TablePlan,
    finished_plan,
    lay_out,
    outline_run,
)
from preprocess.tables.like import read_like
from preprocess.tables.listing import list_tables
from preprocess.tables.options import TableOptions
from preprocess.tables.parts import Reading
from preprocess.tables.refusals import refusals_named
from preprocess.tables.request import TableRequest
from preprocess.tables.scan import spill
from preprocess.tables.spill import unmap_blocks
from preprocess.tables.store import deal_rows
from preprocess.tables.tokens import check_same_texts, find_text
from preprocess.tables.work import hold_work, remove_work, work_folder


@contextmanager
def plan_table(
    request: TableRequest,
    run_options: RunOptions,
    *,
    dry_run: bool = False,
    refused: Mapping[str, str] | None = None,
    expect: Callable[[Plan], None] = lambda _: None,
) -> Iterator[TablePlan]:
    """Read a table once, decide what its columns become, and lay out the run.

    The parsed table lies in a hidden folder beside the output folder until the end of the `with`
    block; an interrupted run keeps it.

    Args:
        request: What is to be prepared.
        run_options: How to run.
        dry_run: Put the parsed table in a folder that is removed whatever happens.
        refused: Files that are left out unread -> why.
        expect: Refuses another source than is wanted, before its columns are looked at; it is given
            a plan without recipes.

    Yields:
        The plan, for `run_table`.

    Raises:
        SourceError: There is nothing to prepare, or columns are not what they should be.
        OutputError: The output folder cannot take the dataset.
    """
    if run_options.append:
        raise OutputError(
            f"{request.out}: nothing can be appended to a table: its vocabularies and types were "
            f"fitted to all rows once; prepare new rows as a dataset of their own, "
            "with --like and the folder of the first"
        )
    start = time.perf_counter()
    like = None if request.like is None else read_like(request.like)
    text = find_text(request.options)
    if like is not None:
        check_same_texts(text, like.recipe, str(request.like))
    described = request.recorded(like, text)
    framed = is_frame(request.source)
    listing = Listing(root=Path(), splits={}) if framed else _list(request)
    outline = outline_run(listing, request, described, run_options)
    if not framed:
        expect(outline)
    if not framed and (done := finished_plan(outline, request, run_options)) is not None:
        yield done
        return
    workers = run_options.worker_count()
    with hold_work(request.out, dry_run=dry_run) as work:
        if framed:
            spilled = spill_frame(request.source, request.options, work.folder, workers)
            outline = outline_run(frame_listing(spilled), request, described, run_options)
            expect(outline)
            if (done := finished_plan(outline, request, run_options)) is not None:
                yield replace(done, work=work)
                return
        else:
            room = sum(item.nbytes for items in listing.splits.values() for item in items)
            check_room(work.folder, room)
            timeout = run_options.item_timeout
            reading = Reading(request.options, request.limit, refused or {}, timeout)
            clear = partial(work.clear, (FATAL,))
            with saying_what_is_wanted(work.folder, lambda: room):
                spilled = spill(listing, reading, work.folder, workers, clear)
        try:
            with refusals_named(FRAME if framed else listing.name, spilled):
                planned = lay_out(outline, spilled, request, Shared(like, text), run_options, work)
            yield replace(planned, seconds=time.perf_counter() - start)
        finally:
            unmap_blocks()


def _list(request: TableRequest) -> Listing:
    source = Path(request.source)
    listing = list_tables(source, request.options, follow_links=request.follow_links)
    if source.is_dir():
        check_paths(source, request.out)
    return listing


def run_table(
    planned: TablePlan,
    run_options: RunOptions,
    on_progress: OnProgress = lambda *_: None,
    runner: Runner = run,
) -> Report:
    """Carry out what `plan_table` has planned: see `preprocess.run.run`.

    Rows that are shuffled are first dealt out to windows beside the output folder; `runner` does
    the rest.
    """
    plan = planned.plan
    if find_complete(plan, overwrite=run_options.overwrite) is None and planned.work is not None:
        nbytes = plan.nbytes + sum(sum(w.counts) * w.entry.itemsize for _, w in planned.deals)
        if planned.deals:
            check_room(planned.work.folder, nbytes)
        with saying_what_is_wanted(planned.work.folder, lambda: nbytes):
            for rows, windows in planned.deals:
                deal_rows(rows, windows, run_options.worker_count())
    report = runner(plan, run_options, on_progress)
    return replace(report, notes=(*report.notes, *_notes(planned)))


def _notes(planned: TablePlan) -> Iterator[str]:
    """Say what came before the run, and what could not be removed."""
    if planned.seconds:
        yield f"the table was read and its columns fitted in {planned.seconds:.1f} s before that"
    if planned.work is None:
        left = remove_work(work_folder(planned.plan.out))
    else:
        left = planned.work.try_clear()
    if left is not None:
        yield left


@in_python({"--target": "target"})  # photos have several: `targets`
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
            pandas or polars, a table of Arrow, or a dict of columns.
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
