"""What is known of a table that is being parsed: its blocks, and what its columns hold."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from preprocess.errors import SampleError, SourceError
from preprocess.tables.block import NULL, Block, Evidence
from preprocess.tables.left_out import LeftOut, SpilledErrors
from preprocess.tables.spill import Spilled, SpilledBlock
from preprocess.tables.structs import ObjectsOfBlocks
from preprocess.texts.column_limit import check_column_count

if TYPE_CHECKING:
    from concurrent.futures import Future

Load = Callable[[], Block]
"""Makes one block, on any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One input file, or frame.

    Attributes:
        key: Names it.
        split: The split that it lies in.
        loads: Makes its blocks, one after the other; may raise SampleError for the whole file.
        place: Its number among the files.
    """

    key: str
    split: str
    loads: Iterator[Load]
    place: int = 0


@dataclass(frozen=True, slots=True)
class Made:
    """A block whose rows, and whose records that are no rows, are in files."""

    spilled: SpilledBlock
    left_out: SpilledErrors | None
    evidence: Mapping[str, Evidence]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A block that is being made, or the end of a file."""

    part: Part
    future: "Future[Made] | None"
    error: SampleError | None = None


@dataclass(slots=True)
class _File:
    """What is known of the blocks of one file that are there, in their order."""

    blocks: list[SpilledBlock] = field(default_factory=list)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    left_out: list[SpilledErrors] = field(default_factory=list)
    objects: ObjectsOfBlocks = field(default_factory=ObjectsOfBlocks)
    count: int = 0

    def take(self, made: Made) -> None:
        """Take the next block."""
        found, spilled = self.evidence, made.spilled
        for name in (*found, *(name for name in made.evidence if name not in found)):
            later = made.evidence.get(name)
            if later is None:
                later = _absent(spilled.count)
            # Merged while other blocks are parsed.
            found[name] = found[name].merged(later) if name in found else self._first(later)
        self.keep(made)
        self.count += spilled.count
        check_column_count(len(found), spilled.key)
        if (fault := self.objects.fault_of(made.evidence)) is not None:
            raise SampleError(spilled.key, fault)

    def keep(self, made: Made) -> None:
        """Keep the files of a block, whatever is in them."""
        self.blocks.append(made.spilled)
        self.left_out += [] if made.left_out is None else [made.left_out]

    def _first(self, evidence: Evidence) -> Evidence:
        """Return the evidence of a column that the blocks before do not have."""
        return _absent(self.count).merged(evidence) if self.blocks else evidence


@dataclass(slots=True)
class Gathered:
    """What is known of the blocks that are there; a file counts once it has ended well."""

    blocks: list[SpilledBlock] = field(default_factory=list)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    first: str = ""
    file: _File = field(default_factory=_File)
    refusal: SampleError | None = None

    def take(self, entry: Waiting) -> None:
        """Take the next block, or the end of a file."""
        if entry.future is not None:
            try:
                made = entry.future.result()
                if self.refusal is None:
                    self.file.take(made)
                else:
                    self.file.keep(made)  # to be removed with the others
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
