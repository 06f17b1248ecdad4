"""What `prep table --dry-run` shows: columns, splits, bytes, and what will be lost."""

from typing import Any, Final

from preprocess.commands.terminal import check_plan, describe_plan
from preprocess.items import printable
from preprocess.plan import RunOptions
from preprocess.report import human_nbytes
from preprocess.tables.info import table_text
from preprocess.tables.layout import TablePlan

_SHOWN: Final = 5
"""Rows that are left out, and are named; the rest are counted."""


def describe_preview(planned: TablePlan, run_options: RunOptions) -> dict[str, Any]:
    """Return what a run would write, as JSON values.

    Raises:
        OutputError: The run would be refused.
    """
    plan = planned.plan
    check_plan(plan, overwrite=run_options.overwrite)
    described = describe_plan(plan, overwrite=run_options.overwrite)
    splits = described["splits"]
    described["splits"] = {
        name: {"samples": count, "shards": splits[name]["shards"]}
        for name, count in planned.samples.items()
    }
    described["columns"] = [
        {
            **spec.to_json(),
            "cardinality": spec.cardinality,
            "missing": planned.missing.get(spec.name),
        }
        for spec in planned.schema.columns
    ]
    described["record_nbytes"] = planned.schema.record_dtype.itemsize
    skipped = plan.listing.skipped[:_SHOWN]
    described["first_skipped"] = [printable(str(error)) for error in skipped]
    return described


def preview_text(described: dict[str, Any]) -> str:
    """Return what `describe_preview` has found, for people."""
    lines = [
        f"{name}: {found['samples']:,} rows, {found['shards']:,} shards"
        for name, found in described["splits"].items()
    ]
    lines.append(table_text(described))
    gaps = [
        f"{printable(column['name'])} {column['missing']:,}"
        for column in described["columns"]
        if column["missing"]
    ]
    lines.append(f"missing: {', '.join(gaps) if gaps else 'none'}")
    lines += [f"note: {note}" for note in described["notes"]]
    lines += [f"ignored: {count:,} {reason}" for reason, count in described["ignored"].items()]
    if described["skipped"]:
        lines.append(f"skipped: {described['skipped']:,}")
        lines += [f"  {said}" for said in described["first_skipped"]]
    nbytes = described["nbytes"]
    lines.append(f"to be written: {human_nbytes(nbytes)} ({nbytes:,} bytes) to {described['out']}")
    lines.append(f"free there: {human_nbytes(described['nbytes_free'])}")
    return "\n".join(lines)
