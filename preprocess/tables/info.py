"""What the columns of a table are, for people: types, missing values, ranges, losses."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from loaders.format.spec import Manifest
from loaders.format.table_schema import read_table_schema
from preprocess.items import printable

_SHOWN: Final = 40
"""Columns that are named; the rest are counted."""

_NAME_WIDTH: Final = 24
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def describe_table(manifest: Manifest, root: Path) -> dict[str, Any] | None:
    """Return what the columns are, as JSON values; None for what is no table.

    Raises:
        MissingShardError: The schema is not there.
        FormatError: It is damaged.
    """
    schema = read_table_schema(root, manifest)
    if schema is None:
        return None
    return {
        "columns": [{**spec.to_json(), "cardinality": spec.cardinality} for spec in schema.columns],
        "record_nbytes": schema.record_dtype.itemsize,
    }


def table_text(described: Mapping[str, Any]) -> str:
    """Return what `describe_table` has found, for people."""
    columns = described["columns"]
    kinds = Counter(column["kind"] for column in columns)
    counted = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    lines = [f"columns: {len(columns):,} ({counted}), {described['record_nbytes']:,} bytes a row"]
    lines += [_column_text(column) for column in columns[:_SHOWN]]
    if len(columns) > _SHOWN:
        lines.append(f"  ... and {len(columns) - _SHOWN:,} more")
    lines += [
        f"  lossy: {printable(column['name'])}: {printable(loss['what'])}: "
        f"{loss['values']:,} values, the worst by {loss['worst']:.6g}"
        for column in columns
        for loss in column["losses"]
    ]
    return "\n".join(lines)


def _column_text(column: Mapping[str, Any]) -> str:
    name = printable(column["name"])
    name = name if len(name) <= _NAME_WIDTH else name[: _NAME_WIDTH - 3] + "..."
    facts = ["target"] if column["role"] == "target" else []
    layout = column.get("layout", "fixed")
    if layout != "fixed":
        beside = ", beside the record" if layout == "ragged" else ""
        facts.append(f"up to {column['length']:,} values a row{beside}")
    elif column["length"] > 1:
        facts.append(f"{column['length']:,} values a row")
    if column["cardinality"] is not None:
        facts.append(f"{column['cardinality']:,} codes")
    found = column["statistics"]
    if found is not None:
        facts.append(f"{found['missing']:,} missing")
        if found["mean"] is not None:
            least, most, mean = (
                _value_text(column["kind"], found[key]) for key in ("minimum", "maximum", "mean")
            )
            facts.append(f"{least} to {most}, mean {mean}")
    line = f"  {name:<{_NAME_WIDTH}} {column['dtype']:<7} {column['kind']:<11} {', '.join(facts)}"
    return line.rstrip()


def _value_text(kind: str, value: float) -> str:
    # Before year 1 or after 9999: as the number that it is.
    with suppress(OverflowError):
        if kind == "date":
            return (_EPOCH + timedelta(days=round(value))).date().isoformat()
        if kind == "datetime":
            moment = _EPOCH + timedelta(microseconds=round(value))
            return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")
    return f"{value:,}" if type(value) is int else f"{value:.6g}"
