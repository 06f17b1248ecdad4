"""How many columns JSON lines would become: known before a parser makes room for each of them.

Each record has room for all columns of its block, so that a few long records among many short ones
may want any amount of memory.
"""

import json
import re
from collections import Counter
from typing import Any, Final

import numpy as np

from preprocess.texts.column_limit import COLUMNS_REMEDY, MAX_COLUMNS
from preprocess.texts.lines import Lines

_MAX_CELLS: Final = 1 << 27
"""Values, and places for them, of the records that are parsed together: 1 GiB as numbers."""

_KEY_NBYTES: Final = 5
"""The least that a key and its value take: a record has at most so many keys as it has of these."""

_KEY: Final = re.compile(rb'"([^"\\\n]{0,256})"[ \t]*:[ \t]*(\{?)')
"""A name, and whether its value is an object."""

_WINDOWS: Final = 64
_WINDOW_NBYTES: Final = 256
_SPREAD: Final = 40_503
"""Of a block, so many parts are looked at, which costs 0.5 % of parsing."""


def fault_of_keys(data: bytes, lines: Lines) -> str | None:
    """Say why the records of a block should not be parsed together, if they should not.

    Args:
        data: The block.
        lines: Where its lines are.
    """
    rows = len(lines.starts)
    if not rows:
        return None
    most = min(MAX_COLUMNS, _MAX_CELLS // rows)
    if not (_has_long_record(data, lines, most) or _seems_to_exceed(data, lines, most)):
        return None
    # What is in doubt is counted, record by record.
    found: set[tuple[str, ...]] = set()
    for start, stop, number in zip(
        lines.starts.tolist(), lines.stops.tolist(), lines.numbers.tolist(), strict=True
    ):
        try:
            _add_columns(json.loads(data[start:stop]), found)
        except (ValueError, RecursionError):
            continue  # it is named when it is read
        if len(found) > MAX_COLUMNS:
            return f"{len(found):,} columns up to record {number + 1:,} of a block, and {_REMEDY}"
    if len(found) > most:
        return (
            f"{len(found):,} columns in {rows:,} records that are parsed together, nearly all of "
            f"them without values: at most {_MAX_CELLS:,} places; write such keys as lists of "
            "names and values"
        )
    return None


_REMEDY: Final = f"each key is one: {COLUMNS_REMEDY}"


def _has_long_record(data: bytes, lines: Lines, most: int) -> bool:
    """Whether one record may have more keys: it is long, and has as many colons."""
    long = np.flatnonzero(lines.stops - lines.starts > most * _KEY_NBYTES)
    places = zip(lines.starts[long].tolist(), lines.stops[long].tolist(), strict=True)
    return any(data.count(b":", start, stop) > most for start, stop in places)


def _seems_to_exceed(data: bytes, lines: Lines, most: int) -> bool:
    """Whether new keys come that often in a sample that all records may have more of them.

    Parts lie all over the bytes: what many keys are in has many bytes. Keys that one part alone has
    tell how many others there are.

    Source:
        I. J. Good, The population frequencies of species, Biometrika 40 (1953).
    """
    step = max(_WINDOW_NBYTES, len(data) // _WINDOWS)
    # Not in step with records of one length.
    starts = (at + at * _SPREAD % (step - _WINDOW_NBYTES + 1) for at in range(0, len(data), step))
    parts = [data[start : start + _WINDOW_NBYTES] for start in starts]
    share = len(data) / max(1, sum(map(len, parts)))
    # All that is in the first record is known: a wide table has no new keys after it.
    known = set(_KEY.findall(data[: lines.stops[0]]))
    counts = Counter(key for part in parts for key in set(_KEY.findall(part)))
    new = [key for key, count in counts.items() if count == 1 and key not in known]
    known |= counts.keys()
    objects = sum(bool(key[1]) for key in known) + share * sum(bool(key[1]) for key in new)
    # Each object may hold keys of the same names.
    return len(known) + len(new) * share > most or objects * len(known) > MAX_COLUMNS // 4


def _add_columns(record: Any, found: set[tuple[str, ...]]) -> None:
    """Add the path of every value; what is in lists counts as well, for parsers make room for it.

    A record that is no object has no column.
    """
    waiting: list[tuple[tuple[str, ...], Any]] = [((), record)] if isinstance(record, dict) else []
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict) and value:
            waiting += [((*path, key), inner) for key, inner in value.items()]
        elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
            waiting += [((*path, ""), inner) for inner in value]
        elif path:
            found.add(path)
