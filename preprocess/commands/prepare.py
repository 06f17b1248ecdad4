"""What all commands that prepare data share: their options, and how a plan is carried out."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from preprocess.spelling import OptionError
from preprocess.values import ByteCount, Folder, SplitShares, check_backend, join_shares

if TYPE_CHECKING:
    from loaders.format.spec import Container
    from preprocess.images.bucket_preview import BucketPreview
    from preprocess.images.compare import Measured
    from preprocess.plan import Plan, RunOptions
    from preprocess.report import Report
    from preprocess.run import OnProgress

EXIT_SKIPPED: Final = 3

INTERRUPTED: Final = "preprocess.interrupted"
"""Key in a context's `meta`: what an interrupt leaves behind, for its message."""

OWN_PROCESS: Final = "preprocess.own_process"
"""A context's `obj` where the command is all that its process does."""

FOLDER: Final = Folder(path_type=Path, readable=False)  # our own message says why it is not

Command = TypeVar("Command", bound=Callable[..., Any])


def split_options(things: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of commands that split what has no splits.

    Args:
        things: What is split, in the plural.
    """

    def share(split: str) -> Callable[[Command], Command]:
        return click.option(
            f"--{split}",
            type=click.FloatRange(0, 1, max_open=True),
            default=0.0,
            metavar="SHARE",
            help=f"As --split {split}=SHARE.",
        )

    seed = click.option(
        "--split-seed", type=int, default=0, help=f"Chooses other {things} for the splits."
    )
    named = click.option(
        "--split",
        "shares",
        type=SplitShares(),
        multiple=True,
        callback=join_shares,
        metavar="NAME=SHARE ...",
        help=f"Shares of the {things}, by a stable hash: train=0.8 validation=0.1 test=0.1; train "
        "may be left out.",
    )
    return lambda command: named(share("validation")(share("test")(seed(_with_shares(command)))))


def _with_shares(command: Command) -> Command:
    """Return a command that knows the shares of --split as --validation and --test."""

    @wraps(command)
    def called(*args: Any, shares: dict[str, float], **options: Any) -> Any:
        for name in ("validation", "test") if shares else ():
            if options[name]:
                raise click.UsageError(f"--split and --{name}: give one of them")
            options[name] = shares.get(name, 0.0)
        return command(*args, **options)

    return cast("Command", called)


def preparing_options(
    things: str,
    limit_note: str = "",
    limited: str = "",
    *,
    max_item_nbytes: str | None = None,
    grows: bool = True,
) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of every command that prepares data.

    Args:
        things: What the command prepares, in the plural.
        limit_note: What else there is to say of --limit.
        limited: What --limit counts, and which of them are taken, where that is something else.
        max_item_nbytes: The largest file that is taken unless --max-item-bytes says otherwise.
        grows: Whether a dataset of them can be appended to; else help does not show --append, which
            is refused with the way to go instead.
    """
    options = (
        click.option(
            "--format",
            "container",
            type=click.Choice(["tensor", "zarr"]),
            default="tensor",
            show_default=True,
            help="tensor: .npy files; zarr: zarr v3 groups.",
        ),
        click.option(
            "--shard-size",
            "shard_nbytes",
            type=ByteCount(),
            default="256MB",
            show_default=True,
            help="Bytes of samples to a shard.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            metavar="N",
            help=f"{things.capitalize()} prepared at a time.  [default: cores]",
        ),
        click.option(
            "--backend",
            metavar="NAME",
            callback=check_backend,
            default="auto",
            show_default=True,
            help="joblib backend: threading (threads), loky (processes), or another that is "
            f"registered; auto chooses what suits the {things}.",
        ),
        click.option(
            "--max-skipped",
            type=click.IntRange(min=0),
            metavar="N",
            default=0,
            show_default=True,
            help=f"Unreadable {things} to accept; more end with exit code 3, the dataset written.",
        ),
        click.option(
            "--item-timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help="Leave out by name what takes longer; prepares in processes.  [default: none]",
        ),
        click.option(
            "--max-item-bytes",
            type=ByteCount(),
            default=max_item_nbytes,
            show_default=True,
            help="Refuse files with more bytes, before they are read or while they decompress."
            + ("" if max_item_nbytes else "  [default: no limit]"),
        ),
        click.option(
            "--limit",
            type=click.IntRange(min=1),
            metavar="N",
            help=f"Prepare only N {limited or f'{things}, evenly spaced over all{limit_note}'}.",
        ),
        click.option(
            "--overwrite", is_flag=True, help="First remove what prep wrote to OUT earlier."
        ),
        click.option(
            "--append",
            is_flag=True,
            hidden=not grows,
            help="Add what is new in SRC to the dataset in OUT, as further shards.",
        ),
        click.option(
            "--dry-run", is_flag=True, help="Say what would be written, and write nothing."
        ),
        click.option("--json", "as_json", is_flag=True, help="Print the report as JSON."),
    )

    def decorate(command: Command) -> Command:
        command = _refusing_flags(command)
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _refusing_flags(command: Command) -> Command:
    """Return a command that names flags where a record of options names its keywords."""

    @wraps(command)
    def carry_out(*args: Any, **options: Any) -> Any:
        try:
            return command(*args, **options)
        except OptionError as error:
            raise click.UsageError(error.as_typed) from error

    return cast("Command", carry_out)


@dataclass(frozen=True, slots=True)
class Looks:
    """What a dry run finds out of the items themselves.

    Attributes:
        storage: Measures ways to store them.
        buckets: Counts the photos of each bucket, where there are buckets.
    """

    storage: "Callable[[], list[Measured]]"
    buckets: "Callable[[], list[BucketPreview]]"


def make_run_options(options: dict[str, Any]) -> "RunOptions":
    """Return the shared options as the record that a run takes."""
    from preprocess.plan import RunOptions

    return RunOptions(
        container=cast("Container", options["container"]),
        shard_nbytes=options["shard_nbytes"],
        workers=options["workers"],
        backend=options["backend"],
        max_skipped=options["max_skipped"],
        overwrite=options["overwrite"],
        append=options["append"],
        item_timeout=options["item_timeout"],
    )


def carry_out(
    ctx: click.Context,
    plan: "Plan",
    run_options: "RunOptions",
    options: dict[str, Any],
    runner: "Callable[[Plan, RunOptions, OnProgress], Report] | None" = None,
    looks: "Looks | None" = None,
) -> None:
    """Do what a plan says, or say it on a dry run; report, and choose the exit code.

    Args:
        ctx: Of the command.
        plan: What to do.
        run_options: How to do it.
        options: Of the command.
        runner: Does it; `preprocess.run.run` by default.
        looks: At the photos themselves, for a dry run.
    """
    from preprocess.commands.terminal import (
        check_plan,
        print_json,
        print_plan,
        print_text,
        progress_bar,
    )
    from preprocess.run import run

    if options["dry_run"]:
        check_plan(plan, overwrite=run_options.overwrite)
        storage = None if looks is None else looks.storage()
        buckets = None if looks is None else looks.buckets()
        overwrite, as_json = run_options.overwrite, options["as_json"]
        print_plan(plan, storage, buckets, overwrite=overwrite, as_json=as_json)
        return
    ctx.meta[INTERRUPTED] = "; finished shards are kept, the same command goes on from there"
    with progress_bar(plan) as on_progress:
        report = (runner or run)(plan, run_options, on_progress)
    if options["as_json"]:
        print_json(report.to_json())
    else:
        print_text(report.to_text())
    if report.too_many_skipped:
        click.echo(
            f"skipped: {len(report.skipped):,}, accepted: {report.max_skipped:,}; the dataset is "
            f"written and usable; --max-skipped {len(report.skipped)} accepts as many",
            err=True,
        )
        ctx.exit(EXIT_SKIPPED)
