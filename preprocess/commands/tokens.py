"""`prep tokens`: options -> one call -> report."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preprocess.commands.prepare import (
    FOLDER,
    OWN_PROCESS,
    carry_out,
    make_run_options,
    preparing_options,
    split_options,
)
from preprocess.values import ByteCount, SharesCommand

if TYPE_CHECKING:
    from preprocess.plan import Plan, RunOptions
    from preprocess.report import Report
    from preprocess.run import OnProgress
    from preprocess.tokens.export import Target
    from preprocess.tokens.options import TokenOptions


class GlobCommand(SharesCommand):
    """Says what to do where the shell has put many names in the place of a pattern."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments as usual."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "extra argument" not in error.message:
                raise
            remedy = 'put a pattern in quotes, as in "data/*.jsonl"'
            raise click.UsageError(f"{error.message}; {remedy}", ctx) from error


@click.command(cls=GlobCommand, short_help="Turn texts into shards of token ids.")
@click.argument("source", type=FOLDER, metavar="SRC")
@click.argument("out", type=FOLDER)
@click.option(
    "--tokenizer",
    required=True,
    metavar="NAME|PATH",
    help="Folder or tokenizer.json of a transformers tokenizer, its name in the local cache, or a "
    "tiktoken file.",
)
@click.option(
    "--tiktoken-pattern",
    metavar="NAME|REGEX",
    help="How a tiktoken file that is no published one splits text: as cl100k_base and so on, or a "
    "regular expression.",
)
@click.option(
    "--layout",
    type=click.Choice(["stream", "fixed", "packed", "chat"]),
    default="stream",
    show_default=True,
    help="stream: documents of any length; fixed: rows for encoders; packed: documents that share "
    "rows; chat: messages with a loss mask.",
)
@click.option(
    "--length", type=click.IntRange(min=1), metavar="N", help="Tokens of a row: fixed, packed."
)
@click.option(
    "--stride",
    type=click.IntRange(min=0),
    metavar="N",
    help="fixed: cut long documents into rows that overlap by N tokens, instead of at the end.",
)
@click.option(
    "--packing",
    type=click.Choice(["best_fit", "first_fit"]),
    default="best_fit",
    show_default=True,
    help="packed: best_fit fills rows most; first_fit keeps neighbours together.",
)
@click.option(
    "--engine",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="auto (the fastest installed that is exact), transformers, fastokens, gigatoken or "
    "nanotoken.",
)
@click.option(
    "--specials",
    type=click.Choice(["text", "parse", "error"]),
    default="text",
    show_default=True,
    help="What text that looks like a special token becomes: text, the special token, an error.",
)
@click.option("--eos", metavar="TOKEN", help="Token after each document.  [default: tokenizer's]")
@click.option("--no-eos", is_flag=True, help="No token after documents.")
@click.option("--bos", metavar="TOKEN", help="Token before each document.  [default: none]")
@click.option("--add-bos", is_flag=True, help="The tokenizer's own BOS before each document.")
@click.option("--pad", metavar="TOKEN", help="Token that fills rows.  [default: tokenizer's]")
@click.option(
    "--chat-day",
    metavar="YYYY-MM-DD",
    help="chat: written by templates that write the date of the day.",
)
@click.option(
    "--text-key",
    default=None,
    metavar="A.B",
    help="Key or column of the text.  [default: text; chat: messages]",
)
@click.option("--pair-key", metavar="A.B", help="fixed: key of a second text.")
@click.option(
    "--metadata-keys",
    multiple=True,
    metavar="A.B",
    help="Key to keep with each document, as JSON; repeat it or give a list with commas.",
)
@click.option("--lines", is_flag=True, help="Text files hold one document a line.")
@click.option("--encoding", metavar="NAME", help="Of texts without a byte order mark.  [UTF-8]")
@click.option(
    "--errors",
    type=click.Choice(["refuse", "replace"]),
    default="refuse",
    show_default=True,
    help="Bytes that are no text: refuse the record or file, or put U+FFFD.",
)
@split_options("documents")
@click.option(
    "--shuffle-documents",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="Store the documents of each split in an order that follows from the seed.",
)
@click.option(
    "--dedup",
    type=click.Choice(["exact", "minhash"]),
    help="Leave out documents that came before, over all splits: the same text, or nearly.",
)
@click.option(
    "--dedup-threshold",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="minhash: how much alike nearly is.  [default: 0.8]",
)
@click.option(
    "--max-document",
    type=ByteCount(),
    default="64MB",
    show_default=True,
    help="Refuse documents with more bytes.",
)
@click.option(
    "--export",
    "target",
    type=click.Choice(["nanogpt", "megatron", "llmc"]),
    help="stream: also write another trainer's files, to OUT.nanogpt and so on; see prep export.",
)
@click.option("--follow-links", is_flag=True, help="Take what symbolic links point to.")
@preparing_options("items", " (files, and parts of large ones)")
@click.pass_context
def tokens(ctx: click.Context, /, **options: Any) -> None:
    """Turn texts into shards of token ids, exactly those of a transformers tokenizer.

    SRC is a folder, a file or a glob: text, JSON lines, Parquet, CSV, Arrow, also compressed. Bad
    records are skipped, and listed with file, line and cause in OUT/skipped.jsonl. The same
    command again goes on where an interrupted one ended.
    """
    from preprocess.tokens.apart import leave_out_torch, loader_started

    own_process = ctx.obj == OWN_PROCESS
    if own_process:
        leave_out_torch()
    # What follows is imported while the other process loads the tokenizer.
    with (
        loader_started(wanted=options["layout"] != "chat") as process,
        _no_collections(own_process=own_process),
    ):
        chosen, run_options = _token_options(options), make_run_options(options)
        _check_export(options)
        from preprocess.tokens.prepare import plan_tokens, run_tokens

        source, out, limit = options["source"], options["out"], options["limit"]
        plan = plan_tokens(source, out, chosen, run_options, limit, process)

    def run_and_export(
        plan: "Plan", run_options: "RunOptions", on_progress: "OnProgress"
    ) -> "Report":
        report = run_tokens(plan, run_options, on_progress)
        target = options["target"]
        return report if target is None else _exported(report, out, target)

    carry_out(ctx, plan, run_options, options, run_and_export)


