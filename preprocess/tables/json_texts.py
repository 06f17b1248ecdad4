"""Columns of JSON whose values are texts for want of one type: which value is to blame, and where.

By its text alone, no value of such a column tells its type: 5 and "5" are the same one.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from loaders.format.value_texts import number_text
from preprocess.tables.block import Evidence
from preprocess.tables.text import is_padded
from preprocess.texts.records import dump_json

_SHOWN: Final = 100
"""Letters of a value that a message may show."""

_KINDS: Final[dict[str, frozenset[type]]] = {
    "integer": frozenset({int}),
    "float": frozenset({int, float}),
    "boolean": frozenset({bool}),
}
"""What is no text in JSON, and the types that Python has for it."""

_UNQUOTED: Final = re.compile(r"-?[0-9.]+(?:[eE][-+]?[0-9]+)?|(?i:true|false|nan|-?inf(?:inity)?)")
"""What would be no text without its quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonTexts:
    """What a column of texts was in JSON, where its values were of several types.

    Attributes:
        not_kind: For each of `_KINDS` that not all values are of: the first that is not, and its
            row.
        nested: The row of the first list or object; None without one.
        are_numbers: All values are numbers, which no type of Arrow holds as they are.
    """

    not_kind: dict[str, tuple[str, int]]
    nested: int | None = None
    are_numbers: bool = False


def json_text(value: Any) -> str | None:
    """Return the text of a value of JSON, and that of a string as it is."""
    if value is None or value != value:
        return None  # NaN is a missing value, as it is among numbers
    if isinstance(value, str):
        return value
    # Numbers as in other blocks, where the column may hold numbers alone.
    return number_text(value) if isinstance(value, float) else dump_json(value)


def json_texts_of(values: Sequence[Any]) -> JsonTexts | None:
    """Look at the values of a column, which have no type in common.

    Returns:
        None where they have one that is no number: strings, or lists.
    """
    kinds = {type(value) for value in values} - {type(None)}
    if kinds and kinds <= {int, float}:
        return JsonTexts(not_kind={}, are_numbers=True)
    if len(kinds) < 2:
        return None
    nested = kinds & {list, dict}
    return JsonTexts(
        not_kind=dict(_first_others(values)),
        nested=next((r for r, value in enumerate(values) if type(value) in nested), None),
    )


def _first_others(values: Sequence[Any]) -> Iterator[tuple[str, tuple[str, int]]]:
    for kind, types in _KINDS.items():
        for row, value in enumerate(values):
            if value is not None and value == value and type(value) not in types:
                yield kind, (_shown(value), row)
                break


def _shown(value: Any) -> str:
    """Return a value as a message shows it: a string in its quotes where they make it one."""
    text = json_text(value) or ""
    return in_quotes(text) if isinstance(value, str) else text[:_SHOWN]


def in_quotes(text: str) -> str:
    """Return a string as a message shows it: in its quotes if it would be none without."""
    return f'"{text}"' if _UNQUOTED.fullmatch(text[:_SHOWN]) else text[:_SHOWN]


def with_json_types(evidence: Evidence, texts: JsonTexts, place: Callable[[int], str]) -> Evidence:
    """Return what is known of the texts of a column, by the types that their values had.

    Args:
        evidence: Of the texts alone.
        texts: Their types.
        place: Names rows of the block, also those behind the last that is taken.
    """
    found = {kind: (value, place(row)) for kind, (value, row) in texts.not_kind.items()}
    return replace(
        evidence,
        not_kind={**evidence.not_kind, **found},
        leading_zeros=is_padded(found["float"][0]) if "float" in found else evidence.leading_zeros,
        as_json=None if texts.nested is None else place(texts.nested),
    )
