"""Images: a folder of photos -> upright, resized arrays at several sizes, as a dataset."""

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from preprocess.append import continue_plan
from preprocess.errors import SourceError
from preprocess.images.boxes import pair_boxes, read_boxes
from preprocess.images.formats import HEAD_NBYTES, IMAGE_EXTENSIONS, damaged_signature, sniff_format
from preprocess.images.masks import pair_masks
from preprocess.images.metadata import Entry, pair_metadata, read_metadata
from preprocess.images.options import MAX_CLASSES, ImageOptions
from preprocess.images.recipe import ImageRecipe
from preprocess.images.splits import report_copies, split_photos
from preprocess.items import Item, Listing, printable
from preprocess.output import check_paths, is_complete
from preprocess.plan import Plan, RunOptions, plan_run
from preprocess.report import Report
from preprocess.run import OnProgress, run
from preprocess.sources import Wanted, list_folder
from preprocess.spelling import Option, OptionError, in_python

_OF_NO_USE: Final = (
    "none of its columns is asked for: --label, --multi-label, --target, --group-by and "
    "--split-column take one; as it is, photos that it does not list are skipped, and no more"
)

WANTED: Final = Wanted(
    what="image",
    extensions=IMAGE_EXTENSIONS,
    recognizes=lambda head: (sniff_format(head) or damaged_signature(head)) is not None,
    head_nbytes=HEAD_NBYTES,
)


def plan_images(
    source: Path,
    out: Path,
    options: ImageOptions,
    run_options: RunOptions,
    limit: int | None = None,
) -> Plan:
    """Lay out a run over a folder of photos; nothing is written.

    Args:
        source: Folder of photos; class folders and split folders as `list_folder` reads them.
        out: Folder to write the dataset to.
        options: What to make of each photo.
        run_options: How to run.
        limit: Prepare only so many items, evenly spaced over the input.

    Raises:
        SourceError: There is nothing to prepare.
        OutputError: The folders overlap, or what is to be appended to is another dataset.
        OptionError: What is to be compressed is not for zarr.
    """
    if options.compress is not None and run_options.container != "zarr":
        raise OptionError(
            *(Option("compress", options.compress), ": only with ", Option("container", "zarr")),
            ", whose chunks hold it",
        )
    by_column = options.metadata is not None and options.metadata.label is not None
    labels = "none" if by_column else options.labels
    listing = list_folder(source, WANTED, labels=labels, follow_links=options.follow_links)
    check_paths(source, out)
    table: dict[str, Entry] = {}
    several: tuple[str, ...] = ()
    if options.metadata is not None:
        table = read_metadata(options.metadata, options.splits)
        listing, several = pair_metadata(listing, options.metadata, table)
        if not (options.metadata.columns()[1:] or options.splits.by_columns):
            note = f"{options.metadata.path}: {_OF_NO_USE}"
            listing = replace(listing, notes=(*listing.notes, note))
    listing = split_photos(listing, options.splits, table)
    if len(listing.classes) > MAX_CLASSES:
        raise SourceError(
            f"{source}: {len(listing.classes):,} class folders, labels hold up to {MAX_CLASSES:,}; "
            "--labels none stores none"
        )
    listing, options, box_classes = _paired(listing, options)
    if limit is not None:
        listing = listing.limited(limit)
    recipes = {}
    for name, items in listing.splits.items():
        longest = _key_nbytes(items, options)
        labelled = items[0].label is not None
        recipes[name] = ImageRecipe(
            chosen=options,
            key_nbytes=longest,
            class_count=len(listing.classes) if labelled else 0,
            box_classes=box_classes,
            label_classes=several,
        )
    plan = plan_run(listing, out, recipes, run_options)
    aside = {**plan.aside, "limit": limit, **_places(options)}
    plan = replace(plan, aside=aside, closed=_closed(options, limit))
    plan = continue_plan(plan, run_options)
    if not run_options.overwrite and is_complete(plan):  # then that has been looked at
        return plan
    listing = report_copies(
        plan.listing,
        max_nbytes=options.max_item_nbytes,
        allow_leaks=options.splits.allow_leaks,
    )
    return replace(plan, listing=listing)


def _paired(
    listing: Listing, options: ImageOptions
) -> tuple[Listing, ImageOptions, tuple[str, ...]]:
    """Give every photo its mask and its boxes; return the classes of boxes too."""
    if options.masks is not None:
        masks = options.masks.absolute()
        options = replace(options, masks=masks)
        listing = pair_masks(listing, masks)
    box_classes: tuple[str, ...] = ()
    if options.boxes is not None:
        annotations = read_boxes(options.boxes)
        listing, box_classes = pair_boxes(listing, annotations), annotations.classes
        if len(box_classes) > MAX_CLASSES:
            raise SourceError(f"{options.boxes}: more than {MAX_CLASSES:,} classes of boxes")
    return listing, options, box_classes


def _closed(options: ImageOptions, limit: int | None) -> str:
    """Say why nothing can be appended to what is made so; "" where that can be."""
    if options.splits.stratify:
        return "with --stratify added photos may move others to another split"
    return "" if limit is None else "--limit takes other photos once there are more"


def _key_nbytes(items: Sequence[Item], options: ImageOptions) -> int:
    """Return how many bytes a key has: those of the longest, or what is asked for."""
    longest = max((item.key.encode(errors="surrogateescape") for item in items), key=len)
    if options.key_bytes is None:
        return len(longest)
    if len(longest) > options.key_bytes:
        name = printable(os.fsdecode(longest))
        raise SourceError(f"{name}: {len(longest)} bytes, --key-bytes is {options.key_bytes}")
    return options.key_bytes


def _places(options: ImageOptions) -> dict[str, Any]:
    """Return where that lies which photos come with, and the columns that the recipe leaves out."""
    found: dict[str, Any] = {
        "masks": None if options.masks is None else str(options.masks.absolute()),
        "boxes": None if options.boxes is None else str(options.boxes.absolute()),
        "metadata": None,
    }
    if options.metadata is not None:
        values = asdict(options.metadata)
        del values["targets"]
        found["metadata"] = {**values, "path": str(options.metadata.path.absolute())}
    return found


@in_python()
def images_to_shards(
    source: Path | str,
    out: Path | str,
    options: ImageOptions,
    run_options: RunOptions | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> Report:
    """Prepare a folder of photos as a dataset: what `prep images` does.

    Args:
        source: Folder of photos.
        out: Folder to write the dataset to.
        options: What to make of each photo.
        run_options: How to run; the defaults suit most.
        on_progress: Told (samples, skipped, bytes) as they are made, from worker threads.

    Returns:
        What was done; items that could not be read are in its `skipped`.

    Raises:
        SourceError: There is nothing to prepare.
        OutputError: The output folder cannot take the dataset.
        OptionError: What is to be compressed is not for zarr.
    """
    chosen = run_options or RunOptions()
    return run(plan_images(Path(source), Path(out), options, chosen), chosen, on_progress)
