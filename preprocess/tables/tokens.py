"""Columns of texts beside the records: as tokens, made by what makes those of `prep tokens`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from loaders.format.fields import FieldSpec
from preprocess.errors import SourceError
from preprocess.recipe import Ragged, Rows
from preprocess.spelling import there_are
from preprocess.tables.options import TableOptions
from preprocess.tables.plan import with_name
from preprocess.tables.spill import SpilledBlock, map_block
from preprocess.tables.texts import Texts, texts_in
from preprocess.texts.arrays import make_texts
from preprocess.texts.documents import Documents
from preprocess.texts.options import TextOptions
from preprocess.tokens.batch import Piece, sizes_of
from preprocess.tokens.engine_check import choose_engine
from preprocess.tokens.engines import EngineError, ReferenceEngine
from preprocess.tokens.layouts import StreamLayout
from preprocess.tokens.maker import Mismatch, TokenMaker
from preprocess.tokens.options import TokenOptions
from preprocess.tokens.recipe import TokenRecipe, load_tokenizer
from preprocess.tokens.special import FOLDER, choose_layout, tokenizer_facts
from preprocess.tokens.tokenizer_source import find_tokenizer

TOKENS: Final = "tokens"

TEXT: Final = "text"
"""Key in the manifest's recipe of the names of the columns."""

TEXTS: Final = "texts"
"""Key in the manifest's recipe of what changes the tokens."""

_NO_LIMIT: Final = 1 << 62
"""Bytes of a text: what a block holds is in memory already."""

_SAMPLE_NBYTES: Final = 1 << 15
_SAMPLE_BLOCKS: Final = 8
"""Text of a block that engines are compared on before a run, about, and the blocks it is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumns:
    """The columns whose texts become tokens.

    Attributes:
        names: Of the columns.
        recipe: Makes tokens of texts.
        row_nbytes: Bytes of all tokens of a row, about.
        notes: What the user should know of the texts.
    """

    names: tuple[str, ...]
    recipe: TokenRecipe
    row_nbytes: int = 0
    notes: tuple[str, ...] = ()

    def recorded(self) -> dict[str, Any]:
        """Return everything that changes the tokens, as JSON values."""
        return self.recipe.options()

    def facts(self) -> dict[str, Any]:
        """Return what a reader should know of them, as JSON values."""
        return self.recipe.facts()

    def fields(self) -> dict[str, FieldSpec]:
        """Return the field of the tokens of each column; of one alone it is "tokens"."""
        one = self.recipe.layout.fields()[0]
        if len(self.names) == 1:
            return {self.names[0]: one}
        named = (replace(one, name=f"{one.name}_{place:04d}") for place in range(len(self.names)))
        return dict(zip(self.names, named, strict=True))

    def files(self) -> dict[str, bytes]:
        """Return the tokenizer's files: path below the dataset -> bytes."""
        copies = self.recipe.tokenizer.copies()
        return {f"{FOLDER}/{name}": path.read_bytes() for name, path in copies.items()}

    def by_reference(self) -> "TextColumns":
        """Return the same, encoded by the reference."""
        return replace(self, recipe=replace(self.recipe, engine=ReferenceEngine.name))

    @contextmanager
    def opened(self) -> Iterator[TokenMaker]:
        """Load the tokenizer and the engine."""
        with self.recipe.opened_maker() as maker:
            yield maker


class Unsure(Exception):  # noqa: N818
    """The engine was wrong or broke down: its tokens are not to be trusted."""


def encode_texts(maker: TokenMaker, texts: Texts, field: str, where: str, first: int) -> Rows:
    """Return the tokens of some rows, none where the text is missing.

    Args:
        maker: Of the columns.
        texts: Of the rows, of one column.
        field: Where the tokens go.
        where: Names the rows, with `first`, for the choice of those that are encoded twice.
        first: Number of the first row.

    Raises:
        Unsure: The engine cannot be trusted.
    """
    places = np.arange(first + 1, first + 1 + len(texts.values), dtype=np.int64)
    documents = Documents(texts=texts.values, places=places)
    try:
        rows = maker.made(Piece(where, documents))
    except (EngineError, Mismatch) as error:
        raise Unsure from error
    tokens = rows.arrays[TOKENS]
    if not isinstance(tokens, Ragged) or rows.count != len(texts.values):
        raise RuntimeError(f"{len(texts.values)} texts in, {rows.count} out")
    counts = np.where(texts.missing, 0, tokens.counts)
    values = tokens.values[~np.repeat(texts.missing, tokens.counts)]
    return replace(rows, arrays={field: Ragged(values, counts)})


