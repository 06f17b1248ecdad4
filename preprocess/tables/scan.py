"""Stage one of a table: the source is parsed once, block by block, in threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from preprocess.errors import SampleError, SourceError, output_error
from preprocess.items import Item, Listing
from preprocess.tables.block import NULL, Block, Evidence
from preprocess.tables.left_out import LeftOut, SpilledErrors, write_errors
from preprocess.tables.options import TableOptions
from preprocess.tables.parse import parse_block
from preprocess.tables.read import read_blocks
from preprocess.tables.spill import (
    Origin,
    Spilled,
    SpilledBlock,
    read_spill,
    write_block,
    write_spill,
)
from preprocess.tables.structs import ObjectsOfBlocks

_VERSION: Final = 6
"""Of the blocks: raised when the same source and options give other ones."""

_AHEAD: Final = 2
"""Blocks to a thread that are read and not yet taken: what bounds the memory."""

Load = Callable[[], Block]
"""Makes one block, on any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One input file, or frame.

    Attributes:
        key: Names it.
        split: The split that it lies in.
        loads: Makes its blocks, one after the other; may raise SampleError for the whole file.
    """

    key: str
    split: str
    loads: Iterator[Load]


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
    gathered = _Gathered()
    with ThreadPoolExecutor(workers, thread_name_prefix="prep-table") as pool:
        waiting: deque[_Waiting] = deque()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A block that is being made, or the end of a file."""

    part: Part
    future: "Future[_Made] | None"
    error: SampleError | None = None


def _submitted(parts: Iterable[Part], folder: Path, pool: ThreadPoolExecutor) -> Iterator[_Waiting]:
    """Hand the blocks of all files to the threads, one after the other as they are asked for."""
    index = 0
    for part in parts:
        try:
            for load in part.loads:
                future = pool.submit(_make, load, folder, index, part)
                yield _Waiting(part=part, future=future)
                index += 1
        except SampleError as error:
            yield _Waiting(part=part, future=None, error=error)
        else:
            yield _Waiting(part=part, future=None)


@dataclass(frozen=True, slots=True)
class _Made:
    """A block whose rows, and whose records that are no rows, are in files."""

    spilled: SpilledBlock
    left_out: SpilledErrors | None
    evidence: Mapping[str, Evidence]


def _make(load: Load, folder: Path, index: int, part: Part) -> _Made:
    """Parse a block and write it."""
    block, origin = load(), Origin(index, part.key, part.split)
    spilled = write_block(block, folder, origin)
    evidence = {name: block.evidence[name] for name in block.table.column_names}
    left_out = write_errors(block.errors, folder / f"{index:08d}.skipped")
    return _Made(spilled, left_out, evidence)


@dataclass(slots=True)
class _File:
    """What is known of the blocks of one file that are there, in their order."""

    blocks: list[SpilledBlock] = field(default_factory=list)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    left_out: list[SpilledErrors] = field(default_factory=list)
    objects: ObjectsOfBlocks = field(default_factory=ObjectsOfBlocks)
    count: int = 0

    def take(self, made: _Made) -> None:
        """Take the next block."""
        found, spilled = self.evidence, made.spilled
        for name in (*found, *(name for name in made.evidence if name not in found)):
            later = made.evidence.get(name)
            if later is None:
                later = _absent(spilled.count)
            # Merged while other blocks are parsed.
            found[name] = found[name].merged(later) if name in found else self._first(later)
        self.blocks.append(spilled)
        self.left_out += [] if made.left_out is None else [made.left_out]
        self.count += spilled.count
        if (fault := self.objects.fault_of(made.evidence)) is not None:
            raise SampleError(spilled.key, fault)

    def _first(self, evidence: Evidence) -> Evidence:
        """Return the evidence of a column that the blocks before do not have."""
        return _absent(self.count).merged(evidence) if self.blocks else evidence


@dataclass(slots=True)
class _Gathered:
    """What is known of the blocks that are there; a file counts once it has ended well."""

    blocks: list[SpilledBlock] = field(default_factory=list)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    first: str = ""
    file: _File = field(default_factory=_File)
    refusal: SampleError | None = None

    def take(self, entry: _Waiting) -> None:
        """Take the next block, or the end of a file."""
        if entry.future is not None:
            try:
                self.file.take(entry.future.result())
            except SampleError as error:
                self.refusal = self.refusal or error
            return
        refusal = self.refusal or entry.error
        if refusal is not None:
            # What its blocks hold is not all that the file holds.
            self.left_out.append(refusal)
            paths = [made.path for made in self.file.blocks]
            paths += [listed.path for listed in self.file.left_out]
            for path in paths:
                path.unlink(missing_ok=True)
        else:
            self._take_file(entry.part.key)
        self.file, self.refusal = _File(), None

    def _take_file(self, key: str) -> None:
        found = self.file.evidence
        self.left_out += self.file.left_out
        self.blocks += [spilled for spilled in self.file.blocks if spilled.count]
        if not self.file.count:
            return  # a file without rows says nothing of its columns' values
        if not self.evidence:
            self.evidence, self.first = found, key
            return
        _check_columns(list(self.evidence), self.first, list(found), key)
        self.evidence = {name: e.merged(found[name]) for name, e in self.evidence.items()}

    def spilled(self) -> Spilled:
        """Return all of it."""
        return Spilled(
            blocks=tuple(self.blocks),
            columns=tuple(self.evidence),
            evidence=self.evidence,
            left_out=tuple(self.left_out),
        )


def _absent(count: int) -> Evidence:
    """Return what is known of a column that no record of a block names."""
    return Evidence(count=count, missing=count, kinds=NULL)


def _check_columns(expected: list[str], first: str, found: list[str], key: str) -> None:
    """Refuse a table whose files have different columns; their order may differ."""
    lacks = [name for name in expected if name not in found]
    more = [name for name in found if name not in expected]
    if not lacks and not more:
        return
    said = [
        f"{what} {', '.join(map(repr, names[:5]))}{', ...' if len(names) > 5 else ''}"
        for what, names in (("lacks", lacks), ("has besides", more))
        if names
    ]
    raise SourceError(
        f"{key}: other columns than {first}: {'; '.join(said)}; prepare files of one table "
        "together, or leave columns out by --ignore"
    )
