"""Boxes of photos: read, given to their photos, and brought along with these."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from preprocess.errors import SourceError
from preprocess.images.annotations import Annotations
from preprocess.images.coco import read_coco
from preprocess.images.resize import Placement
from preprocess.images.yolo import read_yolo
from preprocess.items import Listing
from preprocess.paired import Boxes


def read_boxes(path: Path) -> Annotations:
    """Read a COCO json, or a folder of YOLO text files.

    Raises:
        SourceError: It is neither, or has a box that cannot be; names file and place.
    """
    return read_yolo(path) if path.is_dir() else read_coco(path)


def pair_boxes(listing: Listing, found: Annotations) -> Listing:
    """Give every photo its boxes.

    By YOLO's convention a photo without a text file has none; a photo that a COCO json does not
    list is refused by name when it is prepared.

    Raises:
        SourceError: Two photos have one text file.
    """
    splits = {}
    used: dict[str, str] = {}
    bare = 0
    for name, items in listing.splits.items():
        paired = []
        for item in items:
            key = os.path.splitext(item.key)[0] if found.by_stem else item.key
            boxes = found.of.get(key)
            if boxes is not None:
                other = used.setdefault(key, item.key)
                if other != item.key:
                    raise SourceError(
                        f"{listing.root}: {other} and {item.key} have one file of boxes, {key}.txt;"
                        " rename one of them"
                    )
            elif found.by_stem:
                boxes, bare = Boxes((), None), bare + 1
            paired.append(replace(item, boxes=boxes))
        splits[name] = tuple(paired)
    notes = [*listing.notes, *found.notes]
    if bare:
        notes.append(f"{bare:,} photos have no file of boxes: they are taken to have no box")
    if len(used) < len(found.of):
        notes.append(f"boxes of {len(found.of) - len(used):,} photos that are not there")
    return replace(listing, splits=splits, notes=tuple(notes))


def fit_boxes(
    boxes: Boxes, picture: tuple[int, int], placement: Placement
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Do to boxes what was done to their picture.

    Args:
        boxes: In pixels of the upright picture, or shares of it.
        picture: (width, height) of the upright picture.
        placement: What was done to it.

    Returns:
        [n, 4] float32 left, top, right, bottom in pixels of what is stored, cut at what was taken
        of the picture, without those of which nothing is left; and [n] which boxes these are.

    Raises:
        ValueError: The boxes are of a picture of another size.
    """
    if boxes.size not in (None, picture):
        raise ValueError(
            f"its boxes are of a picture of {boxes.size[0]} x {boxes.size[1]}, it is "
            f"{picture[0]} x {picture[1]} upright"
        )
    rows = np.array([row[1:] for row in boxes.rows], np.float64).reshape(-1, 4)
    if boxes.size is None:
        rows *= (*picture, *picture)
    source = np.array(placement.source, np.float64)
    target = np.array(placement.target, np.float64)
    scale = (target[2:] - target[:2]) / (source[2:] - source[:2])
    moved = (rows.reshape(-1, 2, 2) - source[:2]) * scale + target[:2]
    cut = moved.clip(target[:2], target[2:]).reshape(-1, 4).astype(np.float32)
    (kept,) = np.nonzero((cut[:, 2] > cut[:, 0]) & (cut[:, 3] > cut[:, 1]))
    return cut[kept], kept
