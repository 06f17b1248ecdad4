"""Boxes out of YOLO's text files: one for each photo, one box a line."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from preprocess.errors import SourceError
from preprocess.images.annotations import Annotations, checked_row, left_out
from preprocess.images.options import MAX_CLASSES
from preprocess.paired import Boxes, BoxRow

_NAMES: Final = "classes.txt"

SHARE_TOLERANCE: Final = 1e-5
"""How far a share may lie outside 0 to 1, where exporters round to six digits or to float32: a
tenth of a pixel in 10,000. It is taken for the 0 or 1 that it lies beyond."""


def read_yolo(folder: Path) -> Annotations:
    """Read a folder of YOLO text files: class, centre x and y, width, height, in shares.

    Shares of `SHARE_TOLERANCE` outside 0 to 1 are cut to these.

    Raises:
        SourceError: A file cannot be read, or a line is no box; names file and line.
    """
    of: dict[str, Boxes] = {}
    names: tuple[str, ...] = ()
    for key, lines in _text_files(folder):
        if key == _NAMES:
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
        raise SourceError(f"{folder}: class {most}, and {_NAMES} names {len(names)}")
    classes = names or tuple(str(label) for label in range(most + 1))
    return Annotations(of, by_stem=True, classes=classes, notes=left_out(of.values()))


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
    shares = [x, y, width, height]
    low, high = -SHARE_TOLERANCE, 1 + SHARE_TOLERANCE
    if not (0 <= label < MAX_CLASSES and all(low <= share <= high for share in shares)):
        raise SourceError(
            f"{where}: a class outside 0 to {MAX_CLASSES - 1}, or shares outside 0 to 1"
        )
    x, y, width, height = (min(max(share, 0.0), 1.0) for share in shares)
    row = (label, x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    return checked_row(row, where)
