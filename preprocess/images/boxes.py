"""Boxes of photos: out of COCO's json or YOLO's text files, and brought along with the photo."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from preprocess.errors import SourceError
from preprocess.images.options import MAX_CLASSES
from preprocess.images.resize import Placement
from preprocess.items import Listing
from preprocess.paired import Boxes, BoxRow

_YOLO_NAMES = "classes.txt"


@dataclass(frozen=True, slots=True)
class Annotations:
    """All boxes of a source.

    Attributes:
        of: Key of a photo, or its path without ending if `by_stem` -> its boxes.
        by_stem: Photos are named without ending.
        classes: Names in the order of the labels.
        notes: What the user should know.
    """

    of: Mapping[str, Boxes]
    by_stem: bool
    classes: tuple[str, ...]
    notes: tuple[str, ...]


def read_boxes(path: Path) -> Annotations:
    """Read a COCO json, or a folder of YOLO text files.

    Raises:
        SourceError: It is neither, or has a box that cannot be; names file and place.
    """
    if path.is_dir():
        return _read_yolo(path)
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: no JSON: {error}") from error
    try:
        return _read_coco(path, document)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise SourceError(
            f"{path}: not as COCO lays out images, annotations and categories: {error!r}"
        ) from error


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


def _read_coco(path: Path, document: Any) -> Annotations:
    """Read the boxes of a COCO json.

    Source:
        cocodataset.org/#format-data: bbox is [x, y, width, height] in pixels.
    """
    categories = sorted((entry["id"], str(entry["name"])) for entry in document["categories"])
    labels = {number: label for label, (number, _) in enumerate(categories)}
    images = {entry["id"]: entry for entry in document["images"]}
    for name, found, ids in (
        ("images", document["images"], images),
        ("categories", categories, labels),
    ):
        if len(ids) < len(found):
            raise SourceError(f"{path}: two of the {name} have one id")
    rows: dict[Any, list[BoxRow]] = {number: [] for number in images}
    crowds = 0
    for place, entry in enumerate(document["annotations"]):
        where = f"{path}: annotations[{place}]"
        if entry.get("iscrowd"):
            crowds += 1
            continue
        if entry["image_id"] not in rows or entry["category_id"] not in labels:
            raise SourceError(f"{where}: of an image or category that the file does not list")
        try:
            left, top, width, height = (float(value) for value in entry["bbox"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise SourceError(
                f"{where}: expected a bbox of left, top, width, height: {error}"
            ) from error
        row = (labels[entry["category_id"]], left, top, left + width, top + height)
        rows[entry["image_id"]].append(_checked(row, where))
    of: dict[str, Boxes] = {}
    for number, entry in images.items():
        name = str(entry["file_name"])
        if name in of:
            raise SourceError(f"{path}: two images with the file_name {name}")
        of[name] = Boxes(tuple(rows[number]), (int(entry["width"]), int(entry["height"])))
    notes = (f"{crowds:,} boxes of crowds are left out",) if crowds else ()
    return Annotations(of, by_stem=False, classes=tuple(n for _, n in categories), notes=notes)


def _read_yolo(folder: Path) -> Annotations:
    """Read a folder of YOLO text files: class, centre x and y, width, height, in shares."""
    of: dict[str, Boxes] = {}
    names: tuple[str, ...] = ()
    for key, lines in _text_files(folder):
        if key == _YOLO_NAMES:
            names = tuple(line.strip() for line in lines if line.strip())
            continue
        rows = []
        for number, line in enumerate(lines, 1):
            if line.strip():
                rows.append(_yolo_row(line, f"{folder / key}: line {number}"))
        stem = os.path.splitext(key)[0]
        if stem in of:
            raise SourceError(f"{folder}: two files of boxes for {stem}, one of them {key}")
        of[stem] = Boxes(tuple(rows), None)
    if not of:
        raise SourceError(f"{folder}: no .txt file of boxes in it")
    most = max((row[0] for boxes in of.values() for row in boxes.rows), default=-1)
    if names and most >= len(names):
        raise SourceError(f"{folder}: class {most}, and {_YOLO_NAMES} names {len(names)}")
    classes = names or tuple(str(label) for label in range(most + 1))
    return Annotations(of, by_stem=True, classes=classes, notes=())


def _text_files(folder: Path) -> Iterator[tuple[str, list[str]]]:
    def fail(error: OSError) -> None:
        raise SourceError(f"{error.filename}: cannot be listed: {error.strerror}") from error

    for above, folders, files in os.walk(folder, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(above, name)
            if not name.lower().endswith(".txt") or name.startswith(".") or not path.is_file():
                continue
            try:
                yield os.path.relpath(path, folder), path.read_text("utf-8-sig").splitlines()
            except (OSError, ValueError) as error:
                raise SourceError(f"{path}: cannot be read: {error}") from error


def _yolo_row(line: str, where: str) -> BoxRow:
    parts = line.split()
    try:
        label = int(parts[0])
        x, y, width, height = (float(part) for part in parts[1:])
    except (ValueError, IndexError) as error:
        raise SourceError(
            f"{where}: expected class, x, y, width, height, and found {line.strip()[:60]!r}"
        ) from error
    if not (0 <= label < MAX_CLASSES and all(0 <= n <= 1 for n in (x, y, width, height))):
        raise SourceError(
            f"{where}: a class outside 0 to {MAX_CLASSES - 1}, or shares outside 0 to 1"
        )
    row = (label, x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    return _checked(row, where)


def _checked(row: BoxRow, where: str) -> BoxRow:
    _, left, top, right, bottom = row
    if not all(map(math.isfinite, row[1:])) or right < left or bottom < top:
        raise SourceError(f"{where}: a box from {left}, {top} to {right}, {bottom}")
    return row


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
