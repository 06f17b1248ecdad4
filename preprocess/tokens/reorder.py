"""Documents in another order, or without duplicates: two runs of the same engine.

The first run prepares the documents as they come into a hidden folder beside the output folder;
which are kept and in which order is then arithmetic on their numbers (`preprocess.tokens.order`);
the second run copies ranges of that order into the real layout. Each run resumes by its own
receipts, so that the same command finishes whatever was stopped.
"""

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.files import ITEMS
from loaders.format.spec import Manifest, read_manifest
from preprocess.commit import read_skipped
from preprocess.errors import OutputError, SampleError, SourceError
from preprocess.item_record import read_record
from preprocess.items import Item
from preprocess.output import claim, find_complete, replaced_nbytes
from preprocess.plan import Plan, RunOptions
from preprocess.recipe import REDONE, cut_items
from preprocess.report import Report
from preprocess.room import check_room
from preprocess.run import OnProgress, Runner, run
from preprocess.task import read_receipt
from preprocess.tokens.documents import StoredDocuments
from preprocess.tokens.first import PAIR_TOKENS
from preprocess.tokens.gather import GatherRecipe
from preprocess.tokens.layouts import AnyLayout, FixedLayout
from preprocess.tokens.order import Orders
from preprocess.tokens.recipe import DUPLICATES

_CARRIED: Final = ("audited", "empty_items", "special_text", REDONE)
"""Tallies of the first run that tell of the second's input."""

_ITEM_NBYTES: Final = 4_000_000
"""Bytes of samples in a range that is copied at a time: rows that documents share are chosen
among those of one range, and a thread holds one."""

