"""Columns of structs -> a column for each field in them, called `struct.field`, however deep."""

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from preprocess.tables.block import NULL, Evidence
from preprocess.texts.records import listed

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN: Final = 60
"""Letters of a value that a message shows."""


@dataclasses.dataclass(slots=True)
class ObjectsOfBlocks:
    """Which columns of a file of JSON are objects in some of its blocks, and what in others.

    Each block by itself would be well, and where one ends would decide what a value becomes.
    """

    structs: set[str] = dataclasses.field(default_factory=set)
    others: dict[str, Evidence] = dataclasses.field(default_factory=dict)

    def fault_of(self, evidence: Mapping[str, Evidence]) -> str | None:
        """Take the next block; say which column is both, if any is."""
        above = {name[:end] for name in evidence for end, at in enumerate(name) if at == "."}
        valued = {name: each for name, each in evidence.items() if each.kinds != NULL}
        self.structs |= above - set(valued)
        self.others |= {name: each for name, each in valued.items() if name not in above}
        both = sorted(self.structs & set(self.others))
        if not both:
            return None
        value, place = self.others[both[0]].not_kind.get("float", ("other values", ""))
        return (
            f"column {both[0]!r} holds objects, and {value[:_SHOWN]!r}"
            f"{' at ' if place else ''}{place}; mend it, or leave it out with --ignore {both[0]}"
        )


def is_struct(kind: "pa.DataType") -> bool:
    """Whether a column of a type is several columns; one of a struct without fields is none."""
    import pyarrow as pa

    return bool(pa.types.is_struct(kind) and kind.num_fields)


def leaves(name: str, kind: "pa.DataType", unread: Collection[str]) -> "dict[str, pa.DataType]":
    """Return the columns that a column of a type becomes, and their types.

    Args:
        name: Of the column.
        kind: Its type.
        unread: Names of columns, or of structs, that are left as they are.
    """
    if not is_struct(kind) or name in unread:
        return {name: kind}
    found: dict[str, pa.DataType] = {}
    for index in range(kind.num_fields):
        field = kind.field(index)
        found |= leaves(f"{name}.{field.name}", field.type, unread)
    return found


def flattened(table: "pa.Table", unread: Collection[str]) -> "pa.Table":
    """Return a table whose structs are columns; a row without a struct has none of its fields."""
    import pyarrow as pa

    while any(is_struct(field.type) and field.name not in unread for field in table.schema):
        parts: list[tuple[str, Any]] = []
        for field in table.schema:
            column = table.column(field.name)
            if is_struct(field.type) and field.name not in unread:
                names = [f"{field.name}.{inner.name}" for inner in field.type]
                parts += zip(names, column.flatten(), strict=True)
            else:
                parts.append((field.name, column))
        # Names are unique: `fault_of_structs` has been asked.
        table = pa.table([column for _, column in parts], names=[name for name, _ in parts])
    return table


def fault_of_structs(schema: "pa.Schema", unread: Collection[str]) -> str | None:
    """Say which columns would have the same name once structs are flattened."""
    counts = Counter(name for field in schema for name in leaves(field.name, field.type, unread))
    twice = [name for name, count in counts.items() if count > 1]
    if not twice:
        return None
    return (
        f"several columns are named {listed(twice)} once structs are columns; rename one, or leave "
        "the struct out with --ignore"
    )


def flat_record(record: Mapping[str, Any], structs: Collection[str], name: str = "") -> Any:
    """Return the members of an object of JSON, those of objects in it under names with a dot.

    Args:
        record: The object.
        structs: Names of the members, as they are returned, that are objects in all records.
        name: What stands before the names.

    Raises:
        KeyError: Two members have the same name then; it is its argument.
    """
    found: dict[str, Any] = {}
    for key, value in record.items():
        inner = f"{name}{key}"
        parts = {inner: value}
        if inner in structs:
            parts = flat_record(value or {}, structs, f"{inner}.")
        for each in parts:
            if each in found:
                raise KeyError(each)
        found |= parts
    return found


def structs_of(records: Sequence[Mapping[str, Any]], unread: Collection[str]) -> set[str]:
    """Return the names of members that are objects wherever they have a value, however deep."""
    found: set[str] = set()
    level = {"": [*records]}
    while level:
        deeper: dict[str, list[Mapping[str, Any]]] = {}
        for stem, objects in level.items():
            for key in dict.fromkeys(key for each in objects for key in each):
                values = [each[key] for each in objects if each.get(key) is not None]
                name = f"{stem}{key}"
                if not values or name in unread or not all(isinstance(v, dict) for v in values):
                    continue
                if any(values):  # not all of them without members
                    found.add(name)
                    deeper[f"{name}."] = values
        level = deeper
    return found
