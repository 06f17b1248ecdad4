"""The `prep` command: options -> one call -> report. Heavy packages load inside the commands."""

import errno
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from loaders.errors import ShardsError
from preprocess.values import ByteCount, Folder, ImageSizes, SizesCommand, check_backend, join_sizes

if TYPE_CHECKING:
    from loaders.format.spec import Container
    from preprocess.folders import LabelMode
    from preprocess.images import Background, ImageOptions
    from preprocess.plan import RunOptions
    from preprocess.resize import Fit, Resample

EXIT_ERROR = 1
EXIT_SKIPPED = 3
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

_INTERRUPTED = "preprocess.interrupted"
"""Key in a context's `meta`: what an interrupt leaves behind, for its message."""

FOLDER = Folder(path_type=Path, readable=False)  # our own message says why it is not


class PrepGroup(click.Group):
    """Turns errors into one line and an exit code: 1 for ours, 130 or 143 when stopped."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command at the program's edge."""
        try:
            with _stopped_by_sigterm():
                return super().invoke(ctx)
        except ShardsError as error:
            _fail(ctx, str(error))
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader of a pipe went away: Click ends quietly
            place = f"{error.filename!s}: " if error.filename else ""
            _fail(ctx, f"{place}{error.strerror or error}")
        except KeyboardInterrupt as error:
            click.echo(f"interrupted{ctx.meta.get(_INTERRUPTED, '')}", err=True)
            ctx.exit(EXIT_TERMINATED if isinstance(error, _Terminated) else EXIT_INTERRUPTED)


class _Terminated(KeyboardInterrupt):
    """The process was asked to end, as by a container or a batch system."""


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does: workers end, temporary files go."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> NoReturn:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _fail(ctx: click.Context, message: str) -> NoReturn:
    from preprocess.sources import printable

    click.echo(f"Error: {printable(message)}", err=True)
    ctx.exit(EXIT_ERROR)


@click.group(cls=PrepGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("prepshards"), prog_name="prep")
def prep() -> None:
    """Prepare training data once, as shards that a GPU never waits for."""


