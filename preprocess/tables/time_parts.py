"""The parts of times that `--datetime-parts` puts beside them: columns of their own."""

from collections.abc import Iterator, Sequence

from preprocess.tables.options import TableOptions
from preprocess.tables.plan import ColumnPlan
from preprocess.tables.values import DATETIME_PARTS


def with_parts(plan: ColumnPlan, options: TableOptions) -> Iterator[ColumnPlan]:
    """Yield a plan, and those of the parts of its times."""
    yield plan
    if not options.datetime_parts or plan.role == "target" or plan.kind not in {"date", "datetime"}:
        return
    for part in DATETIME_PARTS:
        if part != "hour" or plan.kind == "datetime":
            name = f"{plan.name}.{part}"
            yield ColumnPlan(name=name, kind="integer", source=plan.source, part=part)


def ambiguous_parts(plans: Sequence[ColumnPlan]) -> Iterator[str]:
    """Say which columns are named like the parts of another's times: a schema could not tell."""
    times = {plan.name for plan in plans if plan.kind in {"date", "datetime"}}
    for plan in plans:
        stem, _, part = plan.name.rpartition(".")
        if plan.part is None and part in DATETIME_PARTS and stem in times:
            yield f"column {plan.name!r}: named like a part of {stem!r}; rename it or --ignore it"
