"""How deep JSON lines nest: what is deeper than Arrow's parser bears is not given to it."""

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from preprocess.texts.lines import Lines

if TYPE_CHECKING:
    from numpy.typing import NDArray

_OPENS, _CLOSES = b"{}"
_TO_BRACE: Final = np.uint8(0x20)
"""The one bit in which a bracket differs from the brace."""

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""What is between quotes, or after one that is never closed: nothing is looked at twice."""

_MOST: Final = 512
"""Arrow's types nest as deep as the JSON does, and a type that nests 20,000 deep ends the process:
the stack of a thread, 8 MiB, is too small. Python refuses by itself what nests 1,000 deep."""


def may_be_deep(data: bytes, lines: Lines) -> bool:
    """Whether so many objects and lists may be open at once that Arrow should not read them."""
    if data.count(b"{") + data.count(b"[") <= _MOST:
        return False
    if not are_objects(data, lines):
        return True
    opened = np.flatnonzero(_braces(data) == _OPENS)
    counts = np.searchsorted(opened, lines.stops) - np.searchsorted(opened, lines.starts)
    for line in np.flatnonzero(counts > _MOST).tolist():
        marks = _braces(_STRING.sub(b"", data[lines.starts[line] : lines.stops[line]]))
        steps = (marks == _OPENS).astype(np.int32) - (marks == _CLOSES)
        if np.cumsum(steps).max(initial=0) > _MOST:
            return True
    return False


def are_objects(data: bytes, lines: Lines) -> bool:
    """Whether each line begins and ends as an object: then none goes on in the next line."""
    array = np.frombuffer(data, np.uint8)
    return bool((array[lines.starts] == _OPENS).all() and (array[lines.stops - 1] == _CLOSES).all())


def _braces(data: bytes) -> "NDArray[np.uint8]":
    return np.frombuffer(data, np.uint8) | _TO_BRACE
