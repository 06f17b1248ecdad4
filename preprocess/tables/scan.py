"""Stage one of a table: the source is parsed once, block by block, in threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from preprocess.errors import SampleError, output_error
from preprocess.items import Item, Listing
from preprocess.tables.block import Block
from preprocess.tables.gathered import Gathered, Load, Made, Part, Waiting
from preprocess.tables.left_out import write_errors
from preprocess.tables.options import TableOptions
from preprocess.tables.parse import parse_block
from preprocess.tables.read import read_blocks
from preprocess.tables.spill import (
    Origin,
    Spilled,
    read_spill,
    write_block,
    write_spill,
)

_VERSION: Final = 6
"""Of the blocks: raised when the same source and options give other ones."""

_AHEAD: Final = 2
"""Blocks to a thread that are read and not yet taken: what bounds the memory."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a listing is read.

    Attributes:
        options: How numbers are written, and so on.
        limit: Only so many rows are read, of each file its share; None for all.
    """

    options: TableOptions
    limit: int | None = None


def parts_of(listing: Listing, reading: Reading) -> Iterator[Part]:
    """Yield the files of a listing; each is read as its blocks are asked for."""
    # A large file may be several items: it counts as a whole, or not at all.
    files = [
        (split, key, tuple(parts))
        for split, items in listing.splits.items()
        for key, parts in groupby(items, lambda item: item.key)
    ]
    for place, (split, key, parts) in enumerate(files):
        most = _share(reading.limit, place, len(files))
        if most != 0:
            loads = _loads(listing.root, parts, reading.options, most)
            yield Part(key=key, split=split, loads=loads)


def _share(limit: int | None, place: int, files: int) -> int | None:
    """Return how many rows are read of a file: of the places of rows, those that fall in its own.

    So the files of fewer rows than there are files are evenly spaced.
    """
    if limit is None:
        return None
    return -(-(place + 1) * limit // files) - -(-place * limit // files)


def _loads(
    root: Path, items: Sequence[Item], options: TableOptions, most: int | None
) -> Iterator[Load]:
    for item in items:
        for raw in read_blocks(root, item, options):
            if most is None:
                yield partial(parse_block, raw, options)
                continue
            # How many rows are left is known once those before are parsed.
            block = parse_block(raw, options, most)
            most -= len(block.rows)
            yield partial(_as_it_is, block)
            if not most:
                return


def _as_it_is(block: Block) -> Block:
    return block


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
    clear()
    spilled = spill_parts(parts_of(listing, reading), folder, workers)
    try:
        write_spill(folder, identity, spilled)
    except OSError as error:
        raise output_error(folder, error) from error
    return spilled


def spill_parts(parts: Iterable[Part], folder: Path, workers: int) -> Spilled:
    """Parse files in threads; blocks are numbered in the order of the input.

    Raises:
        SourceError: Files have different columns.
        OutputError: The folder cannot take the blocks.
    """
    gathered = Gathered()
    with ThreadPoolExecutor(workers, thread_name_prefix="prep-table") as pool:
        waiting: deque[Waiting] = deque()
        try:
            for entry in _submitted(parts, folder, pool):
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


def _submitted(parts: Iterable[Part], folder: Path, pool: ThreadPoolExecutor) -> Iterator[Waiting]:
    """Hand the blocks of all files to the threads, one after the other as they are asked for."""
    index = 0
    for part in parts:
        try:
            for load in part.loads:
                future = pool.submit(_make, load, folder, index, part)
                yield Waiting(part=part, future=future)
                index += 1
        except SampleError as error:
            yield Waiting(part=part, future=None, error=error)
        else:
            yield Waiting(part=part, future=None)


def _make(load: Load, folder: Path, index: int, part: Part) -> Made:
    """Parse a block and write it."""
    block, origin = load(), Origin(index, part.key, part.split)
    spilled = write_block(block, folder, origin)
    evidence = {name: block.evidence[name] for name in block.table.column_names}
    left_out = write_errors(block.errors, folder / f"{index:08d}.skipped")
    return Made(spilled, left_out, evidence)
