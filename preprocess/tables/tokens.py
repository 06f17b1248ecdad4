"""A column of texts beside the records: as tokens, made by what makes those of `prep tokens`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from loaders.format.fields import FieldSpec
from preprocess.errors import SourceError
from preprocess.recipe import Ragged, Rows
from preprocess.tables.options import TableOptions
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

TEXTS: Final = "texts"
"""Key in the manifest's recipe of what changes the tokens."""

_NO_LIMIT: Final = 1 << 62
"""Bytes of a text: what a block holds is in memory already."""

_SAMPLE_NBYTES: Final = 1 << 15
_SAMPLE_BLOCKS: Final = 8
"""Text of a block that engines are compared on before a run, about, and the blocks it is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumn:
    """The column whose texts become tokens.

    Attributes:
        name: Of the column.
        recipe: Makes tokens of texts.
        row_nbytes: Bytes of the tokens of a row, about.
        notes: What the user should know of the texts.
    """

    name: str
    recipe: TokenRecipe
    row_nbytes: int = 0
    notes: tuple[str, ...] = ()

    def recorded(self) -> dict[str, Any]:
        """Return everything that changes the tokens, as JSON values."""
        return self.recipe.options()

    def facts(self) -> dict[str, Any]:
        """Return what a reader should know of them, as JSON values."""
        return self.recipe.facts()

    def field(self) -> FieldSpec:
        """Return the field of the tokens."""
        return self.recipe.layout.fields()[0]

    def files(self) -> dict[str, bytes]:
        """Return the tokenizer's files: path below the dataset -> bytes."""
        copies = self.recipe.tokenizer.copies()
        return {f"{FOLDER}/{name}": path.read_bytes() for name, path in copies.items()}

    def by_reference(self) -> "TextColumn":
        """Return the same, encoded by the reference."""
        return replace(self, recipe=replace(self.recipe, engine=ReferenceEngine.name))

    @contextmanager
    def opened(self) -> Iterator[TokenMaker]:
        """Load the tokenizer and the engine."""
        with self.recipe.opened_maker() as maker:
            yield maker


class Unsure(Exception):  # noqa: N818
    """The engine was wrong or broke down: its tokens are not to be trusted."""


def encode_texts(maker: TokenMaker, texts: Texts, where: str, first: int) -> Rows:
    """Return the tokens of some rows, none where the text is missing.

    Args:
        maker: Of the column.
        texts: Of the rows.
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
    return replace(rows, arrays={TOKENS: Ragged(values, counts)})


def find_text(options: TableOptions) -> TextColumn | None:
    """Find the tokenizer of the column of texts; None where there is none.

    Raises:
        SourceError: The tokenizer cannot be loaded.
    """
    if not options.text or options.tokenizer is None:
        return None
    (name,) = options.text
    text = TextOptions(text_key=name, max_document_nbytes=_NO_LIMIT)
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
    return TextColumn(name=name, recipe=recipe)


def settle_text(
    text: TextColumn, blocks: Sequence[SpilledBlock], columns: Sequence[str]
) -> TextColumn:
    """Choose the engine by texts of the table, and estimate the bytes of tokens.

    Args:
        text: The column.
        blocks: The parsed table.
        columns: Names of its columns.

    Raises:
        SourceError: There is no such column, or it holds no texts.
    """
    if text.name not in columns:
        raise SourceError(f"--text {text.name!r}: no such column")
    few = {round(place) for place in np.linspace(0, len(blocks) - 1, _SAMPLE_BLOCKS)}
    found: list[str] = []
    nbytes = count = missing = 0
    for number, spilled in enumerate(blocks):
        texts = texts_in(map_block(spilled), text.name, slice(None))
        sizes = sizes_of(texts.values)
        nbytes += int(sizes.sum())
        count += len(sizes)
        missing += int(np.count_nonzero(texts.missing))
        if number in few:
            last = 1 + int(np.searchsorted(np.cumsum(sizes), _SAMPLE_NBYTES))
            found += [one[:_SAMPLE_NBYTES] for one in texts.values.slice(0, last).to_pylist()]
    tokenizer = load_tokenizer(text.recipe.tokenizer, text.recipe.chosen)
    verdict = choose_engine(tokenizer, text.recipe.chosen.engine, make_texts(found))
    recipe = replace(text.recipe, engine=verdict.engine, verdict=json.dumps(verdict.to_json()))
    end = text.field().numpy_dtype.itemsize
    each = end + text.recipe.tokens_nbytes(nbytes) // max(count, 1)
    note = f"column {text.name!r}: tokens beside the records, by {verdict.engine}"
    if missing:
        note += f"; {missing:,} of {count:,} rows have no text, and no tokens"
    return replace(text, recipe=recipe, row_nbytes=each, notes=(note,))


def check_same_texts(text: TextColumn | None, recorded: Mapping[str, Any], root: str) -> None:
    """Refuse to leave texts out that another dataset has as tokens, or to encode others.

    Args:
        text: The column of texts of new rows.
        recorded: The other dataset's recipe, as its manifest has it.
        root: Its folder.

    Raises:
        SourceError: They differ.
    """
    theirs = recorded.get(TEXTS)
    if theirs == (None if text is None else text.recorded()):
        return
    if theirs is None:
        raise SourceError(f"{root}: has no tokens of a column of texts; leave --text out")
    name = theirs["text"]["text_key"]
    raise SourceError(
        f"{root}: has tokens of column {name!r}: give --text {name} --tokenizer {root}/{FOLDER}"
    )
