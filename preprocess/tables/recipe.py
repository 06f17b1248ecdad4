"""How rows of a parsed table become samples: one packed record each."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.fields import FieldSpec
from loaders.format.records import RECORD
from loaders.format.spec import Manifest
from loaders.format.strict import Place
from loaders.format.table_schema import TableSchema
from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item, Listing
from preprocess.recipe import Maker, Ragged, Redo, Rows
from preprocess.stats import merge_tallies
from preprocess.tables.encode import UNKNOWN
from preprocess.tables.options import TableOptions
from preprocess.tables.store import RecordSource
from preprocess.tables.tokens import TextColumns, Unsure, encode_texts
from preprocess.tokens.maker import TokenMaker

KIND: Final = "table"

_VERSION: Final = 3
"""Of the recipe: raised when the same options give other records."""

FACTS: Final = "table"
"""Key of the facts in the manifest's recipe."""

FACT_NAMES: Final = frozenset({FACTS, "tokenizer", "engine"})
"""Keys of all facts, those of tokens too."""

CLASSES: Final = "classes"
"""Tally of the samples of each class."""

UNKNOWN_VALUES: Final = "unknown_values"
"""Tally of values that no vocabulary has, column by column of those that have one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecipe:
    """How rows become samples.

    An item is a range of the records of one part of a source.

    Attributes:
        described: Everything that changes bytes, as JSON.
        schema: Of the records.
        task: "classification" or "regression"; None without a target.
        columns: All columns of the input.
        source: Gives the records; None where all of them are there already.
        like: Whether schema and vocabularies are another dataset's.
        text: The columns whose tokens are stored beside them.
    """

    described: bytes
    schema: TableSchema
    task: str | None
    columns: tuple[str, ...]
    source: RecordSource | None
    like: bool
    text: TextColumns | None = None

    @property
    def kind(self) -> str:
        """Name of the modality."""
        return KIND

    def options(self) -> dict[str, Any]:
        """Return everything that changes bytes, as JSON values."""
        found: dict[str, Any] = json.loads(self.described)
        return found

    def facts(self) -> dict[str, Any]:
        """Return what the target is, what columns there were, and what was lost in which."""
        losses = {
            spec.name: [loss.to_json() for loss in spec.losses]
            for spec in self.schema.columns
            if spec.losses
        }
        facts = {FACTS: {"task": self.task, "columns": list(self.columns), "losses": losses}}
        return facts if self.text is None else {**facts, **self.text.facts()}

    def backend(self, listing: Listing, workers: int) -> str:  # noqa: ARG002
        """Choose threads: arrays are converted without the interpreter's lock."""
        return "threading"

    @property
    def one_to_one(self) -> bool:
        """An item is any number of records."""
        return False

    def expected_nbytes(self, item: Item) -> int:
        """Return the bytes of an item's records."""
        return item.nbytes

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return the record, and the lists and tokens beside it."""
        parts = self.schema.record
        record = FieldSpec(name=RECORD, dtype=RECORD, shape=(), role="record", record=parts)
        lists = self.schema.list_fields.values()
        tokens = () if self.text is None else self.text.fields().values()
        return (record, *lists, *tokens)

    def predicted_nbytes(self, item: Item) -> float:
        """Return the same: all samples are its own."""
        return self.expected_nbytes(item)

    def too_large(self, item: Item) -> SampleError | None:  # noqa: ARG002
        """Return None: the plan has left out such files already."""
        return None

    def refusal(self, tallies: Mapping[str, tuple[int, ...]]) -> str | None:  # noqa: ARG002
        """Refuse nothing: the plan has seen all values."""
        return None

    def notes(self, tallies: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
        """Say what no vocabulary has, where they are another dataset's."""
        if not self.like:
            return ()
        columns = self.schema.columns
        known = [s.name for s in columns if s.vocabulary is not None and s.role == "feature"]
        counts = zip(known, tallies.get(UNKNOWN_VALUES, ()), strict=False)
        unknown = [f"{name} {count:,}" for name, count in counts if count]
        if not unknown:
            return ()
        return (f"values that no vocabulary has, stored as unknown: {', '.join(unknown)}",)

    @contextmanager
    def opened(self) -> Iterator[Maker]:
        """Return what reads the records, and encodes texts."""
        with nullcontext() if self.text is None else self.text.opened() as tokens:
            yield _TableMaker(self, tokens)


