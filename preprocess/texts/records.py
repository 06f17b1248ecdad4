"""One JSON record -> its texts and metadata, exactly as Python's `json` reads it."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from preprocess.texts.json_keys import (
    Doubtful,
    key_in_doubt,
    read_doubtful_line,
    read_json_line,
)
from preprocess.texts.options import TextOptions

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_SHOWN: Final = 8
"""Keys of a record that a message lists."""


class BadRecord(ValueError):  # noqa: N818 - it never leaves the reader: a SampleError names it
    """A record that cannot become a document; the message says why in one line."""


class Record(NamedTuple):
    """What is taken of a record.

    Attributes:
        text: The text, without lone surrogates.
        pair: The second text; empty where none is asked for.
        metadata: A JSON object; empty where none is asked for.
    """

    text: str
    pair: str
    metadata: str


def read_record(line: str, options: TextOptions) -> Record:
    """Read one line of JSON.

    Raises:
        BadRecord: It is no JSON, no object, or its texts are missing, null or no strings, or a key
            stands twice in what is taken of it.
    """
    try:
        record = read_object(line)
        if isinstance(record, Doubtful):
            keys = [options.text_key, options.pair_key, *options.metadata_keys]
            refuse_doubt(record, [key.split(".") for key in keys if key is not None])
        text = _text(record, options.text_key, options, as_json=options.json_values)
        pair = metadata = ""
        if options.pair_key is not None:
            pair = _text(record, options.pair_key, options, as_json=False)
        if options.metadata_keys:
            kept = {key: _look_up(record, key, None) for key in options.metadata_keys}
            metadata = _mended(dump_json(kept), "the metadata", options)
    except RecursionError:
        raise BadRecord("JSON that is nested too deeply") from None
    return Record(text, pair, metadata)


def read_object(line: str) -> dict[str, Any]:
    """Read one line of JSON that is an object; `Doubtful` where a key stands twice in one of it.

    Raises:
        BadRecord: It is no JSON, or no object.
    """
    try:
        record = _parse(line)
    except RecursionError:
        raise BadRecord("JSON that is nested too deeply") from None
    if not isinstance(record, dict):
        raise BadRecord(f"{kind_of(record)}, not an object; write one object a line")
    return record


def _parse(line: str) -> Any:
    try:
        return _parse_any(line)
    except json.JSONDecodeError as error:
        reason = error.msg.removesuffix(" starting at")
        raise BadRecord(f"broken JSON at column {error.colno:,}: {reason}") from None


def _parse_any(line: str) -> Any:
    try:
        return read_json_line(line)
    except json.JSONDecodeError:
        raise
    except ValueError:  # a whole number of more digits than Python turns into an int
        return read_doubtful_line(line, parse_int=float)


def refuse_doubt(record: Doubtful, paths: Iterable[Sequence[str]]) -> None:
    """Refuse a record if one of the values that some keys lead to is in doubt.

    Raises:
        BadRecord: It is.
    """
    if (key := key_in_doubt(record, paths)) is not None:
        raise BadRecord(f"the key {key!r} stands twice in one object; write it once")


def _text(record: dict[str, Any], key: str, options: TextOptions, *, as_json: bool) -> str:
    value = _look_up(record, key, _MISSING)
    if value is _MISSING:
        raise BadRecord(_why_missing(record, key))
    if value is None:
        raise BadRecord(f"{key!r} is null")
    if as_json:
        return _mended(dump_json(value), repr(key), options)
    if not isinstance(value, str):
        raise BadRecord(f"{key!r} is {kind_of(value)}, not a string")
    return _mended(value, repr(key), options)


_MISSING: Final = object()


def _look_up(record: Any, key: str, default: object) -> Any:
    value = record
    for name in key.split("."):
        if not isinstance(value, dict) or name not in value:
            return default
        value = value[name]
    return value


def _why_missing(record: dict[str, Any], key: str) -> str:
    value: Any = record
    above = ""
    for name in key.split("."):
        if not isinstance(value, dict):
            return f"no key {key!r}: {above!r} is {kind_of(value)}"
        if name not in value:
            break
        above = f"{above}.{name}" if above else name
        value = value[name]
    place = f"{above!r}" if above else "the record"
    return f"no key {key!r}; {place} has {listed(list(value))}"


def listed(names: list[str]) -> str:
    """Name some keys or columns, for a message."""
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    rest = len(names) - _SHOWN
    return (f"{shown} and {rest:,} more" if rest > 0 else shown) or "none"


def kind_of(value: object) -> str:
    """Say what a JSON value is."""
    if value is None:
        return "null"
    names = {bool: "a truth value", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")


def _mended(text: str, what: str, options: TextOptions) -> str:
    found = _SURROGATES.search(text)
    if found is None:
        return text
    if options.replaces:
        return _SURROGATES.sub("\ufffd", text)
    code = f"U+{ord(found[0]):04X}"
    raise BadRecord(f"a lone surrogate, {code}, in {what} at character {found.start() + 1:,}")


def dump_json(value: object) -> str:
    """Return compact JSON; NaN and infinities, for which JSON has no word, become null."""
    try:
        return json.dumps(value, **_COMPACT, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(value), **_COMPACT)


def _as_string(value: object) -> str:
    """Return what JSON has no word for as a string: times, decimals, bytes that are UTF-8."""
    return value.decode() if isinstance(value, bytes) else str(value)


_COMPACT: Final[dict[str, Any]] = {
    "ensure_ascii": False,
    "separators": (",", ":"),
    "default": _as_string,
}


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_nan(inner) for inner in value]
    return value