_DOCUMENT_NBYTES: Final = 16
"""Offsets of a document's tokens and key, so that a range of empty ones ends too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reorder:
    """What to do with the documents of a first run.

    Attributes:
        orders: Chooses them.
        layout: What is stored of a document.
        unknown: Id of what the tokenizer does not know.
    """

    orders: Orders
    layout: AnyLayout
    unknown: int | None


def first_folder(out: Path) -> Path:
    """Return where the documents of a run to `out` are prepared before they are put in order."""
    absolute = Path(os.path.abspath(out))  # without ".." at its end, whose name would be no name
    return absolute.parent / f".{absolute.name}.first"


def run_reordered(
    final: Plan,
    first: Plan,
    reorder: Reorder,
    options: RunOptions,
    on_progress: OnProgress,
    runner: Runner = run,
) -> Report:
    """Carry out a plan whose documents come in another order, or without duplicates.

    Args:
        final: What is to be there in the end, as if the documents came as they are.
        first: Prepares them, in `first_folder`.
        reorder: What to do with them.
        options: How to run.
        on_progress: Told what has been made, half of the bytes by each run.
        runner: Carries out the second plan.

    Raises:
        SourceError: No item at all could become a sample.
        OutputError: The output folder or the one beside it cannot take the data.
    """
    if find_complete(final, overwrite=options.overwrite) is not None:
        report = run(final, options, on_progress)
        return replace(report, notes=(*report.notes, *_removed(first)))

    def half(samples: int, skipped: int, nbytes: int) -> None:
        on_progress(samples, skipped, nbytes // 2)

    prepared = _run_first(final, first, options, lambda _, skipped, n: half(0, skipped, n))
    second = _plan_second(final, first, reorder, options)
    note = f"the documents were prepared in {prepared.seconds:.1f} s before they were put in order"
    if prepared.seconds > 0:
        noted = replace(second.listing, notes=(*second.listing.notes, note))
        second = replace(second, listing=noted)
    try:
        report = runner(second, options, lambda samples, _, n: half(samples, 0, n))
    except SourceError:
        _removed(first)  # nothing that is worth keeping
        raise
    return replace(report, notes=(*report.notes, *_removed(first)))


def _run_first(final: Plan, first: Plan, options: RunOptions, on_progress: OnProgress) -> Report:
    """Prepare the documents; those that a run before this one has finished are taken."""
    chosen = replace(options, container=first.container, overwrite=False)
    try:
        if find_complete(first, overwrite=False) is None:
            left = sum(task.nbytes for task in first.tasks() if read_receipt(task) is None)
            replaced = replaced_nbytes(final) if options.overwrite else 0
            check_room(first.out, left + max(0, final.nbytes - replaced))
    except OutputError as error:
        if not options.overwrite:
            raise OutputError(f"{error}; documents are prepared there for {final.out}") from error
        chosen = replace(chosen, overwrite=True)
    try:
        return run(first, chosen, on_progress)
    except SourceError:
        _remove_empty(first.out)
        raise


def _plan_second(final: Plan, first: Plan, reorder: Reorder, options: RunOptions) -> Plan:
    """Lay out the shards of the new order; all else is as the final plan says."""
    manifest = read_manifest(first.out)
    recipes = {
        name: GatherRecipe(
            final=recipe,
            layout=reorder.layout,
            orders=reorder.orders,
            split=name,
            unknown=reorder.unknown,
            carried=tuple(_carried(manifest, reorder.orders, name).items()),
        )
        for name, recipe in final.recipes.items()
    }
    shards = {
        name: cut_items(
            _ranges(name, reorder, min(_ITEM_NBYTES, options.shard_nbytes)),
            recipe,
            options.shard_nbytes,
        )
        for name, recipe in recipes.items()
    }
    skipped = tuple(SampleError(key, reason) for key, reason in read_skipped(first.out))
    listing = replace(final.listing, skipped=skipped)
    contents = _contents(first.out)
    return replace(final, listing=listing, recipes=recipes, shards=shards, contents=contents)


def _contents(out: Path) -> dict[str, list[tuple[str, ...]]]:
    """Return what the first run has read of its items, if it says so."""
    runs = read_record(out / ITEMS) or ()
    splits = runs[0].splits if runs else {}
    return {name: [item.contents for item in items] for name, items in splits.items()}


def _carried(manifest: Manifest, orders: Orders, split: str) -> dict[str, tuple[int, ...]]:
    tallies = manifest.splits[split].tallies
    found = {name: tallies[name] for name in _CARRIED if name in tallies}
    if orders.dedup is not None:
        left_out = manifest.splits[split].count - len(orders.by_split[split])
        found[DUPLICATES] = (left_out,)
    return found


def _ranges(split: str, reorder: Reorder, nbytes: int) -> list[Item]:
    """Cut the new order of a split into ranges; there is one at least, for what is carried."""
    order = reorder.orders.by_split[split]
    stored = StoredDocuments(reorder.orders.folder, split)
    ends = np.cumsum(_document_nbytes(stored, reorder.layout)[order])
    parts = (ends - 1) // nbytes
    stops = [*(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(order)]
    items = []
    start, before = 0, 0
    for stop in stops:
        end = int(ends[stop - 1]) if stop else 0
        items.append(Item(f"{split}:{start}", end - before, 0, start=start, stop=stop))
        start, before = stop, end
    return items


def _document_nbytes(stored: StoredDocuments, layout: AnyLayout) -> NDArray[np.int64]:
    """Return about the bytes that each document takes in the layout."""
    size = np.dtype(layout.fields()[0].dtype).itemsize
    names = [name for name in ("tokens", PAIR_TOKENS) if stored.has(name)]
    nbytes = sum((stored.counts(name) for name in names), np.zeros(len(stored), np.int64)) * size
    if isinstance(layout, FixedLayout):
        nbytes = np.maximum(nbytes, layout.frame.length * size)
    for name in ("key", "metadata"):
        if stored.has(name):
            nbytes = nbytes + stored.counts(name)
    return nbytes + _DOCUMENT_NBYTES


def _removed(first: Plan) -> tuple[str, ...]:
    """Remove what the first run wrote; say so if that cannot be."""
    if not first.out.exists():
        return ()
    try:
        find_complete(first, overwrite=False)
        claim(first, overwrite=True).release(finished=True)
    except OutputError as error:
        return (f"left behind, and not needed: {error}",)
    _remove_empty(first.out)
    return ()


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # files of others stay
        folder.rmdir()
