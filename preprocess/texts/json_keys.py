"""One line of JSON, and the keys that stand several times in one object: whose values are in doubt.

Python's parser keeps the last value of such a key, others the first. Arrow refuses what it reads of
such an object, so that a block with one is always read record by record, and comes here.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any


class Doubtful(dict[str, Any]):
    """An object in which a key stands several times, or one within it; the last values.

    Attributes:
        twice: Its own keys that do.
    """

    __slots__ = ("twice",)

    def __init__(self, values: dict[str, Any], twice: Iterable[str]) -> None:
        super().__init__(values)
        self.twice = frozenset(twice)


class _TwiceError(Exception):
    """A key stands several times."""


def read_json_line(line: str) -> Any:
    """Return what a line holds, as `json.loads` does; objects with a key in doubt are `Doubtful`.

    A record in which one of these lies is one too.

    Raises:
        ValueError: As `json.loads`.
        RecursionError: It is nested too deeply.
    """
    try:
        return _DECODER.decode(line)
    except _TwiceError:
        return read_doubtful_line(line)


def read_doubtful_line(line: str, **options: Any) -> Any:
    """Do the same in several times the time; `options` are those of `json.loads`."""
    seen = False

    def marked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal seen
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        seen = True
        counts = Counter(key for key, _ in pairs)
        return Doubtful(found, (key for key, count in counts.items() if count > 1))

    value = json.loads(line, object_pairs_hook=marked, **options)
    if seen and type(value) is dict:
        return Doubtful(value, ())
    return value


def key_in_doubt(record: Doubtful, paths: Iterable[Sequence[str]]) -> str | None:
    """Return a key in doubt on the way to some values of a record, or anywhere in them.

    Args:
        record: It.
        paths: The keys that lead to each of the values.
    """
    for path in paths:
        value: Any = record
        for name in path:
            if isinstance(value, Doubtful) and name in value.twice:
                return name
            value = value.get(name) if isinstance(value, dict) else None
        if (found := _key_within(value)) is not None:
            return found
    return None


def _key_within(value: Any) -> str | None:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Doubtful) and value.twice:
            return min(value.twice)
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _TwiceError
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_once)
"""Made once: `json.loads` would make one for every line."""
