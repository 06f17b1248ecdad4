"""What each column of a table becomes: decided once, by what is known of all its values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from loaders.format.records import NAME_RULE, is_name
from preprocess.errors import SourceError
from preprocess.tables.as_decimals import in_units, is_narrower
from preprocess.tables.asked import check_names, wish_of
from preprocess.tables.block import NULL, Evidence
from preprocess.tables.columns import LETTERS_SHOWN
from preprocess.tables.looks import header_notes, text_notes, why_other
from preprocess.tables.options import TableOptions, Task
from preprocess.tables.plan import (
    ColumnPlan,
    mixed_notes,
    refuse_column,
    with_name,
    with_range,
    without_text,
)
from preprocess.tables.refusals import TooFewRowsError
from preprocess.tables.time_parts import ambiguous_parts, with_parts
from preprocess.tables.toml import Wish
from preprocess.tables.values import EXACT_FLOAT

if TYPE_CHECKING:
    from loaders.format.table_schema import ColumnKind

MAX_CLASSES: Final = 20
"""Different whole numbers up to which a target is taken for classes."""

_NUMBERS: Final[tuple[str, ...]] = (
    "integer",
    "float",
    "decimal",
    "boolean",
    "date",
    "datetime",
    "time",
)
"""Kinds in the order in which they are chosen, where text could be several."""

_SHOWN: Final = 5


def decide(
    evidence: Mapping[str, Evidence],
    columns: Sequence[str],
    options: TableOptions,
    wishes: Mapping[str, Wish] | None = None,
) -> tuple[ColumnPlan, ...]:
    """Decide what each column becomes.

    Args:
        evidence: Of every column, over all rows.
        columns: Their names, in order.
        options: What the user asks.
        wishes: What `schema.toml` asks; options go before it.

    Returns:
        A plan for each column that is not ignored, in order; the parts of times follow theirs.

    Raises:
        SourceError: Columns cannot be what they should be; all of them are named.
    """
    wishes = wishes or {}
    check_names(columns, options, wishes)
    plans: list[ColumnPlan] = []
    refusals: list[str] = []
    refused: type[SourceError] = SourceError
    for name in columns:
        wish = wish_of(name, options, wishes.get(name, Wish()))
        if wish.kind == "ignore":
            continue
        if not is_name(name):  # of JSON, whose records name what they hold
            refusals.append(f"column {name[:LETTERS_SHOWN]!a}: expected {NAME_RULE}")
            continue
        try:
            plan = _decide_column(name, evidence[name], options, wish)
        except SourceError as error:
            refusals.append(str(error))
            refused = TooFewRowsError if isinstance(error, TooFewRowsError) else refused
            continue
        plans += with_parts(plan, options)
    refusals += ambiguous_parts(plans)
    if refusals:
        more = len(refusals) - _SHOWN
        said = "; ".join(refusals[:_SHOWN])
        raise refused(f"{said}; and {more} more columns" if more > 0 else said)
    if all(plan.kind in {"text", "left_out"} for plan in plans):
        plans = _with_empty(plans, evidence)
    notes = tuple(header_notes(columns, evidence, options))
    plans[0] = replace(plans[0], notes=(*notes, *plans[0].notes))
    return tuple(plans)


def _with_empty(plans: Sequence[ColumnPlan], evidence: Mapping[str, Evidence]) -> list[ColumnPlan]:
    """Keep columns without a value where no other is left: the rows are there all the same."""
    names = [
        plan.name
        for plan in plans
        if plan.kind == "left_out" and evidence[plan.source].missing == evidence[plan.source].count
    ]
    if not names:
        left = [plan for plan in plans if plan.kind == "left_out"]
        empty = ", ".join(repr(plan.name) for plan in left[:_SHOWN])
        why = f"no list has a value in {empty}" if empty else "all are ignored"
        if left and (places := evidence[left[0].source].types):
            why = f"{next(iter(places.values()))}: {why}"
        raise SourceError(f"no column is left that could be stored: {why}; add one, or ignore less")
    shown = ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
    note = f"columns {shown}: no value in any row, and kept, since no other is left"
    return [
        replace(plan, kind="integer", low=0, high=0, notes=(note,) if plan.name == names[0] else ())
        if plan.name in names
        else plan
        for plan in plans
    ]


def _decide_column(name: str, evidence: Evidence, options: TableOptions, wish: Wish) -> ColumnPlan:
    target = name == options.target
    plan = ColumnPlan(
        name=name,
        kind="left_out",
        role="target" if target else "feature",
        source=name,
        dtype=wish.dtype,
        float32=wish.dtype == "float32" or name in options.float32 or "*" in options.float32,
        min_count=1 if target else (wish.min_count or options.min_count),
        buckets=wish.buckets,
        float32_exact=evidence.float32_exact,
    )
    other = next((kind for kind in evidence.kinds if kind.startswith("other:")), None)
    if other is not None:
        _, place = evidence.not_kind.get("string", ("", ""))
        why = why_other(other.removeprefix("other:"))
        refuse_column(name, why, place=place)
    if evidence.kinds == NULL or evidence.missing == evidence.count:
        if target:
            raise TooFewRowsError(f"target {name!r}: missing in all {evidence.count:,} rows")
        return plan
    if target:
        return _decide_target(plan, evidence, options, wish)
    return _as_kind(plan, evidence, _kind_of(plan, evidence, wish))


def _decide_target(
    plan: ColumnPlan, evidence: Evidence, options: TableOptions, wish: Wish
) -> ColumnPlan:
    """Decide a target's kind and task, as far as its range tells."""
    if wish.kind == "text" or wish.buckets is not None or "list" in evidence.kinds:
        raise SourceError(f"target {plan.name!r}: expected one number or class in each row")
    task: Task = options.task
    if task == "regression" and wish.kind is None:
        if evidence.kinds.isdisjoint(_NUMBERS) and "string" in evidence.kinds:
            value, place = evidence.not_kind.get("float", ("a text", ""))
            raise SourceError(
                f"{place}{': ' if place else ''}target {plan.name!r}: {value!r} is no number, and "
                "--task regression wants one in each row; mend it, or say --task classification"
            )
        wish = replace(wish, kind="numeric")
    kind = _kind_of(plan, evidence, wish)
    if task == "regression" and kind == "categorical":
        raise SourceError(f"target {plan.name!r}: categorical, and no number for regression")
    if task == "auto" and kind in {"categorical", "boolean"} and wish.kind != "numeric":
        task = "classification"
    elif task == "auto" and (kind != "integer" or wish.kind == "numeric"):
        task = "regression"
    if task == "classification" and (why := without_text(evidence)):
        raise SourceError(f"target {plan.name!r}: {why}, which are no classes")
    found = _as_kind(plan, evidence, kind)
    if task == "auto" and found.low is not None and found.high is not None:
        few = found.high - found.low < MAX_CLASSES
        task = "classification" if few else "auto"
    if task == "classification":
        found = replace(
            found,
            kind="categorical",
            folded=kind == "boolean",
            low=None,
            high=None,
            exponent=0,
            unsigned=False,
            nullable=True,
        )
    return replace(found, task=task)


