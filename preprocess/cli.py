"""The `prep` command: options -> one call -> report. Heavy packages load inside the commands."""

import errno
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from loaders.errors import ShardsError
from preprocess.commands.export import export
from preprocess.commands.images import images
from preprocess.commands.prepare import FOLDER, INTERRUPTED, OWN_PROCESS
from preprocess.commands.repair import repair
from preprocess.commands.table import table
from preprocess.commands.tokens import tokens
from preprocess.interrupts import ended_once

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class PrepGroup(click.Group):
    """Turns errors into one line and an exit code: 1 for ours, 130 or 143 when stopped."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command at the program's edge."""
        try:
            # SIGTERM ends a command as Ctrl-C does: workers end, temporary files go.
            with ended_once({signal.SIGTERM: _Terminated, signal.SIGINT: KeyboardInterrupt}):
                return super().invoke(ctx)
        except ShardsError as error:
            _fail(ctx, str(error))
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader of a pipe went away: Click ends quietly
            place = f"{error.filename!s}: " if error.filename else ""
            _fail(ctx, f"{place}{error.strerror or error}")
        except MemoryError:
            _fail(ctx, "not enough memory; fewer --workers and a smaller --shard-size take less")
        except KeyboardInterrupt as error:
            if ctx.obj == OWN_PROCESS:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to be ended
            click.echo(f"interrupted{ctx.meta.get(INTERRUPTED, '')}", err=True)
            ctx.exit(EXIT_TERMINATED if isinstance(error, _Terminated) else EXIT_INTERRUPTED)


class _Terminated(KeyboardInterrupt):
    """The process was asked to end, as by a container or a batch system."""


def _fail(ctx: click.Context, message: str) -> NoReturn:
    from preprocess.items import printable

    click.echo(f"Error: {printable(message)}", err=True)
    ctx.exit(EXIT_ERROR)


@click.group(cls=PrepGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="prepshards", prog_name="prep")
def prep() -> None:
    """Prepare training data once, as shards that a GPU never waits for."""


def main() -> None:
    """Run `prep` as a process of its own: what it does to the process outlives no command."""
    prep(obj=OWN_PROCESS)


prep.add_command(export)
prep.add_command(images)
prep.add_command(repair)
prep.add_command(table)
prep.add_command(tokens)


@prep.command(short_help="Show what a dataset holds.")
@click.argument("path", type=FOLDER, metavar="OUT")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option(
    "--show",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Tokens: show N samples of each split as text, between bars.",
)
def info(path: Path, **options: Any) -> None:
    """Show what a dataset holds: splits, fields, shapes, counts, bytes, statistics."""
    from preprocess.commands.described import dataset_texts, describe_dataset
    from preprocess.commands.terminal import print_json, print_text

    described = describe_dataset(path)
    if options["as_json"]:
        print_json(described)
        return
    for text in dataset_texts(path, described):
        print_text(text)
    if options["show"] and "tokens" in described:
        from preprocess.tokens.info import show_samples

        for line in show_samples(path, options["show"]):
            print_text(line)


@prep.command(short_help="Compare a dataset with its manifest.")
@click.argument("path", type=FOLDER, metavar="OUT")
@click.option("--full", is_flag=True, help="Compare checksums: reads every byte.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Files read at a time.  [default: cores]",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_context
def check(ctx: click.Context, /, path: Path, **options: Any) -> None:
    """Compare a dataset with its manifest: every file there, of the right size.

    With --full, of the right content too. A missing, cut, extended, swapped or changed file, a
    shard that the manifest does not name, and what a stopped run left make the exit code 1; other
    files that are not part of the dataset are listed, and do no harm.
    """
    from preprocess.check import check_dataset
    from preprocess.commands.terminal import check_text, print_json, print_text

    report = check_dataset(path, full=options["full"], workers=options["workers"])
    if options["as_json"]:
        print_json(report.to_json())
    else:
        print_text(check_text(report))
    if report.problems:
        ctx.exit(EXIT_ERROR)


@prep.command(short_help="Show the whole way, from photos to a trained model.")
@click.argument("out", type=FOLDER, default=Path("prep-demo"))
def demo(out: Path) -> None:
    """Make photos, prepare, check and open them, and train a small model: the whole way.

    Everything is written below OUT (prep-demo by default).
    """
    from preprocess.demo.run_demo import run_demo

    run_demo(out, click.echo)


if __name__ == "__main__":
    sys.exit(prep())