@prep.command(cls=SizesCommand, short_help="Resize a folder of photos to one or more sizes.")
@click.argument("source", type=FOLDER, metavar="SRC")
@click.argument("out", type=FOLDER)
@click.option(
    "--sizes",
    type=ImageSizes(),
    multiple=True,
    required=True,
    callback=join_sizes,
    metavar="N|WxH ...",
    help="Sizes to store, in pixels: 512 is a square, 512x384 is width x height.",
)
@click.option("--grayscale", is_flag=True, help="Store one channel: BT.601 luma of the colours.")
@click.option(
    "--fit",
    type=click.Choice(["crop", "pad", "stretch"]),
    default="crop",
    show_default=True,
    help="crop: largest centred part of the shape; pad: whole picture on --background.",
)
@click.option(
    "--filter",
    "resample",
    type=click.Choice(["bicubic", "bilinear", "lanczos", "box", "hamming"]),
    default="bicubic",
    show_default=True,
    help="Resize filter, always antialiased.",
)
@click.option(
    "--background",
    type=click.Choice(["white", "black"]),
    default="white",
    show_default=True,
    help="Colour under transparency and around padding.",
)
@click.option(
    "--labels",
    type=click.Choice(["auto", "folders", "none"]),
    default="auto",
    show_default=True,
    help="Class folders as labels: when every photo lies in one, always, or never.",
)
@click.option(
    "--max-pixels",
    type=click.IntRange(min=1),
    metavar="N",
    default=178_956_970,
    show_default=True,
    help="Refuse pictures with more pixels before decoding them.",
)
@click.option("--follow-links", is_flag=True, help="Take what symbolic links point to.")
@click.option(
    "--format",
    "container",
    type=click.Choice(["tensor", "zarr"]),
    default="tensor",
    show_default=True,
    help="tensor: .npy files; zarr: zarr v3 groups.",
)
@click.option(
    "--shard-size",
    "shard_nbytes",
    type=ByteCount(),
    default="256MB",
    show_default=True,
    help="Bytes of samples to a shard.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Photos prepared at a time.  [default: cores]",
)
@click.option(
    "--backend",
    metavar="NAME",
    callback=check_backend,
    default="auto",
    show_default=True,
    help="joblib backend: threading (threads), loky (processes), or another that is registered; "
    "auto chooses by the size and number of the photos.",
)
@click.option(
    "--max-skipped",
    type=click.IntRange(min=0),
    metavar="N",
    default=0,
    show_default=True,
    help="Unreadable photos to accept; more end with exit code 3, the dataset written.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Prepare only N photos, evenly spaced over all.",
)
@click.option("--overwrite", is_flag=True, help="First remove what prep wrote to OUT earlier.")
@click.option("--dry-run", is_flag=True, help="Say what would be written, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def images(ctx: click.Context, /, **options: Any) -> None:
    """Resize a folder of photos to one or more sizes.

    Class folders become labels; train/, validation/ (or val/) and test/ become splits. Each photo
    is read and decoded once for all sizes. Unreadable files are skipped, and listed with their
    cause in OUT/skipped.jsonl. The same command again goes on where an interrupted one ended.
    """
    chosen, run_options = _image_options(options), _run_options(options)
    if not options["dry_run"]:
        _load_early("torch")
    from preprocess.images import plan_images
    from preprocess.run import run
    from preprocess.terminal import check_plan, print_json, print_plan, print_text, progress_bar

    plan = plan_images(options["source"], options["out"], chosen, run_options, options["limit"])
    if options["dry_run"]:
        check_plan(plan, overwrite=run_options.overwrite)
        print_plan(plan, overwrite=run_options.overwrite, as_json=options["as_json"])
        return
    ctx.meta[_INTERRUPTED] = "; finished shards are kept, the same command goes on from there"
    with progress_bar(plan.listing.count, plan.nbytes) as on_progress:
        report = run(plan, run_options, on_progress)
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


def _load_early(name: str) -> None:
    """Import a slow package beside the listing of the source: torch alone takes over a second."""
    from importlib import import_module

    threading.Thread(target=import_module, args=(name,), daemon=True).start()


def _image_options(options: dict[str, Any]) -> "ImageOptions":
    from preprocess.images import ImageOptions

    try:
        return ImageOptions(
            sizes=options["sizes"],
            grayscale=options["grayscale"],
            fit=cast("Fit", options["fit"]),
            resample=cast("Resample", options["resample"]),
            background=cast("Background", options["background"]),
            labels=cast("LabelMode", options["labels"]),
            max_pixels=options["max_pixels"],
            follow_links=options["follow_links"],
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _run_options(options: dict[str, Any]) -> "RunOptions":
    from preprocess.plan import RunOptions

    return RunOptions(
        container=cast("Container", options["container"]),
        shard_nbytes=options["shard_nbytes"],
        workers=options["workers"],
        backend=options["backend"],
        max_skipped=options["max_skipped"],
        overwrite=options["overwrite"],
    )


@prep.command(short_help="Show what a dataset holds.")
@click.argument("path", type=FOLDER, metavar="OUT")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def info(path: Path, **options: Any) -> None:
    """Show what a dataset holds: splits, fields, shapes, counts, bytes, statistics."""
    from loaders.format.spec import read_manifest
    from preprocess.terminal import describe, info_text, print_json, print_text

    described = describe(read_manifest(path))
    if options["as_json"]:
        print_json(described)
    else:
        print_text(info_text(path, described))


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

    With --full, of the right content too. A missing, cut, extended or changed file makes the exit
    code 1; files that are not part of the dataset are listed, and do no harm.
    """
    from preprocess.check import check_dataset
    from preprocess.terminal import check_text, print_json, print_text

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
    from preprocess.demo import run_demo

    run_demo(out, click.echo)


if __name__ == "__main__":
    sys.exit(prep())
