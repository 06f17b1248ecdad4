"""What files of boxes say, whatever their form."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from preprocess.errors import SourceError
from preprocess.paired import Boxes, BoxRow


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


def checked_row(row: BoxRow, where: str) -> BoxRow:
    """Return a row whose box can be.

    Raises:
        SourceError: Its numbers are not finite, or its sides are below 0.
    """
    _, left, top, right, bottom = row
    if not all(map(math.isfinite, row[1:])) or right < left or bottom < top:
        raise SourceError(f"{where}: a box from {left}, {top} to {right}, {bottom}")
    return row


def left_out(boxes: Iterable[Boxes], crowds: int = 0) -> tuple[str, ...]:
    """Say how many boxes are not stored.

    Args:
        boxes: All that were read; those of no area are stored at no size.
        crowds: Boxes that were not read, for they are of crowds.
    """
    flat = sum(row[1] == row[3] or row[2] == row[4] for each in boxes for row in each.rows)
    return tuple(
        f"{count:,} {'boxes' if count > 1 else 'box'} of {what} {'are' if count > 1 else 'is'} "
        "left out"
        for count, what in ((crowds, "crowds"), (flat, "no area"))
        if count
    )
