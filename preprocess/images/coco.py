"""Boxes out of a COCO json: https://cocodataset.org/#format-data."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from preprocess.errors import SourceError
from preprocess.images.annotations import Annotations, checked_row, left_out
from preprocess.paired import Boxes, BoxRow, as_key

_MISSING: Final = object()
_ID: Final = (int, float, str)
_SHOWN: Final = 60
"""Characters of a value that are shown."""

_Entry = Mapping[str, Any]


def read_coco(path: Path) -> Annotations:
    """Read the boxes of a COCO json.

    Raises:
        SourceError: It cannot be read, is no COCO json, or has a box that cannot be; names place,
            key and what is expected there.

    Source:
        cocodataset.org/#format-data: bbox is [x, y, width, height] in pixels.
    """
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: no JSON: {error}") from error
    _expect(document, dict, str(path), "an object")
    names = _read_categories(path, document)
    labels = {number: label for label, number in enumerate(names)}
    images = dict(_by_id(path, document, "images"))
    rows: dict[Any, list[BoxRow]] = {number: [] for number in images}
    crowds = 0
    for where, entry in _entries(path, document, "annotations"):
        if entry.get("iscrowd"):
            crowds += 1
            continue
        image = _at(entry, "image_id", where, _ID, "an integer or a text")
        category = _at(entry, "category_id", where, _ID, "an integer or a text")
        if image not in rows or category not in labels:
            raise SourceError(f"{where}: of an image or category that the file does not list")
        left, top, width, height = _bbox(entry, where)
        row = (labels[category], left, top, left + width, top + height)
        rows[image].append(checked_row(row, where))
    of: dict[str, Boxes] = {}
    for number, (where, entry) in images.items():
        name = _at(entry, "file_name", where, str, "a text")
        key = as_key(name)
        if key in of:
            raise SourceError(f"{path}: two images with the file_name {name}")
        of[key] = Boxes(
            tuple(rows[number]), (_side(entry, "width", where), _side(entry, "height", where))
        )
    notes = left_out(of.values(), crowds)
    return Annotations(of, by_stem=False, classes=tuple(names.values()), notes=notes)


def _read_categories(path: Path, document: _Entry) -> dict[Any, str]:
    """Return id -> name, in the order of the ids."""
    found = {
        number: str(_at(entry, "name", where, (str, int, float), "a text"))
        for number, (where, entry) in _by_id(path, document, "categories")
    }
    if len({isinstance(number, str) for number in found}) > 1:
        raise SourceError(f"{path}: categories: some of the ids are integers, and some texts")
    return dict(sorted(found.items()))


def _by_id(
    path: Path, document: _Entry, part: str
) -> Iterator[tuple[int | str, tuple[str, _Entry]]]:
    """Yield the entries of a part: id, and where it stands and what it says."""
    seen = set()
    for where, entry in _entries(path, document, part):
        number: int | str = _at(entry, "id", where, _ID, "an integer or a text")
        if number in seen:
            raise SourceError(f"{path}: two of the {part} have one id, {number}")
        seen.add(number)
        yield number, (where, entry)


def _entries(path: Path, document: _Entry, part: str) -> Iterator[tuple[str, _Entry]]:
    """Yield where each entry of a part stands, and the entry."""
    for place, entry in enumerate(_at(document, part, str(path), list, "a list")):
        where = f"{path}: {part}[{place}]"
        yield where, _expect(entry, dict, where, "an object")


def _bbox(entry: _Entry, where: str) -> tuple[float, ...]:
    box = entry.get("bbox")
    try:
        if isinstance(box, list) and len(box) == 4:
            return tuple(float(value) for value in box)
    except (TypeError, ValueError, OverflowError):
        pass
    raise SourceError(
        f"{where}: expected a bbox of left, top, width, height, and found {_shown(box)}"
    )


def _side(entry: _Entry, key: str, where: str) -> int:
    value = _at(entry, key, where, (int, float), "pixels")
    if not (value >= 1 and value == value // 1 < 1 << 62):
        raise SourceError(f"{where}: {key}: expected a whole number of pixels, not {value}")
    return int(value)


def _at(entry: _Entry, key: str, where: str, kinds: Any, wanted: str) -> Any:
    return _expect(entry.get(key, _MISSING), kinds, f"{where}: {key}", wanted)


def _expect(value: Any, kinds: Any, where: str, wanted: str) -> Any:
    """Return a value that is of the kinds."""
    if isinstance(value, kinds) and not isinstance(value, bool):
        return value
    what = "it is missing" if value is _MISSING else f"found {_shown(value)}"
    raise SourceError(f"{where}: expected {wanted}, as COCO has, and {what}")


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True)[:_SHOWN]
