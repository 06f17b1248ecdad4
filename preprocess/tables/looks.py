"""What columns and headers look like, and are not: said in notes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from preprocess.tables.block import FRAME, Evidence
from preprocess.tables.options import TableOptions
from preprocess.texts.kinds import kind_by_name

_SHOWN: Final = 5
_COMMA: Final = re.compile(r"[+-]?[0-9]+,[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?|[0-9]{4}-[0-9]{2}-[0-9]{2}")
_QUOTED_LATE: Final = re.compile(r"\s+\".*\"\s*")
_QUOTED: Final = re.compile(r"\".*\"")
_GROUPS: Final = re.compile(r"[+-]?[0-9]{1,3}([.,' ])[0-9]{3}(\1[0-9]{3})+([.,][0-9]+)?")


_NESTED: Final = "list<item: list<item: null>>"
"""What lists of JSON are called that are not of numbers or texts alone."""
_FINER: Final = re.compile(r"(time64|timestamp)\[ns")
_FARTHER: Final = re.compile(r"timestamp\[(s|ms)")


def why_other(kind: str) -> str:
    """Say why no number stands for the values of a type of Arrow."""
    if _FINER.match(kind):
        return f"holds {kind}, some finer than microseconds, which are stored; round them"
    if _FARTHER.match(kind):
        return f"holds {kind}, some beyond the years that microseconds of 64 bits reach"
    if kind.startswith("duration"):
        return f"holds {kind}, spans of time; make whole numbers of them"
    if kind == _NESTED:
        return "holds lists of lists, or of values of several kinds, which no record holds"
    return f"holds {kind}, which no number stands for"


def text_notes(name: str, evidence: Evidence) -> Iterator[str]:
    """Say why a column that looks like numbers is taken as text."""
    value, place = evidence.not_kind.get("float", ("", ""))
    if evidence.from_bytes:
        yield f"column {name!r}: bytes, all of them valid UTF-8, taken as text"
    if evidence.as_json is not None:
        yield (
            f"column {name!r}: lists or objects stand among other values, the first at "
            f"{evidence.as_json}: each is its JSON, a text like the others"
        )
        return
    if evidence.is_typed:
        return
    if evidence.leading_zeros:
        yield (
            f"column {name!r}: text, since a number would lose how it is written"
            + (f", such as {value!r} at {place}" if place else "")
        )
    elif _QUOTED.fullmatch(value):
        yield (
            f"{place}: column {name!r}: text, since {value} stands in quotes; numbers and truth "
            "values have none"
        )
    elif _QUOTED_LATE.fullmatch(value):
        yield (
            f"{place}: column {name!r}: text; in {value!r} the quotes are part of it, since a "
            "blank stands before them: take the blank out"
        )
    elif _GROUPS.fullmatch(value):
        yield f"{place}: column {name!r}: text; if {value!r} is a number, say --thousands"
    elif _COMMA.fullmatch(value):
        yield f"{place}: column {name!r}: text; if {value!r} is a number, say --decimal ,"


def header_notes(
    columns: Sequence[str], evidence: Mapping[str, Evidence], options: TableOptions
) -> Iterator[str]:
    """Say what a header leaves without a name, and that it looks like a row of values."""
    without = [name for name in columns if evidence[name].unnamed is not None]
    if without:
        shown = ", ".join(map(repr, without[:_SHOWN])) + (", ..." if len(without) > _SHOWN else "")
        yield (
            f"{evidence[without[0]].unnamed}: the header leaves columns without a name: called "
            f"{shown}, by their place"
        )
    named = [name for name in columns if _NUMBER.fullmatch(name)]
    places = [place for name in columns for _, place in evidence[name].not_kind.values()]
    if not named or not places or not options.header:
        return
    key = places[0].rpartition(":")[0]
    if key != FRAME and kind_by_name(key) in {None, "text", "csv", "tsv"}:
        shown = ", ".join(map(repr, named[:_SHOWN])) + (", ..." if len(named) > _SHOWN else "")
        yield f"{key}: the header has {shown}; if it is a row of values, say --no-header"
