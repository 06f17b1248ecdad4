"""The plan of a column: what its values become, before any row is fitted to it."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, Never

import numpy as np

from loaders.format.table_column import ColumnDtype, ColumnKind, ListItems
from preprocess.errors import SourceError
from preprocess.tables.block import MIXED_TEXT, NAIVE, ZONED, Evidence
from preprocess.tables.options import Task

PlanKind = ColumnKind | Literal["text", "left_out"]

INT64: Final = (-(1 << 63), (1 << 63) - 1)
_UINT64: Final = (1 << 64) - 1

_DAY: Final = 86_400_000_000
"""Microseconds."""

_PYTHON_DAYS: Final = (-719_162, 2_932_897)
"""Days since 1970 of the years 1 to 9999: Python has no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """What one column becomes.

    Attributes:
        name: In the record.
        kind: As in `ColumnSpec`; "text" is kept for tokens, "left_out" is no part of the record.
        role: "target" for what is predicted.
        dtype: Stored type that is asked for; None for the narrowest.
        float32: Floats may be rounded to float32.
        length: Values of a vector, of the longest list where they vary.
        shortest: Values of the shortest list of a vector.
        values: What the lists of a vector hold; None until their types have been looked at.
        holds: Truth values or times in the lists of a vector, alike.
        exponent: Values are whole numbers times 10**exponent.
        low: Smallest whole number; None where there is none.
        high: Largest whole number.
        unsigned: Whole numbers are uint64, since some are beyond int64.
        nullable: A code is kept for missing values.
        wraps: That code is of a number that no row has, among all of 64 bits.
        float32_exact: float32 holds all numbers.
        beyond_float: Whole numbers among floats may be beyond what float64 holds, or decimals.
        infinite: Some of them are infinite as float64.
        word: The first value that is no number, and its place; None where there is none.
        odd_time: The first value that is neither date nor time, alike.
        buckets: Values are hashed into so many.
        min_count: Rarer values share the code of unknown ones.
        folded: Truth values are one class each, however they are written.
        task: Of a target; "auto" where the number of its different values decides.
        source: The column that it is taken from.
        part: The part of the source's times that it is, one of `DATETIME_PARTS`.
        notes: What the user should know.
    """

    name: str
    kind: PlanKind
    role: Literal["feature", "target"] = "feature"
    dtype: ColumnDtype | None = None
    float32: bool = False
    length: int = 1
    shortest: int = 1
    values: Literal["whole", "floats", "texts"] | None = None
    holds: ListItems | None = None
    exponent: int = 0
    low: int | None = None
    high: int | None = None
    unsigned: bool = False
    nullable: bool = True
    wraps: bool = False
    float32_exact: bool = False
    beyond_float: bool = False
    infinite: bool = False
    word: tuple[str, str] | None = None
    odd_time: tuple[str, str] | None = None
    buckets: int | None = None
    min_count: int = 1
    folded: bool = False
    task: Task = "auto"
    source: str = ""
    part: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def varies(self) -> bool:
        """Whether it is of lists of several lengths."""
        return self.kind == "vector" and self.shortest < self.length


def with_range(plan: ColumnPlan, low: int, high: int, *, missing: bool) -> ColumnPlan:
    """Give a plan its range; a range beyond 64 bits is refused.

    Args:
        plan: Of whole numbers.
        low: The smallest.
        high: The largest.
        missing: Some rows have none, so that a code has to be kept for that.
    """
    remedies = () if plan.kind == "vector" else ("--categorical",)
    beyond = next((value for value in (high, low) if not INT64[0] <= value <= _UINT64), None)
    if beyond is not None:
        refuse_column(plan.name, f"{beyond} is beyond 64 bits", *remedies)
    unsigned = high > INT64[1]
    if unsigned and low < 0:
        refuse_column(plan.name, f"the range {low}..{high} is beyond 64 bits", *remedies)
    offset_form = high - low + 1 <= INT64[1]
    return replace(
        plan,
        low=low,
        high=high,
        unsigned=unsigned or plan.unsigned,
        nullable=offset_form or missing,
        wraps=missing and not offset_form,
    )


def room_of(plan: ColumnPlan, percent: int) -> int:
    """Return how far codes go below the range, and above it, for new data.

    So far as the type that is asked for has codes, or 64 bits, and numbers of such a sign.
    """
    low, high = plan.low or 0, plan.high or 0
    codes = int(np.iinfo(plan.dtype or "int64").max)
    first, last = (0, _UINT64) if plan.unsigned else INT64
    asked = -(-(high - low) * percent // 100)
    return max(0, min(asked, (codes - 1 - (high - low)) // 2, low - first, last - high))


def without_text(evidence: Evidence) -> str | None:
    """Return why the values of a column have no text, by which they could be told apart."""
    other = next((kind for kind in evidence.kinds if kind.startswith("other:")), None)
    if other is not None or "list" in evidence.kinds:
        return f"holds {'lists' if other is None else other.removeprefix('other:')}"
    types = evidence.types
    if "lists" in types:  # in some files
        return f"holds lists ({types['lists']}) beside other values"
    if ZONED in types and NAIVE in types:
        return f"holds {ZONED} ({types[ZONED]}) and {NAIVE} ({types[NAIVE]}) together"
    low, high = evidence.minimum, evidence.maximum
    unit = {frozenset({"date"}): 1, frozenset({"datetime"}): _DAY}.get(evidence.kinds)
    if unit is None or low is None or high is None:
        return None
    first, end = (day * unit for day in _PYTHON_DAYS)
    return None if first <= low and high < end else "holds times before the year 1 or after 9999"


def mixed_notes(name: str, evidence: Evidence) -> Iterator[str]:
    """Say how values are told apart whose types are not the same in all files."""
    types = evidence.types
    # Whole numbers, also as floats, and dates are written in one way alone.
    same = types.keys() <= {"whole numbers", "floats"} or evidence.kinds & {"integer", "date"}
    if len(types) > 1 and not same:
        said = "; ".join(f"{what} ({types[what]}) as {MIXED_TEXT[what]}" for what in types)
        yield f"column {name!r}: values of different types are one where their texts are: {said}"


def refuse_column(name: str, why: str, *remedies: str, place: str = "") -> Never:
    """Refuse a column, and say by which options it can be taken or left out.

    Args:
        name: The column.
        why: What is wrong.
        remedies: Options beside --ignore.
        place: File and line, where they are known.
    """
    said = " or ".join(with_name(remedy, name) for remedy in (*remedies, "--ignore"))
    raise SourceError(f"{place}{': ' if place else ''}column {name!r}: {why}; {said}")


def with_name(option: str, name: str) -> str:
    """Return an option that is given a column, as a shell takes it."""
    if "," in name:  # stands between two names there
        kind = option.removeprefix("--")
        column = json.dumps(name, ensure_ascii=False)
        return f'[columns.{column}] with kind = "{kind}" in --schema FILE'
    return f"{option} {shlex.quote(name)}"
