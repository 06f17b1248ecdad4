"""What the lists of a column hold: of a block one after the other, or as rows of one length."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from preprocess.tables.columns import is_text, list_counts
from preprocess.tables.options import TableOptions
from preprocess.tables.values import Numbers, numbers_of

if TYPE_CHECKING:
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


def items_of(
    array: "pa.Array", options: TableOptions, *, whole: bool, unsigned: bool = False, name: str
) -> Numbers:
    """Convert what the lists of a column hold to numbers, [m], as `list_items` has them.

    Args:
        array: As a `Block` holds it.
        options: How numbers are written as text.
        whole: Whole numbers, or float64.
        unsigned: Whole numbers become uint64, not int64.
        name: Names the column in errors.

    Raises:
        SourceError: A number is beyond the type, or none.
    """
    kind = "integer" if whole else "float"
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
    lists = np.asarray(array.is_valid())
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
