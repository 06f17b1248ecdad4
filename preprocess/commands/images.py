"""`prep images`: options -> one call -> report."""

from typing import TYPE_CHECKING, Any, cast

import click

from preprocess.commands.prepare import (
    FOLDER,
    carry_out,
    load_early,
    make_run_options,
    preparing_options,
)
from preprocess.values import ImageSizes, SizesCommand, join_sizes

if TYPE_CHECKING:
    from preprocess.folders import LabelMode
    from preprocess.images.policy import Depth, Icc, Pages
    from preprocess.images.prepare import Alpha, Background, ImageOptions
    from preprocess.images.resize import Fit, Resample


@click.command(cls=SizesCommand, short_help="Resize a folder of photos to one or more sizes.")
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
    help="Colour around padding, and under transparency.",
)
@click.option(
    "--icc",
    type=click.Choice(["srgb", "ignore"]),
    default="srgb",
    show_default=True,
    help="Convert the colours of embedded profiles to sRGB, or take them as they are.",
)
@click.option(
    "--alpha",
    type=click.Choice(["white", "black", "keep", "drop"]),
    help="Under transparency; keep: store RGBA, drop: the colours hidden there.  "
    "[default: the background]",
)
@click.option(
    "--depth",
    type=click.Choice(["8", "16"]),
    default="8",
    show_default=True,
    help="8: uint8, deeper samples scaled; 16: uint16.",
)
@click.option(
    "--pages",
    type=click.Choice(["first", "all"]),
    default="first",
    show_default=True,
    help="Of a TIFF: its first page, or each as a sample.",
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
@preparing_options("photos")
@click.pass_context
def images(ctx: click.Context, /, **options: Any) -> None:
    """Resize a folder of photos to one or more sizes.

    Class folders become labels; train/, validation/ (or val/) and test/ become splits. Each photo
    is read and decoded once for all sizes. Unreadable files are skipped, and listed with their
    cause in OUT/skipped.jsonl. The same command again goes on where an interrupted one ended.
    """
    chosen, run_options = _image_options(options), make_run_options(options)
    if not options["dry_run"]:
        load_early("torch")
    from preprocess.images.prepare import plan_images

    plan = plan_images(options["source"], options["out"], chosen, run_options, options["limit"])
    carry_out(ctx, plan, run_options, options)


def _image_options(options: dict[str, Any]) -> "ImageOptions":
    from preprocess.images.prepare import ImageOptions

    try:
        return ImageOptions(
            sizes=options["sizes"],
            grayscale=options["grayscale"],
            fit=cast("Fit", options["fit"]),
            resample=cast("Resample", options["resample"]),
            background=cast("Background", options["background"]),
            icc=cast("Icc", options["icc"]),
            alpha=cast("Alpha | None", options["alpha"]),
            depth=cast("Depth", int(options["depth"])),
            pages=cast("Pages", options["pages"]),
            labels=cast("LabelMode", options["labels"]),
            max_pixels=options["max_pixels"],
            follow_links=options["follow_links"],
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
