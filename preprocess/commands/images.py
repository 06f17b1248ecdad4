"""`prep images`: options -> one call -> report."""

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import click

from preprocess.commands.prepare import (
    FOLDER,
    Looks,
    carry_out,
    make_run_options,
    preparing_options,
    split_options,
)
from preprocess.spelling import Option, OptionError
from preprocess.values import ImageSizes, SizesCommand, join_sizes

if TYPE_CHECKING:
    from preprocess.folders import LabelMode
    from preprocess.images.beside import MetadataOptions
    from preprocess.images.options import (
        Alpha,
        Background,
        Fitted,
        ImageOptions,
    )
    from preprocess.images.policy import Depth, Icc, Pages
    from preprocess.images.resize import Resample
    from preprocess.images.storage import Compression, Store


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
    type=click.Choice(["crop", "pad", "stretch", "shortest", "longest", "bucket"]),
    default="crop",
    show_default=True,
    help="crop: largest centred part of the shape; pad: whole picture on --background; shortest, "
    "longest: that side has the size, and pictures keep their shape; bucket: cropped to the shape "
    "of about as many pixels that is nearest to theirs, batches are of one shape.",
)
@click.option(
    "--bucket-step",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    metavar="N",
    help="Sides of buckets are multiples of N pixels.",
)
@click.option(
    "--bucket-ratio",
    type=click.FloatRange(1, 16),
    default=2.0,
    show_default=True,
    metavar="X",
    help="Buckets are from 1:X to X:1.",
)
@click.option(
    "--no-upscale",
    is_flag=True,
    help="Enlarge nothing: smaller pictures are kept as they are, by crop, stretch and bucket "
    "refused.",
)
@click.option(
    "--margin",
    type=click.FloatRange(1, 4),
    default=1.0,
    metavar="X",
    help="Store sides X times as long as named, for random crops when training.",
)
@click.option(
    "--transforms", is_flag=True, help="Store which part of each picture went where, always."
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
    help="8: uint8, deeper samples scaled; 16: uint16. Where it is given, TIFFs of floats from 0 "
    "to 1 are taken too.  [default: 8]",
)
@click.option(
    "--pages",
    type=click.Choice(["first", "all"]),
    default="first",
    show_default=True,
    help="Of a TIFF: its first page, or each as a sample.",
)
@click.option(
    "--masks",
    type=FOLDER,
    metavar="DIR",
    help="Folder of masks, PNG of class indices: for a/b.jpg of SRC, a/b.png.",
)
@click.option(
    "--mask-classes",
    "--classes",
    "mask_classes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Refuse masks with values of N and more, but for the padding.",
)
@click.option(
    "--mask-depth",
    type=click.Choice(["8", "16"]),
    default="8",
    show_default=True,
    help="Bits of a mask's values.",
)
@click.option(
    "--mask-padding",
    type=click.IntRange(min=0),
    default=255,
    show_default=True,
    metavar="V",
    help="Value of masks around padded pictures.",
)
@click.option(
    "--boxes",
    type=FOLDER,
    metavar="PATH",
    help="Boxes of the photos: a COCO json, or a folder of YOLO text files.",
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
@click.option(
    "--store",
    type=click.Choice(["raw", "jpeg"]),
    default="raw",
    show_default=True,
    help="raw: pixels; jpeg: each resized picture encoded, decoded by the loader.",
)
@click.option(
    "--quality",
    type=click.IntRange(1, 100),
    metavar="Q",
    help="Of --store jpeg; colours at half the resolution (4:2:0).  [default: 95]",
)
@click.option(
    "--compress",
    type=click.Choice(["zstd", "blosc-lz4"]),
    help="With --format zarr: each picture and mask compressed without loss.",
)
@click.option("--follow-links", is_flag=True, help="Take what symbolic links point to.")
@click.option(
    "--metadata",
    type=FOLDER,
    metavar="FILE",
    help="A .csv, .jsonl or .parquet with a row for each photo.",
)
@click.option(
    "--key", metavar="COLUMN", help="Of the metadata: the path below SRC.  [default: file_name]"
)
@click.option("--label", metavar="COLUMN", help="Of the metadata: the class.")
@click.option(
    "--multi-label",
    metavar="COLUMN",
    help="Of the metadata: several classes, lists or, in CSV, with | between them.",
)
@click.option(
    "--target", multiple=True, metavar="COLUMN", help="Of the metadata: a number to be predicted."
)
@split_options("photos")
@click.option("--stratify", is_flag=True, help="Give every class these shares.")
@click.option(
    "--group-by", metavar="COLUMN", help="Of the metadata: its values are kept in one split."
)
@click.option("--split-column", metavar="COLUMN", help="Of the metadata: the split.")
@click.option(
    "--allow-leaks", is_flag=True, help="Keep exact copies of a photo that lie in several splits."
)
@click.option(
    "--key-bytes",
    type=click.IntRange(1, 4096),
    metavar="N",
    help="Leave room for paths of N bytes, of photos that --append adds later.  "
    "[default: the longest path]",
)
@preparing_options("photos", max_item_nbytes="2GB")
@click.pass_context
def images(ctx: click.Context, /, **options: Any) -> None:
    """Resize a folder of photos to one or more sizes.

    Class folders become labels; train/, validation/ (or val/) and test/ become splits. Each photo
    is read and decoded once for all sizes. Unreadable files are skipped, and listed with their
    cause in OUT/skipped.jsonl. The same command again goes on where an interrupted one ended.
    """
    chosen, run_options = _image_options(options), make_run_options(options)
    from preprocess.images.bucket_preview import preview_buckets
    from preprocess.images.compare import compare_storage
    from preprocess.images.prepare import plan_images

    plan = plan_images(options["source"], options["out"], chosen, run_options, options["limit"])
    looks = Looks(partial(compare_storage, plan), partial(preview_buckets, plan))
    carry_out(ctx, plan, run_options, options, looks=looks)


def _image_options(options: dict[str, Any]) -> "ImageOptions":
    from preprocess.images.beside import SplitOptions
    from preprocess.images.options import ImageOptions

    return ImageOptions(
        sizes=options["sizes"],
        grayscale=options["grayscale"],
        fit=cast("Fitted", options["fit"]),
        bucket_step=options["bucket_step"],
        bucket_ratio=options["bucket_ratio"],
        resample=cast("Resample", options["resample"]),
        background=cast("Background", options["background"]),
        icc=cast("Icc", options["icc"]),
        alpha=cast("Alpha | None", options["alpha"]),
        depth=cast("Depth", int(options["depth"] or 8)),
        floats=options["depth"] is not None,
        pages=cast("Pages", options["pages"]),
        labels=cast("LabelMode", options["labels"]),
        max_pixels=options["max_pixels"],
        max_item_nbytes=options["max_item_bytes"],
        follow_links=options["follow_links"],
        no_upscale=options["no_upscale"],
        margin=options["margin"],
        transforms=options["transforms"],
        masks=options["masks"],
        mask_classes=options["mask_classes"],
        mask_depth=cast("Depth", int(options["mask_depth"])),
        mask_padding=options["mask_padding"],
        boxes=options["boxes"],
        metadata=_metadata_options(options),
        store=cast("Store", options["store"]),
        quality=options["quality"],
        compress=cast("Compression | None", options["compress"]),
        key_bytes=options["key_bytes"],
        splits=SplitOptions(
            validation=options["validation"],
            test=options["test"],
            seed=options["split_seed"],
            stratify=options["stratify"],
            group_by=options["group_by"],
            column=options["split_column"],
            allow_leaks=options["allow_leaks"],
        ),
    )


def _metadata_options(options: dict[str, Any]) -> "MetadataOptions | None":
    from preprocess.images.beside import KEY, MetadataOptions

    if options["metadata"] is None:
        for name in ("label", "multi_label", "target", "key"):
            if options[name]:
                raise OptionError(Option(name), ": only with ", Option("metadata"))
        return None
    return MetadataOptions(
        path=options["metadata"],
        key=KEY if options["key"] is None else options["key"],
        label=options["label"],
        labels=options["multi_label"],
        targets=tuple(options["target"]),
    )
