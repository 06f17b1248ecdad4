"""Stage one of a table: the source is parsed once, block by block, in threads."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from loaders.format.files import to_json
from preprocess.errors import SampleError, output_error
from preprocess.in_work import Notes
from preprocess.item_contents import ItemFiles
from preprocess.items import Listing
from preprocess.tables.fatal_files import without_fatal_files
from preprocess.tables.gathered import Gathered, Load, Made, Part, Waiting
from preprocess.tables.left_out import write_errors
from preprocess.tables.parts import Reading, parts_of
from preprocess.tables.spill import (
    Origin,
    Spilled,
    read_spill,
    write_block,
    write_spill,
)

_VERSION: Final = 7
"""Of the blocks: raised when the same source and options give other ones."""

_AHEAD: Final = 2
"""Blocks to a thread that are read and not yet taken: what bounds the memory."""


def parse_hash(listing: Listing, reading: Reading) -> dict[str, Any]:
    """Return what the blocks follow from, as JSON values."""
    options = reading.options
    values = options.recorded()
    read = ("delimiter", "header", "decimal", "thousands", "null_values", "encoding")
    return {
        "version": _VERSION,
        "source": listing.fingerprint(),
        "times": [item.mtime_ns for items in listing.splits.values() for item in items],
        "options": {name: values[name] for name in read},
        "unread": sorted(options.unread),
        "limit": reading.limit,
        "max_item_nbytes": options.max_item_nbytes,
    }


def spill(
    listing: Listing, reading: Reading, folder: Path, workers: int, clear: Callable[[], None]
) -> Spilled:
    """Parse every file of a listing, unless the folder holds all of it already.

    Args:
        listing: The input.
        reading: How to read it.
        folder: Where the blocks go; this run holds it.
        workers: Threads.
        clear: Removes what is left in the folder.

    Raises:
        SourceError: No row can be read, or files have different columns.
        OutputError: The folder cannot take the blocks.
    """
    identity = parse_hash(listing, reading)
    kept = read_spill(folder, identity)
    if kept is not None:
        return kept
    run = hashlib.sha256(to_json(identity)).hexdigest()
    try:
        reading = without_fatal_files(listing, reading, folder, run)
        clear()
        files = ItemFiles(listing.root)
        spilled = spill_parts(parts_of(listing, reading, files), folder, workers, run)
        contents = {name: files.contents(items) for name, items in listing.splits.items()}
        spilled = replace(spilled, contents=contents)
        write_spill(folder, identity, spilled)
    except OSError as error:
        raise output_error(folder, error) from error
    return spilled


def spill_parts(parts: Iterable[Part], folder: Path, workers: int, run: str) -> Spilled:
    """Parse files in threads; blocks are numbered in the order of the input.

    Args:
        parts: The files.
        folder: Where the blocks go, and notes of the files that are in work.
        workers: Threads.
        run: Names the run in these notes.

    Raises:
        SourceError: Files have different columns.
        OutputError: The folder cannot take the blocks.
    """
    gathered = Gathered()
    notes = Notes(folder, run)
    with ExitStack() as stack:
        stack.callback(notes.close)  # after the threads have ended, which write them
        pool = ThreadPoolExecutor(workers, thread_name_prefix="prep-table")
        stack.enter_context(pool)
        waiting: deque[Waiting] = deque()
        try:
            for entry in _submitted(parts, folder, pool, notes):
                waiting.append(entry)
                while len(waiting) > _AHEAD * workers:
                    gathered.take(waiting.popleft())
            while waiting:
                gathered.take(waiting.popleft())
        except OSError as error:
            raise output_error(folder, error) from error
        finally:
            for entry in waiting:
                if entry.future is not None:
                    entry.future.cancel()
    return gathered.spilled()


def _submitted(
    parts: Iterable[Part], folder: Path, pool: ThreadPoolExecutor, notes: Notes
) -> Iterator[Waiting]:
    """Hand the blocks of all files to the threads, one after the other as they are asked for."""
    index = 0
    for part in parts:
        notes.begin(part.split, part.place, 0, 1)  # until the next one is
        try:
            for load in part.loads:
                future = pool.submit(_make, load, folder, index, part, notes)
                yield Waiting(part=part, future=future)
                index += 1
        except SampleError as error:
            yield Waiting(part=part, future=None, error=error)
        else:
            yield Waiting(part=part, future=None)


def _make(load: Load, folder: Path, index: int, part: Part, notes: Notes) -> Made:
    """Parse a block and write it."""
    notes.begin(part.split, part.place, 0, 1)
    block, origin = load(), Origin(index, part.key, part.split)
    spilled = write_block(block, folder, origin)
    evidence = {name: block.evidence[name] for name in block.table.column_names}
    left_out = write_errors(block.errors, folder / f"{index:08d}.skipped")
    notes.end()
    return Made(spilled, left_out, evidence)