def find_text(options: TableOptions) -> TextColumns | None:
    """Find the tokenizer of the columns of texts; None where there are none.

    Raises:
        SourceError: The tokenizer cannot be loaded.
    """
    if not options.text or options.tokenizer is None:
        return None
    text = TextOptions(text_key=options.text[0], max_document_nbytes=_NO_LIMIT)
    chosen = TokenOptions(tokenizer=options.tokenizer, text=text)
    found = find_tokenizer(chosen.tokenizer)
    tokenizer = load_tokenizer(found, chosen)
    if tokenizer.eos_id is None:  # nothing ends a text, and its length tells where it does
        chosen = replace(chosen, eos="")
    layout = choose_layout(chosen, tokenizer)
    if not isinstance(layout, StreamLayout):
        raise TypeError(type(layout).__name__)
    recipe = TokenRecipe(
        chosen=chosen,
        tokenizer=found,
        engine=ReferenceEngine.name,
        verdict="null",
        facts_json=json.dumps(tokenizer_facts(tokenizer, layout)),
        layout=layout,
        split=None,
        unknown=None if tokenizer.unknown is None else tokenizer.unknown[1],
    )
    return TextColumns(names=options.text, recipe=recipe)


def settle_text(
    text: TextColumns, blocks: Sequence[SpilledBlock], columns: Sequence[str]
) -> TextColumns:
    """Choose the engine by texts of all columns, and estimate the bytes of tokens.

    Args:
        text: The columns.
        blocks: The parsed table.
        columns: Names of its columns.

    Raises:
        SourceError: There is no such column, or it holds no texts.
    """
    absent = next((name for name in text.names if name not in columns), None)
    if absent is not None:
        raise SourceError(f"--text {absent!r}: no such column; {there_are(absent, columns)}")
    looks = [_look_at(name, blocks) for name in text.names]
    tokenizer = load_tokenizer(text.recipe.tokenizer, text.recipe.chosen)
    samples = make_texts([one for look in looks for one in look.samples])
    verdict = choose_engine(tokenizer, text.recipe.chosen.engine, samples)
    recipe = replace(text.recipe, engine=verdict.engine, verdict=json.dumps(verdict.to_json()))
    end = recipe.layout.fields()[0].numpy_dtype.itemsize
    each = sum(end + recipe.tokens_nbytes(look.nbytes) // max(look.count, 1) for look in looks)
    notes = []
    for name, look in zip(text.names, looks, strict=True):
        note = f"column {name!r}: tokens beside the records, by {verdict.engine}"
        if look.missing:
            note += f"; {look.missing:,} of {look.count:,} rows have no text, and no tokens"
        notes.append(note)
    return replace(text, recipe=recipe, row_nbytes=each, notes=tuple(notes))


@dataclass(frozen=True, slots=True)
class _Look:
    """What a column of texts holds.

    Attributes:
        samples: Some of its texts.
        nbytes: Bytes of all.
        count: Rows.
        missing: Rows without a text.
    """

    samples: list[str]
    nbytes: int
    count: int
    missing: int


def _look_at(name: str, blocks: Sequence[SpilledBlock]) -> _Look:
    few = {round(place) for place in np.linspace(0, len(blocks) - 1, _SAMPLE_BLOCKS)}
    found: list[str] = []
    nbytes = count = missing = 0
    for number, spilled in enumerate(blocks):
        texts = texts_in(map_block(spilled), name, slice(None))
        sizes = sizes_of(texts.values)
        nbytes += int(sizes.sum())
        count += len(sizes)
        missing += int(np.count_nonzero(texts.missing))
        if number in few:
            last = 1 + int(np.searchsorted(np.cumsum(sizes), _SAMPLE_NBYTES))
            found += [one[:_SAMPLE_NBYTES] for one in texts.values.slice(0, last).to_pylist()]
    return _Look(found, nbytes, count, missing)


def check_same_texts(text: TextColumns | None, recorded: Mapping[str, Any], root: str) -> None:
    """Refuse to leave texts out that another dataset has as tokens, or to encode others.

    Args:
        text: The columns of texts of new rows.
        recorded: The other dataset's recipe, as its manifest has it.
        root: Its folder.

    Raises:
        SourceError: They differ.
    """
    names = recorded.get(TEXT, [])
    ours = (None, []) if text is None else (text.recorded(), [*text.names])
    if (recorded.get(TEXTS), names) == ours:
        return
    if not names:
        raise SourceError(f"{root}: has no tokens of a column of texts; leave --text out")
    shown = ", ".join(map(repr, names))
    given = " ".join(with_name("--text", name) for name in names)
    raise SourceError(
        f"{root}: has tokens of column {shown}: give {given} --tokenizer {root}/{FOLDER}"
    )
