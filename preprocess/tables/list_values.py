"""What the lists of a column hold: of a block one after the other, or as rows of one length."""

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.table_column import ColumnKind
from loaders.format.table_schema import ColumnSpec
from preprocess.errors import SourceError
from preprocess.tables.buffers import validity
from preprocess.tables.columns import is_text, list_counts
from preprocess.tables.options import TableOptions
from preprocess.tables.values import Numbers, numbers_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa


def list_items(array: "pa.Array") -> "pa.Array":
    """Return what the lists of a column hold, one after the other: numbers or large_string.

    Args:
        array: Lists as a `Block` holds them; missing ones hold nothing.
    """
    import pyarrow as pa

    if pa.types.is_null(array.type):
        return pa.nulls(0)
    # flatten() leaves out missing lists, and what lies outside a slice.
    items = array.flatten()
    return items.cast(pa.large_string()) if is_text(items.type) else items


def kind_of_items(array: "pa.Array") -> ColumnKind | None:
    """Return what the lists of a column hold, texts as "categorical"; None where it is nothing."""
    import pyarrow as pa

    types = pa.types
    held = None if types.is_null(array.type) else array.type.value_type
    if held is None or types.is_null(held):
        return None
    tests: dict[ColumnKind, Callable[[pa.DataType], bool]] = {
        "categorical": is_text,
        "boolean": types.is_boolean,
        "date": types.is_date,
        "datetime": types.is_timestamp,
        "integer": types.is_integer,
    }
    return next((kind for kind, is_kind in tests.items() if is_kind(held)), "float")


def check_items(array: "pa.Array", spec: ColumnSpec, where: str) -> None:
    """Refuse lists of other values than a column has, where numbers would be made of them.

    Raises:
        SourceError: It names the column and both kinds.
    """
    found = kind_of_items(array)
    own: set[ColumnKind | None] = {spec.holds} if spec.holds else {"integer", "float"}
    if found is not None and spec.item.kind != "categorical" and found not in own:
        said = f"{where}: column {spec.name!r}: holds lists of {ITEM_WORDS[found]}"
        raise SourceError(f"{said}, and lists of {ITEM_WORDS[spec.item.kind]} are stored")


ITEM_WORDS: Final[dict[ColumnKind, str]] = {
    "categorical": "texts",
    "boolean": "truth values",
    "date": "dates",
    "datetime": "times",
    "integer": "numbers",
    "float": "numbers",
}


def items_of(
    array: "pa.Array",
    options: TableOptions,
    *,
    kind: ColumnKind,
    unsigned: bool = False,
    name: str,
) -> Numbers:
    """Convert what the lists of a column hold to numbers, [m], as `list_items` has them.

    Args:
        array: As a `Block` holds it.
        options: How numbers are written as text.
        kind: As for `numbers_of`.
        unsigned: Whole numbers become uint64, not int64.
        name: Names the column in errors.

    Raises:
        SourceError: A number is beyond the type, or none.
    """
    return numbers_of(list_items(array), kind, options, name=name, unsigned=unsigned)


def vectors_of(
    items: Numbers, array: "pa.Array", length: int, *, whole: bool, unsigned: bool = False
) -> Numbers:
    """Return the numbers of lists of one length as rows; a missing list is missing throughout.

    Args:
        items: What the lists hold, from `items_of`.
        array: The lists.
        length: Values of each.
        whole: Whole numbers, or float64.
        unsigned: Whole numbers are uint64, not int64.

    Returns:
        Values and valid of shape [n, length].
    """
    lists = validity(array)
    shape = (len(array), length)
    values = np.full(shape, np.array(0, np.uint64 if unsigned else np.int64) if whole else np.nan)
    valid = np.zeros(shape, np.bool_)
    if len(items.values):
        values[lists] = items.values.reshape(-1, length)
        valid[lists] = items.valid.reshape(-1, length)
    return Numbers(values, valid)


def rows_with(marked: NDArray[np.bool_], array: "pa.Array", *, varies: bool) -> NDArray[np.bool_]:
    """Return which rows of a column have a marked value, [n] bool: of lists, any of theirs.

    Args:
        marked: [n], of lists of one length [n, length], of others [m] as `list_items` has them.
        array: The column.
        varies: It holds lists of several lengths.
    """
    if not varies:
        return np.asarray(marked.reshape(len(marked), -1).any(axis=1))
    found = np.zeros(len(array), np.bool_)
    found[np.repeat(np.arange(len(array)), list_counts(array))[marked]] = True
    return found