def recorded(options: TableOptions, wishes: Mapping[str, Any], like: str | None) -> dict[str, Any]:
    """Return everything that changes the bytes of a table's dataset, as JSON values.

    Args:
        options: The user's.
        wishes: What is asked of single columns.
        like: SHA-256 of the schema and vocabularies that are another dataset's.
    """
    return {**options.recorded(), "columns": wishes, "like_sha256": like, "version": _VERSION}


@dataclass(frozen=True, slots=True)
class Facts:
    """What the manifest of a table says beside its options.

    Attributes:
        task: "classification", "regression", or None without a target.
        columns: Names of all columns that its source had.
    """

    task: str | None
    columns: tuple[str, ...]


def read_facts(manifest: Manifest, root: Path) -> Facts:
    """Return the facts of a table's manifest.

    Raises:
        FormatError: They are not there, or are none.
    """
    place = Place(f"{root}: recipe").at(FACTS)
    facts = place.partial_mapping(manifest.recipe.get(FACTS), None)
    task = facts.get("task")
    place.at("task").expect(task in (None, "classification", "regression"), task, "a task")
    return Facts(task, place.at("columns").texts(facts.get("columns")))


@dataclass(frozen=True, slots=True)
class _TableMaker:
    recipe: TableRecipe
    tokens: TokenMaker | None

    def samples(self, files: ItemFiles, items: Sequence[Item]) -> Iterator[Rows | SampleError]:  # noqa: ARG002
        """Yield the records of the items, in order."""
        rows = self.recipe.source
        if rows is None:
            raise ValueError("records are asked for of a plan that has none left to make")
        for item in items:
            records = rows.read(item.start, item.stop or 0)
            lists = rows.lists(item.start, item.stop or 0)
            found = Rows(
                count=len(records),
                arrays={RECORD: records, **lists},
                tallies=self._tallies(
                    records, lists, rows.may_be_unknown(item.start, item.stop or 0)
                ),
            )
            yield self._with_tokens(found, rows, item)

    def _with_tokens(self, found: Rows, rows: RecordSource, item: Item) -> Rows:
        """Put the tokens of the same rows beside records."""
        text = self.recipe.text
        if text is None or self.tokens is None:
            return found
        split = item.key.partition(":")[0]
        arrays, tallies = dict(found.arrays), dict[str, tuple[int, ...]]()
        for name, field in text.fields().items():
            texts = rows.texts(name, item.start, item.stop or 0)
            try:
                encoded = encode_texts(self.tokens, texts, field.name, split, item.start)
            except Unsure as error:
                raise Redo(replace(self.recipe, text=text.by_reference())) from error
            arrays |= encoded.arrays
            merge_tallies(tallies, encoded.tallies)
        return replace(found, arrays=arrays, tallies={**tallies, **found.tallies})

    def _tallies(
        self, records: NDArray[Any], lists: Mapping[str, Ragged], doubtful: Collection[str]
    ) -> dict[str, tuple[int, ...]]:
        columns, beside = self.recipe.schema.columns, self.recipe.schema.list_fields
        known = [s.name for s in columns if s.vocabulary is not None and s.role == "feature"]

        def unknown_in(name: str) -> int:
            if name not in doubtful:  # there is nothing to look for in most
                return 0
            codes = lists[beside[name].name].values if name in beside else records[name]
            return int(np.count_nonzero(codes == UNKNOWN))

        unknown = tuple(map(unknown_in, known))
        tallies = {UNKNOWN_VALUES: unknown} if known else {}
        for spec in columns:
            if spec.role == "target" and self.recipe.task == "classification":
                counts = np.bincount(records[spec.name], minlength=spec.values or 0)
                tallies[CLASSES] = tuple(counts.tolist())
        return tallies