def _check_export(options: dict[str, Any]) -> None:
    target = options["target"]
    if target is not None and options["layout"] != "stream":
        raise click.UsageError("--export: only layout stream holds documents to hand on")
    if target is not None and options["append"]:
        remedy = f"give --append alone, and then: prep export OUT FOLDER --to {target}"
        raise click.UsageError(f"--export and --append: {remedy}")


@contextmanager
def _no_collections(*, own_process: bool) -> Iterator[None]:
    """Look for no garbage while the imports and the vocabulary are made, nor in them later.

    They are a million objects that stay, and were looked through dozens of times: a tenth of the
    time before the first document.
    """
    if not own_process:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _exported(report: "Report", out: Path, target: "Target") -> "Report":
    """Export what a run has made, unless an earlier one did.

    Raises:
        OutputError: What an earlier one exported is not this dataset any more.
    """
    from loaders.format.files import MANIFEST
    from preprocess.errors import OutputError
    from preprocess.tokens.export import export_tokens

    folder = out.with_name(f"{out.name}.{target}")
    if not (report.backend == "" and folder.is_dir()):
        export_tokens(out, folder, target)
    elif _newest(folder) < (out / MANIFEST).stat().st_mtime_ns:
        raise OutputError(
            f"{folder}: older than the dataset, which has grown or was made again since; remove "
            "it, and give the command again"
        )
    return replace(report, notes=(*report.notes, f"{target}: the files are in {folder}"))


def _newest(folder: Path) -> int:
    """Return when a file of a folder was last changed, in nanoseconds; 0 without files."""
    return max((p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()), default=0)


def _token_options(options: dict[str, Any]) -> "TokenOptions":
    from preprocess.texts.options import TextOptions
    from preprocess.tokens.options import TokenOptions
    from preprocess.tokens.tokenizer_tiktoken import name_tokenizer

    for one, other in (("eos", "no_eos"), ("bos", "add_bos")):
        if options[one] is not None and options[other]:
            raise click.UsageError(f"--{one} and --{other.replace('_', '-')} exclude each other")
    chat = options["layout"] == "chat"
    own_key = "messages" if chat else "text"
    keys = [key for given in options["metadata_keys"] for key in given.split(",")]
    return TokenOptions(
        tokenizer=name_tokenizer(options["tokenizer"], options["tiktoken_pattern"], options["eos"]),
        layout=options["layout"],
        length=options["length"],
        stride=options["stride"],
        packing=options["packing"],
        specials=options["specials"],
        eos="" if options["no_eos"] else options["eos"],
        bos=None if options["add_bos"] else (options["bos"] or ""),
        pad=options["pad"],
        chat_day=options["chat_day"],
        validation=options["validation"],
        test=options["test"],
        split_seed=options["split_seed"],
        shuffle_documents=options["shuffle_documents"],
        dedup=options["dedup"],
        dedup_threshold=options["dedup_threshold"],
        engine=options["engine"],
        text=TextOptions(
            text_key=own_key if options["text_key"] is None else options["text_key"],
            pair_key=options["pair_key"],
            metadata_keys=tuple(keys),
            lines=options["lines"],
            json_values=chat,
            encoding=options["encoding"],
            errors=options["errors"],
            max_document_nbytes=options["max_document"],
            max_item_nbytes=options["max_item_bytes"],
            follow_links=options["follow_links"],
        ),
    )