def _kind_of(plan: ColumnPlan, evidence: Evidence, wish: Wish) -> str:
    """Return the kind of a column: the one asked for if it can be, or the first that fits."""
    name, kinds = plan.name, evidence.kinds
    if wish.kind in {"categorical", "text"} or wish.buckets is not None:
        if why := without_text(evidence):
            refuse_column(name, f"{why}, which are neither categories nor text")
        return wish.kind or "categorical"
    if not kinds:
        refuse_column(
            name, "holds values of different types in different files or rows", "--categorical"
        )
    if wish.kind == "numeric":
        return _first_number(plan, evidence) or _not_a(name, "float", evidence, "--numeric")
    if wish.kind is not None:
        wanted = "list" if wish.kind == "vector" else wish.kind
        if wanted == "decimal" and in_units(plan, evidence) is not None:
            return wanted
        return wanted if wanted in kinds else _not_a(name, wanted, evidence, "kind")
    if wish.dtype in {"float32", "float64"} and kinds & {"integer", "float"}:
        return "float"
    found = _first_number(plan, evidence)
    return found or ("list" if "list" in kinds else "categorical")


def _first_number(plan: ColumnPlan, evidence: Evidence) -> str | None:
    """Return the first kind of numbers or times that all values are of; None for no such kind."""
    found = next((kind for kind in _NUMBERS if kind in evidence.kinds), None)
    return "decimal" if found == "float" and is_narrower(plan, evidence) else found


