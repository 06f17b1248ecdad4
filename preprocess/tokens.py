"""Tokens: text of any kind -> shards of ids, exactly those of the user's tokenizer."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from loaders.format.spec import FieldSpec
from preprocess.chat import ChatTemplate, read_chat_template
from preprocess.engine_check import choose_engine
from preprocess.engines import EngineError, ReferenceEngine, open_engine
from preprocess.errors import SampleError, SourceError
from preprocess.fixed_rows import RowFrame
from preprocess.output import check_paths
from preprocess.plan import Plan, RunOptions, plan_run
from preprocess.recipe import Maker, Redo, Rows
from preprocess.report import Report
from preprocess.run import OnProgress, run
from preprocess.sources import Item, Listing
from preprocess.texts import list_texts, read_documents
from preprocess.token_duplicates import check_installed
from preprocess.token_first import FirstPass
from preprocess.token_layouts import AnyLayout, FixedLayout, PackedLayout, StreamLayout
from preprocess.token_maker import Mismatch, TokenMaker
from preprocess.token_options import DEDUP_THRESHOLD, SPLIT_STEPS, Specials, TokenOptions
from preprocess.token_order import Orders
from preprocess.token_reorder import Reorder, first_folder, run_reordered
from preprocess.tokenizer import TextTokenizer, TokenizerSource, find_tokenizer

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER: Final = "tokenizer"
"""Where the tokenizer's files lie in the dataset."""

_VERSION: Final = 1
"""Of the recipe: raised when the same options give other tokens."""

_SAMPLE_NBYTES: Final = 1 << 20
_SAMPLE_ITEMS: Final = 8
"""Text that engines are compared on before a run, and the items that it is taken from."""

_TEXT_NBYTES_PER_TOKEN: Final = 3.5
"""Of usual texts and vocabularies, for estimates only."""


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
        size = np.dtype(self.layout.fields()[0].dtype).itemsize
        nbytes = item.part_nbytes or item.nbytes
        return 1 + round(nbytes * size / _TEXT_NBYTES_PER_TOKEN)

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return the layout's fields, what names the documents, and what is kept of them."""
        found = [*self.layout.fields(), _bytes_field("key", "key")]
        if self.chosen.text.metadata_keys:
            found.append(_bytes_field("metadata", "metadata"))
        return (*found, *(() if self.first is None else self.first.fields()))

    def refusal(self, tallies: Mapping[str, tuple[int, ...]]) -> str | None:
        """Refuse a corpus of empty documents."""
        documents, tokens = (tallies.get(name, (0,))[0] for name in ("documents", "tokens"))
        if documents and not tokens:
            return (
                f"all {documents:,} documents are empty; --text-key names the key of the text "
                f"(now {self.chosen.text.text_key!r})"
            )
        return None

    @contextmanager
    def opened(self) -> Iterator[Maker]:
        """Load the tokenizer and the engine."""
        tokenizer = _load(self.tokenizer, self.chosen)
        maker = TokenMaker(
            text=self.chosen.text,
            tokenizer=tokenizer,
            engine=open_engine(self.engine, tokenizer),
            layout=self.layout,
            bounds=None if self.split is None else self.chosen.bounds()[self.split],
            whole=SPLIT_STEPS,
            split_seed=self.chosen.split_seed,
            tells=self.split in {None, next(iter(self.chosen.bounds()))},
            chat=_template(tokenizer, self.chosen) if self.chosen.layout == "chat" else None,
            first=self.first,
        )
        yield _Watched(maker, self)


