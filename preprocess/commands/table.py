"""`prep table`: options -> one call -> report."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preprocess.commands.prepare import (
    FOLDER,
    Command,
    carry_out,
    make_run_options,
    preparing_options,
    split_options,
)
from preprocess.commands.tokens import GlobCommand
from preprocess.spelling import Option, OptionError

if TYPE_CHECKING:
    from preprocess.plan import RunOptions
    from preprocess.tables.layout import TablePlan
    from preprocess.tables.options import TableOptions
    from preprocess.tables.request import TableRequest


def _columns(name: str, text: str) -> Callable[[Command], Command]:
    """Return an option that takes names of columns: repeated, or several with commas."""
    return click.option(name, multiple=True, metavar="NAMES", help=text)


@click.command(cls=GlobCommand, short_help="Turn a table into shards of packed records.")
@click.argument("source", type=FOLDER, metavar="SRC")
@click.argument("out", type=FOLDER)
@click.option("--target", metavar="NAME", help="Column to predict.")
@click.option(
    "--task",
    type=click.Choice(["auto", "classification", "regression"]),
    default="auto",
    show_default=True,
    help="What the target is: a class or a number; auto decides by what is in it.",
)
@_columns("--categorical", "Columns whose values become codes, whatever they look like.")
@_columns("--numeric", "Columns that must be numbers; others are refused by line.")
@_columns("--ignore", "Columns to leave out.")
@_columns("--text", "Columns of texts: their tokens are stored beside the records.")
@click.option(
    "--tokenizer",
    metavar="T",
    help="Makes these tokens: folder, tokenizer.json, tiktoken file or name, as for prep tokens.",
)
@click.option(
    "--schema",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="TOML with kind, dtype, buckets, min_count of single columns.",
)
@click.option(
    "--like",
    type=FOLDER,
    metavar="TRAIN_OUT",
    help="Use schema and vocabularies of another dataset: new values become unknown.",
)
@click.option(
    "--out-of-range",
    type=click.Choice(["refuse", "clip", "missing"]),
    default="refuse",
    show_default=True,
    help="With --like: numbers that are outside of what is stored are refused by line, become the "
    "nearest that is stored, or missing; they are counted.",
)
@click.option(
    "--room",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="PERCENT",
    help="Keep codes for new whole numbers, dates and times: so much of the range below and above.",
)
@click.option(
    "--hash-buckets",
    multiple=True,
    metavar="NAME=N",
    help="Hash the values of a column into N codes instead of counting them.",
)
@click.option(
    "--min-count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Values that occur less often in train share the code of unknown ones.",
)
@_columns("--float32", "Columns whose floats may be rounded to float32; * for all.")
@click.option(
    "--datetime-parts",
    is_flag=True,
    help="Put year, month, day, weekday and hour of times beside them.",
)
@click.option(
    "--delimiter", metavar="MARK", help="CSV: between fields, also as \\t.  [default: by content]"
)
@click.option("--no-header", is_flag=True, help="CSV: the first line is a row, no names.")
@click.option("--decimal", default=".", show_default=True, metavar="MARK", help="CSV: as in 1.5.")
@click.option("--thousands", metavar="MARK", help="CSV: as in 1,000,000.")
@click.option(
    "--null-values",
    multiple=True,
    metavar="TEXT",
    help="CSV: unquoted fields without a value; repeat it, it replaces the default.",
)
@click.option("--encoding", metavar="NAME", help="CSV without a byte order mark.  [UTF-8]")
@split_options("rows")
@click.option("--stratify", is_flag=True, help="Give every class of the target these shares.")
@click.option("--group-by", metavar="NAME", help="Keep rows of the same value in one split.")
@click.option("--split-by-time", metavar="NAME", help="Test on the last rows by this column.")
@click.option(
    "--shuffle",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="Store the rows of each split in an order that follows from the seed.",
)
@click.option("--follow-links", is_flag=True, help="Take what symbolic links point to.")
@preparing_options("files", limited="rows: of every file its share, from the first on", grows=False)
@click.pass_context
def table(ctx: click.Context, /, **options: Any) -> None:
    """Turn a table into shards: one packed record a row, in the types that lose nothing.

    SRC is a folder, a file or a glob: CSV, TSV, Parquet, Arrow, JSON lines, also compressed. Types
    follow from all rows; --dry-run shows them. Vocabularies and statistics are those of the train
    split. Bad records are skipped, and listed with file, line and cause in OUT/skipped.jsonl.
    """
    request, run_options = _request(options), make_run_options(options)
    from preprocess.tables.prepare import plan_table, run_table

    dry_run = options["dry_run"]
    if sys.stderr is not None and sys.stderr.isatty():
        click.echo("reading the table", err=True)
    with plan_table(request, run_options, dry_run=dry_run) as planned:
        if dry_run:
            _show(planned, run_options, as_json=options["as_json"])
            return
        carry_out(
            ctx,
            planned.plan,
            run_options,
            options,
            lambda _, chosen, on_progress: run_table(planned, chosen, on_progress),
        )


def _show(planned: "TablePlan", run_options: "RunOptions", *, as_json: bool) -> None:
    """Print what a run would write."""
    from preprocess.commands.table_preview import describe_preview, preview_text
    from preprocess.commands.terminal import print_json, print_text

    described = describe_preview(planned, run_options)
    if as_json:
        print_json(described)
    else:
        print_text(preview_text(described))


def _request(options: dict[str, Any]) -> "TableRequest":
    from preprocess.tables.request import TableRequest
    from preprocess.tables.toml import read_wishes

    schema = options["schema"]
    return TableRequest(
        source=options["source"],
        out=options["out"],
        options=_table_options(options),
        wishes={} if schema is None else read_wishes(schema),
        like=options["like"],
        out_of_range=options["out_of_range"],
        limit=options["limit"],
        follow_links=options["follow_links"],
    )


def _table_options(options: dict[str, Any]) -> "TableOptions":
    from preprocess.tables.options import NULL_VALUES, TableOptions

    names: dict[str, Any] = {
        name: tuple(part for given in options[name] for part in given.split(","))
        for name in ("categorical", "numeric", "ignore", "text", "float32")
    }
    same = ("target", "task", "min_count", "datetime_parts", "tokenizer", "room")
    read = ("decimal", "thousands", "encoding")
    split = ("validation", "test", "split_seed", "stratify", "group_by", "split_by_time", "shuffle")
    delimiter = options["delimiter"]
    return TableOptions(
        **names,
        **{name: options[name] for name in (*same, *read, *split)},
        hash_buckets=tuple(_buckets(given) for given in options["hash_buckets"]),
        delimiter="\t" if delimiter in {"\\t", "tab"} else delimiter,
        header=not options["no_header"],
        max_item_nbytes=options["max_item_bytes"],
        null_values=options["null_values"] or NULL_VALUES,
    )


def _buckets(given: str) -> tuple[str, int]:
    """Read NAME=N."""
    name, equals, count = given.rpartition("=")
    if not equals or not count.isascii() or not count.isdigit() or len(count) > 10:
        raise OptionError(
            Option("hash_buckets", given), ": expected NAME=N, such as user_id=100000"
        )
    return name, int(count)
