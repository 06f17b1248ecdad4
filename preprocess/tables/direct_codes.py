"""Whole numbers as Arrow holds them -> codes, in one pass over the narrow."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from preprocess.tables.buffers import stored_numbers, validity, whole_range

if TYPE_CHECKING:
    import pyarrow as pa


def shifted(array: "pa.Array", first: int, last: int, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return whole numbers as codes from 1 on, 0 for missing ones, in one pass over the narrow.

    Args:
        array: A column of a block.
        first: The number with code 1.
        last: The largest that has a code of the type.
        dtype: Of the codes.

    Returns:
        [n] codes; None where this is not the way, or a number has no code.
    """
    import pyarrow as pa

    if not pa.types.is_integer(array.type) or not len(array):
        return None
    stored = stored_numbers(array)
    # Most blocks have one of their numbers in the places of missing ones.
    if not first <= int(stored.min()) <= int(stored.max()) <= last:
        bounds = whole_range(array)
        if bounds is not None and not first <= bounds[0] <= bounds[1] <= last:
            return None
    # Modulo the width of the codes, in which they are exact.
    codes = stored.astype(f"u{dtype.itemsize}")
    codes += codes.dtype.type((1 - first) % (1 << (8 * dtype.itemsize)))
    if array.null_count:
        codes *= validity(array).view(np.uint8)  # whatever is stored in their place
    return codes.view(dtype)


def taken(
    array: "pa.DictionaryArray", chosen: slice | NDArray[np.int64], codes: NDArray[Any]
) -> NDArray[Any]:
    """Take the codes of a column of text.

    Args:
        array: Texts, each different one once.
        chosen: Which rows, in which order.
        codes: [k] of these texts.

    Returns:
        The code of each chosen row, 0 for a missing one.
    """
    indices = array.indices
    places = stored_numbers(indices)[chosen].astype(np.intp)
    if not len(codes):
        return np.zeros(len(places), codes.dtype)
    found = codes.take(places, mode="clip")  # what is stored for missing ones may be any place
    if indices.null_count:
        found *= validity(indices)[chosen]
    return found
