"""Lists of several lengths: how many values each has, and where these are.

How many is a part of the record, a number with an offset like any other: 0 is a missing list, 1 an
empty one, n + 1 one of n values. Short lists have their values in the record too, filled up; those
of others are a ragged field beside it.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from loaders.format.fields import FieldSpec
from loaders.format.records import MAX_NAME, RECORD_DTYPES, RecordPart
from loaders.format.table_column import ColumnSpec

LIST_ROLE: Final = "list"

_LENGTH: Final = "_length"

MOST_VALUES: Final = (1 << 31) - 2
"""Values of a list."""


def length_dtype(spec: ColumnSpec) -> str:
    """Return the dtype of the number of values: of ragged lists, new ones may be longer."""
    if spec.layout == "ragged":
        return "int32"
    fitting = [d for d in reversed(RECORD_DTYPES) if not d.startswith("float")]
    return next(dtype for dtype in fitting if spec.length + 1 <= np.iinfo(dtype).max)


def length_names(columns: Sequence[ColumnSpec]) -> dict[str, str]:
    """Return the name of the part that says how many values each list has, by column.

    It is that of the column with `_length` behind it, and underscores where others are called so.
    """
    taken = {spec.name for spec in columns}
    found = {}
    for spec in columns:
        if spec.layout != "fixed":
            name = spec.name[: MAX_NAME - len(_LENGTH)] + _LENGTH
            while name in taken:
                name = (name if len(name) < MAX_NAME else name[1:]) + "_"
            taken.add(name)
            found[spec.name] = name
    return found


def parts_of(spec: ColumnSpec, lengths: dict[str, str]) -> list[RecordPart]:
    """Return what a record holds of a column; `lengths` are those of `length_names`."""
    parts: list[RecordPart] = []
    if spec.layout != "ragged":
        parts.append((spec.name, spec.dtype, spec.length))
    if spec.layout != "fixed":
        parts.append((lengths[spec.name], length_dtype(spec), 1))
    return parts


def list_fields(columns: Sequence[ColumnSpec]) -> dict[str, FieldSpec]:
    """Return the ragged fields beside the record, by column: named by its place in the schema."""
    return {
        spec.name: FieldSpec(
            name=f"list_{place:04d}", dtype=spec.dtype, shape=(), role="list", ragged=True
        )
        for place, spec in enumerate(columns)
        if spec.layout == "ragged"
    }
