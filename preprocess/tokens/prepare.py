"""Tokens: text of any kind -> shards of ids, exactly those of the user's tokenizer."""

import json
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from preprocess.append import continue_plan
from preprocess.errors import SourceError
from preprocess.output import check_paths
from preprocess.plan import Plan, RunOptions, plan_run
from preprocess.report import Report
from preprocess.run import OnProgress, Runner, run
from preprocess.spelling import in_python
from preprocess.texts.read import list_texts
from preprocess.tokens.apart import Process, loader_started
from preprocess.tokens.duplicates import check_installed
from preprocess.tokens.engine_check import Verdict, choose_engine
from preprocess.tokens.engines import open_engine
from preprocess.tokens.first import FirstPass
from preprocess.tokens.layouts import StreamLayout
from preprocess.tokens.loading import Loading
from preprocess.tokens.options import DEDUP_THRESHOLD, TokenOptions
from preprocess.tokens.order import Orders
from preprocess.tokens.recipe import (
    TokenRecipe,
    keep_tokenizer,
    kept_tokenizer,
    load_template,
    make_tokenizer,
)
from preprocess.tokens.reorder import Reorder, first_folder, run_reordered
from preprocess.tokens.sample import take_sample
from preprocess.tokens.special import FOLDER, choose_layout, tokenizer_facts
from preprocess.tokens.tokenizer import TextTokenizer
from preprocess.tokens.tokenizer_source import find_tokenizer

if TYPE_CHECKING:
    import pyarrow as pa


def plan_tokens(
    source: Path,
    out: Path,
    options: TokenOptions,
    run_options: RunOptions,
    limit: int | None = None,
    process: Process | None = None,
) -> Plan:
    """Lay out a run over texts: find the tokenizer, compare the engines; nothing is written.

    Args:
        source: Folder, file or glob of texts.
        out: Folder to write the dataset to.
        options: What to make of each text.
        run_options: How to run.
        limit: Prepare only so many items (files, or parts of large ones), evenly spaced.
        process: Loads the tokenizer, if `loader_started` has started it already.

    Raises:
        SourceError: There is nothing to prepare, or the tokenizer or engine does not suit.
        OutputError: The folders overlap, or what is to be appended to is another dataset.
    """
    if options.dedup == "minhash":
        check_installed()
    found = find_tokenizer(options.tokenizer)
    with ExitStack() as stack:
        if process is None:
            apart = options.layout != "chat" and kept_tokenizer(found, options) is None
            process = stack.enter_context(loader_started(wanted=apart))
        loading = Loading(found, process)
        listing = list_texts(source, options.text)
        if source.is_dir():
            check_paths(source, out)
        if limit is not None:
            listing = listing.limited(limit)
        sample = take_sample(listing, options)
        tokenizer, verdict = _choose(loading, options, sample.texts)
    layout = choose_layout(options, tokenizer)
    if sample.absent:
        shown = ", ".join(map(repr, sample.absent))
        note = f"no record that was looked at has {shown} (--metadata-keys)"
        listing = replace(listing, notes=(*listing.notes, note))
    recipe = TokenRecipe(
        chosen=options,
        tokenizer=found,
        engine=verdict.engine,
        verdict=json.dumps(verdict.to_json()),
        facts_json=json.dumps(tokenizer_facts(tokenizer, layout)),
        layout=layout,
        split=None,
        unknown=None if tokenizer.unknown is None else tokenizer.unknown[1],
        rates=sample.rates(open_engine(verdict.engine, tokenizer)),
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
    where = options.tokenizer
    named = where if isinstance(where, str) else asdict(where)
    aside = {**plan.aside, "limit": limit, "tokenizer": named}
    plan = replace(plan, extras=files, aside=aside, closed=_closed(options, limit))
    return continue_plan(plan, run_options)


def _choose(
    loading: Loading, options: TokenOptions, texts: "pa.LargeStringArray"
) -> tuple[TextTokenizer, Verdict]:
    """Load the tokenizer and choose the engine, on a guess as long as transformers loads it."""
    tokenizer = kept_tokenizer(loading.source, options)
    if tokenizer is None:
        try:
            if (guess := loading.guess()) is not None:
                guessed = make_tokenizer(loading.source, options, guess)
                verdict = choose_engine(guessed, options.engine, texts)
                if loading.agrees(guess):
                    return keep_tokenizer(guessed, options), verdict
        except SourceError:
            pass  # told below if it is true of what transformers makes
        tokenizer = make_tokenizer(loading.source, options, loading.given())
        keep_tokenizer(tokenizer, options)
    if options.layout == "chat":
        load_template(tokenizer, options)  # a template that cannot be used is told now
    return tokenizer, choose_engine(tokenizer, options.engine, texts)


def _closed(options: TokenOptions, limit: int | None) -> str:
    """Say why nothing can be appended to what is made so; "" where that can be."""
    if options.shuffle_documents is not None:
        return "--shuffle-documents is an order of all documents"
    if options.dedup is not None:
        return "--dedup compares all documents"
    return "" if limit is None else "--limit takes other files once there are more"


@in_python()
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
    plan: Plan,
    run_options: RunOptions,
    on_progress: OnProgress = lambda *_: None,
    runner: Runner = run,
) -> Report:
    """Carry out what `plan_tokens` has planned: see `preprocess.run.run`.

    Documents that come in another order, or without duplicates, take two runs; `runner` is the
    last.
    """
    found = {name: r for name, r in plan.recipes.items() if isinstance(r, TokenRecipe)}
    recipe = next(iter(found.values()))
    chosen = recipe.chosen
    if not chosen.reorders:
        return runner(plan, run_options, on_progress)
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
    return run_reordered(plan, first, reorder, run_options, on_progress, runner)
