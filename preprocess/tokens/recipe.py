"""How texts become samples of tokens: the recipe, and what it loads."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np

from loaders.format.fields import FieldSpec
from preprocess.errors import SampleError, SourceError
from preprocess.item_contents import ItemFiles
from preprocess.item_files import too_large
from preprocess.items import Item, Listing
from preprocess.recipe import Maker, Redo, Rows
from preprocess.shares import SPLIT_STEPS
from preprocess.tokens.chat import ChatTemplate, read_chat_template
from preprocess.tokens.engines import EngineError, ReferenceEngine, open_engine
from preprocess.tokens.first import FirstPass
from preprocess.tokens.layouts import AnyLayout
from preprocess.tokens.loading import Given
from preprocess.tokens.maker import Mismatch, TokenMaker
from preprocess.tokens.options import Specials, TokenOptions
from preprocess.tokens.rates import NBYTES_PER_TOKEN, Rates
from preprocess.tokens.tokenizer import TextTokenizer
from preprocess.tokens.tokenizer_source import TokenizerSource

DUPLICATES: Final = "duplicates"
"""Tally of documents that were left out because an earlier one is the same."""

_VERSION: Final = 1
"""Of the recipe: raised when the same options give other tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecipe:
    """How texts become samples.

    Attributes:
        chosen: The user's options.
        tokenizer: Where its files are.
        engine: Which engine encodes.
        verdict: What the comparison of engines found, as JSON.
        facts_json: What a reader should know of the tokenizer, as JSON.
        layout: What is stored of a document.
        split: Name of the split, if one source gives several.
        unknown: Id of what the tokenizer does not know, where it has one.
        first: What is kept of documents that are put in order afterwards.
        rates: What a byte of the source becomes, for estimates.
    """

    chosen: TokenOptions
    tokenizer: TokenizerSource
    engine: str
    verdict: str
    facts_json: str
    layout: AnyLayout
    split: str | None
    unknown: int | None
    first: FirstPass | None = None
    rates: Rates = field(default_factory=Rates)

    @property
    def kind(self) -> str:
        """Name of the modality."""
        return "tokens"

    def options(self) -> dict[str, Any]:
        """Return everything that changes bytes, as JSON values."""
        recorded = cast("dict[str, Any]", json.loads(json.dumps(self.chosen.recorded())))
        return {**recorded, "version": _VERSION, "tokenizer_sha256": self.tokenizer.sha256}

    def facts(self) -> dict[str, Any]:
        """Return the tokenizer's facts and the engine's verdict."""
        return {"tokenizer": json.loads(self.facts_json), "engine": json.loads(self.verdict)}

    def backend(self, listing: Listing, workers: int) -> str:  # noqa: ARG002
        """Choose threads: engines release the interpreter's lock, and each process loads one."""
        return "threading"

    @property
    def one_to_one(self) -> bool:
        """A file holds any number of documents."""
        return False

    def expected_nbytes(self, item: Item) -> int:
        """Return a guess at the bytes of an item's samples."""
        return 1 + self.tokens_nbytes(item.part_nbytes or item.nbytes)

    def predicted_nbytes(self, item: Item) -> float:
        """Return about the bytes of an item's samples in the split, by what a sample has told."""
        first, end = (0, SPLIT_STEPS) if self.split is None else self.chosen.bounds()[self.split]
        nbytes = (item.part_nbytes or item.nbytes) * (end - first) / SPLIT_STEPS
        rates = self.rates
        size = np.dtype(self.layout.fields()[0].dtype).itemsize
        tokens = self.layout.expected_tokens(rates.documents, rates.tokens)
        return nbytes * (tokens * size + rates.beside)

    def tokens_nbytes(self, nbytes: int) -> int:
        """Return a guess at the bytes of the tokens of so many bytes of text."""
        size = np.dtype(self.layout.fields()[0].dtype).itemsize
        return round(nbytes * size / NBYTES_PER_TOKEN)

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return the layout's fields, what names the documents, and what is kept of them."""
        found = [*self.layout.fields(), _bytes_field("key", "key")]
        if self.chosen.text.metadata_keys:
            found.append(_bytes_field("metadata", "metadata"))
        return (*found, *(() if self.first is None else self.first.fields()))

    def too_large(self, item: Item) -> SampleError | None:
        """Refuse a file with more bytes than the options allow."""
        return too_large(item, self.chosen.text.max_item_nbytes)

    def refusal(self, tallies: Mapping[str, tuple[int, ...]]) -> str | None:
        """Refuse a corpus of empty documents."""
        documents, tokens = (tallies.get(name, (0,))[0] for name in ("documents", "tokens"))
        if documents and not tokens:
            return (
                f"all {documents:,} documents are empty; --text-key names the key of the text "
                f"(now {self.chosen.text.text_key!r})"
            )
        return None

    def notes(self, tallies: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
        """Say what the counts tell of documents that are not there whole, or not at all."""
        notes = []
        if empty := sum(tallies.get("empty_items", ())):
            notes.append(f"no document in {empty:,} empty file{'s' * (empty != 1)}")
        documents, tokens = tallies.get("cut", (0, 0))
        if documents:
            notes.append(
                f"cut: {documents:,} documents are longer than a row, {tokens:,} tokens of their "
                "ends are left out; --stride stores them in further rows"
            )
        if DUPLICATES in tallies:
            left_out, kept = sum(tallies[DUPLICATES]), sum(tallies["documents"])
            notes.append(f"duplicates left out: {left_out:,}; documents kept: {kept:,}")
        return tuple(notes)

    @contextmanager
    def opened(self) -> Iterator[Maker]:
        """Load the tokenizer and the engine."""
        with self.opened_maker() as maker:
            yield _Watched(maker, self)

    @contextmanager
    def opened_maker(self) -> Iterator[TokenMaker]:
        """Load the same, for what has its texts already and watches the engine itself."""
        tokenizer = load_tokenizer(self.tokenizer, self.chosen)
        yield TokenMaker(
            text=self.chosen.text,
            tokenizer=tokenizer,
            engine=open_engine(self.engine, tokenizer),
            layout=self.layout,
            bounds=None if self.split is None else self.chosen.bounds()[self.split],
            whole=SPLIT_STEPS,
            split_seed=self.chosen.split_seed,
            tells=self.split in {None, next(iter(self.chosen.bounds()))},
            chat=load_template(tokenizer, self.chosen) if self.chosen.layout == "chat" else None,
            first=self.first,
        )


def _bytes_field(name: str, role: Any) -> FieldSpec:
    return FieldSpec(name=name, dtype="uint8", shape=(), role=role, ragged=True)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A maker whose engine is given up for the reference once it was wrong or broke down."""

    maker: TokenMaker
    recipe: TokenRecipe

    def samples(self, files: ItemFiles, items: Sequence[Item]) -> Iterator[Rows | SampleError]:
        """Yield the samples of the items, in order."""
        try:
            yield from self.maker.samples(files, items)
        except (EngineError, Mismatch) as error:
            raise Redo(replace(self.recipe, engine=ReferenceEngine.name)) from error


def load_tokenizer(found: TokenizerSource, options: TokenOptions) -> TextTokenizer:
    """Load a tokenizer as the options want it to read special tokens, unless it was the last one.

    The plan and the run use the same one, which takes up to seconds to make. What is loaded depends
    on the files' digest and never changes, so it can be kept.

    Raises:
        SourceError: It cannot be loaded.
    """
    kept = kept_tokenizer(found, options)
    return keep_tokenizer(make_tokenizer(found, options), options) if kept is None else kept


def make_tokenizer(
    found: TokenizerSource, options: TokenOptions, given: Given | None = None
) -> TextTokenizer:
    """Make a tokenizer as the options want it to read special tokens.

    Args:
        found: Where its files are.
        options: What text that looks like a special token becomes.
        given: What is known of it already.

    Raises:
        SourceError: It cannot be loaded.
    """
    return TextTokenizer(found, specials=_specials(options), given=given)


def kept_tokenizer(found: TokenizerSource, options: TokenOptions) -> TextTokenizer | None:
    """Return the tokenizer if it was the last that was kept, else None."""
    return next(iter(_place(found, _specials(options))), None)


def keep_tokenizer(tokenizer: TextTokenizer, options: TokenOptions) -> TextTokenizer:
    """Keep a tokenizer that is surely what transformers makes of its files; return it."""
    _place(tokenizer.source, _specials(options))[:] = [tokenizer]
    return tokenizer


@lru_cache(maxsize=1)
def _place(found: TokenizerSource, specials: Specials) -> list[TextTokenizer]:  # noqa: ARG001
    return []


def _specials(options: TokenOptions) -> Specials:
    # The template of a chat writes special tokens; `ChatEncoder` keeps those of messages text.
    return "parse" if options.layout == "chat" else options.specials


def load_template(tokenizer: TextTokenizer, options: TokenOptions) -> ChatTemplate:
    """Read the chat template of a tokenizer.

    Raises:
        SourceError: It has none that can be used.
    """
    day = None if options.chat_day is None else date.fromisoformat(options.chat_day)
    try:
        return read_chat_template(tokenizer.pretrained, day=day)
    except ValueError as error:
        raise SourceError(f"{options.tokenizer}: {error}") from error