def _not_a(name: str, kind: str, evidence: Evidence, asked: str) -> str:
    """Refuse a kind that not all values are of, by the first value that is not."""
    if kind == "float" and evidence.kinds & {"integer", "decimal"}:
        return "float"
    value, place = evidence.not_kind.get(kind, (None, None))
    article = "a number" if kind in {"float", "integer"} else f"of kind {kind}"
    if value is None:
        found = ", ".join(sorted(evidence.kinds))
        raise SourceError(f"column {name!r}: {asked} asks for {kind}, its values are: {found}")
    raise SourceError(
        f"{place}: column {name!r}: {value!r} is not {article}, which {asked} asks for; "
        f"mend it, or {with_name('--categorical', name)}"
    )


def _as_kind(plan: ColumnPlan, evidence: Evidence, kind: str) -> ColumnPlan:
    """Complete a plan for the kind that was found."""
    if kind == "text":
        return replace(plan, kind="text")
    if kind == "categorical":
        said = tuple(text_notes(plan.name, evidence))
        written = "string" in evidence.kinds and not evidence.is_typed and not said
        word = evidence.not_kind.get("float") if written else None
        odd = evidence.not_kind.get("datetime") if written else None
        said += tuple(mixed_notes(plan.name, evidence))
        return replace(plan, kind="categorical", notes=said, word=word, odd_time=odd)
    if kind == "list":
        return _as_vector(plan, evidence)
    if kind == "float" or plan.dtype in {"float32", "float64"}:
        low, high = evidence.minimum or 0, evidence.maximum or 0
        exact = low > -EXACT_FLOAT and high < EXACT_FLOAT and "decimal" not in evidence.kinds
        infinite = math.isinf(low) or math.isinf(high)
        return replace(plan, kind="float", beyond_float=not exact, infinite=infinite)
    if kind == "decimal" and (found := in_units(plan, evidence)) is not None:
        return found
    notes: tuple[str, ...] = ()
    if kind == "time":
        notes = (f"column {plan.name!r}: times of day, as whole microseconds",)
    stored: ColumnKind = "integer" if kind == "time" else kind  # type: ignore[assignment]
    exponent = -(evidence.exponent or 0) if kind == "decimal" else 0
    found = replace(plan, kind=stored, exponent=exponent, notes=notes)
    if kind == "boolean":
        return replace(found, low=0, high=1)
    if kind == "decimal" or not isinstance(evidence.minimum, int):
        return found
    low, high = int(evidence.minimum), int(evidence.maximum or 0)
    # Rows without a target are left out.
    missing = evidence.missing > 0 and plan.role != "target"
    return with_range(found, low, high, missing=missing)


def _as_vector(plan: ColumnPlan, evidence: Evidence) -> ColumnPlan:
    """Plan lists; whether they hold numbers or texts, their types tell."""
    lengths = evidence.list_lengths
    shortest, longest = lengths if lengths is not None else (0, 0)
    if not longest:
        return plan
    return replace(plan, kind="vector", length=longest, shortest=shortest)


def plan_time(name: str, evidence: Mapping[str, Evidence]) -> ColumnPlan:
    """Return how the values of a column are put in order.

    Raises:
        SourceError: They are neither numbers nor times.
    """
    found = evidence[name]
    kind = next((kind for kind in _NUMBERS if kind in found.kinds and kind != "boolean"), None)
    if kind is None or found.missing == found.count:
        kind = _not_a(name, "datetime", found, "--split-by-time")
    plan = ColumnPlan(name=name, kind="left_out", source=name)
    return _as_kind(plan, found, kind)