def _bytes_field(name: str, role: Any) -> FieldSpec:
    return FieldSpec(name=name, dtype="uint8", shape=(), role=role, ragged=True)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A maker whose engine is given up for the reference once it was wrong or broke down."""

    maker: TokenMaker
    recipe: TokenRecipe

    def samples(self, source: Path, items: Sequence[Item]) -> Iterator[Rows | SampleError]:
        """Yield the samples of the items, in order."""
        try:
            yield from self.maker.samples(source, items)
        except (EngineError, Mismatch) as error:
            raise Redo(replace(self.recipe, engine=ReferenceEngine.name)) from error


def plan_tokens(
    source: Path,
    out: Path,
    options: TokenOptions,
    run_options: RunOptions,
    limit: int | None = None,
) -> Plan:
    """Lay out a run over texts: find the tokenizer, compare the engines; nothing is written.

    Args:
        source: Folder, file or glob of texts.
        out: Folder to write the dataset to.
        options: What to make of each text.
        run_options: How to run.
        limit: Prepare only so many items (files, or parts of large ones), evenly spaced.

    Raises:
        SourceError: There is nothing to prepare, or the tokenizer or engine does not suit.
        OutputError: The folders overlap.
    """
    if options.dedup == "minhash":
        check_installed()
    listing = list_texts(source, options.text)
    if source.is_dir():
        check_paths(source, out)
    if limit is not None:
        listing = listing.limited(limit)
    found = find_tokenizer(options.tokenizer)
    tokenizer = _load(found, options)
    layout = _layout(options, tokenizer)
    verdict = choose_engine(tokenizer, options.engine, _sample(listing, options))
    recipe = TokenRecipe(
        chosen=options,
        tokenizer=found,
        engine=verdict.engine,
        verdict=json.dumps(verdict.to_json()),
        facts_json=json.dumps(_facts(tokenizer, layout)),
        layout=layout,
        split=None,
        unknown=None if tokenizer.unknown is None else tokenizer.unknown[1],
    )
    recipes = dict.fromkeys(listing.splits, recipe)
    parts = options.bounds()
    if len(parts) > 1:
        if set(listing.splits) != {"train"}:
            raise SourceError(
                f"{source}: has folders for splits ({', '.join(listing.splits)}) already; "
                "--validation and --test split what has none"
            )
        listing = replace(listing, splits=dict.fromkeys(parts, listing.splits["train"]))
        recipes = {name: replace(recipe, split=name) for name in parts}
    plan = plan_run(listing, out, recipes, run_options)
    files = {f"{FOLDER}/{name}": path.read_bytes() for name, path in found.copies().items()}
    return replace(plan, extras=files)


def tokens_to_shards(
    source: Path | str,
    out: Path | str,
    options: TokenOptions,
    run_options: RunOptions | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> Report:
    """Prepare texts as a dataset of tokens: what `prep tokens` does.

    Args:
        source: Folder, file or glob of texts.
        out: Folder to write the dataset to.
        options: What to make of each text.
        run_options: How to run; the defaults suit most.
        on_progress: Told (samples, skipped, bytes) as they are made, from worker threads.

    Returns:
        What was done; texts that could not be read are in its `skipped`.

    Raises:
        SourceError: There is nothing to prepare, or the tokenizer or engine does not suit.
        OutputError: The output folder cannot take the dataset.
    """
    chosen = run_options or RunOptions()
    return run_tokens(plan_tokens(Path(source), Path(out), options, chosen), chosen, on_progress)


def run_tokens(
    plan: Plan, run_options: RunOptions, on_progress: OnProgress = lambda *_: None
) -> Report:
    """Carry out what `plan_tokens` has planned: see `preprocess.run.run`.

    Documents that come in another order, or without duplicates, take two runs.
    """
    found = {name: r for name, r in plan.recipes.items() if isinstance(r, TokenRecipe)}
    recipe = next(iter(found.values()))
    chosen = recipe.chosen
    if not chosen.reorders:
        return _noted(run(plan, run_options, on_progress))
    dtype = recipe.layout.fields()[0].dtype
    pairs = chosen.text.pair_key is not None
    each = {
        name: replace(
            one,
            layout=StreamLayout(dtype=dtype, masked=chosen.layout == "chat"),
            first=FirstPass(dtype=dtype, pairs=pairs, dedup=chosen.dedup),
        )
        for name, one in found.items()
    }
    folder = first_folder(plan.out)
    first = plan_run(plan.listing, folder, each, replace(run_options, container="tensor"))
    orders = Orders(
        folder=folder,
        splits=tuple(plan.listing.splits),
        seed=chosen.shuffle_documents,
        dedup=chosen.dedup,
        threshold=chosen.dedup_threshold or DEDUP_THRESHOLD,
    )
    reorder = Reorder(orders=orders, layout=recipe.layout, unknown=recipe.unknown)
    return _noted(run_reordered(plan, first, reorder, run_options, on_progress))


def _load(found: TokenizerSource, options: TokenOptions) -> TextTokenizer:
    # The template of a chat writes special tokens; `ChatEncoder` keeps those of messages text.
    return _load_once(found, "parse" if options.layout == "chat" else options.specials)


@lru_cache(maxsize=1)
def _load_once(found: TokenizerSource, specials: Specials) -> TextTokenizer:
    """Load a tokenizer; the plan and the run use the same one, which takes up to seconds to make.

    What is loaded depends on the files' digest and never changes, so it can be kept.
    """
    return TextTokenizer(found, specials=specials)


def _template(tokenizer: TextTokenizer, options: TokenOptions) -> ChatTemplate:
    day = None if options.chat_day is None else date.fromisoformat(options.chat_day)
    try:
        return read_chat_template(tokenizer.pretrained, day=day)
    except ValueError as error:
        raise SourceError(f"{options.tokenizer}: {error}") from error


def _noted(report: Report) -> Report:
    """Say what the counts tell of documents that are not there whole."""
    notes = []
    if empty := sum(report.tallies.get("empty_items", ())):
        notes.append(f"no document in {empty:,} empty file{'s' * (empty != 1)}")
    documents, tokens = report.tallies.get("cut", (0, 0))
    if documents:
        notes.append(
            f"cut: {documents:,} documents are longer than a row, {tokens:,} tokens of their ends "
            "are left out; --stride stores them in further rows"
        )
    return replace(report, notes=(*report.notes, *notes))


def _sample(listing: Listing, options: TokenOptions) -> "pa.LargeStringArray":
    """Return the first texts of a few items, evenly spaced; items that are bad are passed over."""
    import pyarrow as pa

    found, nbytes = [], 0
    few = listing.limited(_SAMPLE_ITEMS)
    for item in (item for items in few.splits.values() for item in items):
        try:
            documents = next(read_documents(listing.root, item, options.text), None)
        except SampleError:
            continue  # the run itself will name it
        if documents is not None and nbytes < _SAMPLE_NBYTES:
            texts = documents.texts
            while len(texts) > 1 and texts.slice(0, len(texts)).nbytes > _SAMPLE_NBYTES:
                texts = texts.slice(0, len(texts) // 2)
            found.append(texts)
            nbytes += texts.nbytes
    return pa.concat_arrays(found) if found else pa.array([], pa.large_string())


def _layout(options: TokenOptions, tokenizer: TextTokenizer) -> AnyLayout:
    """Return what is stored of a document, special tokens looked up."""
    dtype = tokenizer.dtype
    stored = np.dtype(dtype).newbyteorder("<")
    pad = tokenizer.pad_id if options.pad is None else tokenizer.id_of(options.pad)
    if options.layout == "fixed" and options.length is not None:
        if pad is None:
            raise SourceError(
                f"{options.tokenizer}: the tokenizer has no padding token; name one with --pad"
            )
        pairs = options.text.pair_key is not None
        prefix, suffix = tokenizer.prefix_ids, tokenizer.suffix_ids
        separator: tuple[int, ...] = ()
        if pairs:
            prefix, separator, suffix = tokenizer.pair_frame()
        frame = RowFrame(
            length=options.length,
            pad_id=pad,
            dtype=stored,
            prefix_ids=prefix,
            separator_ids=separator,
            suffix_ids=suffix,
            stride=options.stride,
        )
        try:
            frame.room(pairs=pairs)
        except ValueError as error:
            raise SourceError(f"{options.tokenizer}: {error}") from error
        return FixedLayout(frame=frame, pairs=pairs)
    if options.layout == "chat":
        _template(tokenizer, options)
        return StreamLayout(dtype=dtype, masked=True)
    bos = _special(options.bos, tokenizer.bos_id, "BOS", tokenizer, options)
    eos = _special(options.eos, tokenizer.eos_id, "EOS", tokenizer, options)
    if options.layout == "packed" and options.length is not None:
        fill = pad if pad is not None else next(iter((*eos, *bos, 0)))
        return PackedLayout(
            dtype=dtype,
            length=options.length,
            packing=options.packing,
            pad_id=fill,
            bos=bos,
            eos=eos,
        )
    return StreamLayout(dtype=dtype, bos=bos, eos=eos)


def _special(
    wanted: str | None,
    own: int | None,
    what: str,
    tokenizer: TextTokenizer,
    options: TokenOptions,
) -> tuple[int, ...]:
    if wanted == "":
        return ()
    if wanted is not None:
        return (tokenizer.id_of(wanted),)
    if own is None:
        remedy = {
            "EOS": "name one with --eos, or --no-eos to store documents without",
            "BOS": "name one with --bos, or leave --add-bos out",
        }
        raise SourceError(f"{options.tokenizer}: the tokenizer has no {what} token; {remedy[what]}")
    return (own,)


def _facts(tokenizer: TextTokenizer, layout: AnyLayout) -> dict[str, Any]:
    facts = {
        "sha256": tokenizer.source.sha256,
        "files": [f"{FOLDER}/{name}" for name in tokenizer.source.copies()],
        "largest_id": tokenizer.largest_id,
        "eos_id": tokenizer.eos_id,
        "bos_id": tokenizer.bos_id,
        "pad_id": tokenizer.pad_id,
        "unk_id": tokenizer.unk_id,
    }
    if isinstance(layout, PackedLayout):
        facts["pad_id"] = layout.pad_id
    if isinstance(layout, FixedLayout):
        facts["pad_id"] = layout.frame.pad_id
    return facts
