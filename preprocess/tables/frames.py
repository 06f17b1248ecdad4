"""Data frames as a source: of pandas or polars, by what they can do and not by their class."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from preprocess.items import Item, Listing
from preprocess.tables.block import FRAME
from preprocess.tables.frame import blocks_of_frame
from preprocess.tables.gathered import Load, Part
from preprocess.tables.options import TableOptions
from preprocess.tables.scan import spill_parts
from preprocess.tables.spill import Spilled


def is_frame(source: Any) -> bool:
    """Return whether a source is no path: a data frame, or what will be refused as none."""
    return not isinstance(source, str | os.PathLike)


def spill_frame(frame: Any, options: TableOptions, folder: Path, workers: int) -> Spilled:
    """Write the rows of a frame to files, as those of other sources.

    Raises:
        SourceError: Its columns cannot be stored.
        OutputError: The folder cannot take the blocks.
    """

    def loads() -> Iterator[Load]:
        for block in blocks_of_frame(frame, options):
            yield lambda block=block: block  # type: ignore[misc]

    part = Part(key=FRAME, split="train", loads=loads())
    return spill_parts([part], folder, workers, FRAME)


def frame_listing(spilled: Spilled) -> Listing:
    """Return a listing of one item, which is known by the bytes of its rows."""
    digest = hashlib.sha256()
    for block in spilled.blocks:
        digest.update(f"{block.count} {block.nbytes} {block.crc32c}\n".encode())
    nbytes = sum(block.nbytes for block in spilled.blocks)
    item = Item(f"{FRAME} {digest.hexdigest()[:16]}", nbytes, 0)
    return Listing(root=Path(), splits={"train": (item,)})
