"""Whole numbers as Arrow holds them -> codes, in one pass over the narrow."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
    import pyarrow.compute as pc

    if not pa.types.is_integer(array.type) or not len(array):
        return None
    bounds = pc.min_max(array)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and not first <= low <= high <= last:
        return None
    stored = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
    # Modulo the width of the codes, in which they are exact.
    codes = stored[array.offset : array.offset + len(array)].astype(f"u{dtype.itemsize}")
    codes += codes.dtype.type((1 - first) % (1 << (8 * dtype.itemsize)))
    if array.null_count:
        np.putmask(codes, np.asarray(array.is_null()), 0)  # whatever is stored in their place
    return codes.view(dtype)


def taken(
    array: "pa.DictionaryArray", chosen: slice | NDArray[np.int64], codes: NDArray[Any]
) -> NDArray[Any]:
    """Take the codes of a column of text: by Arrow, without the interpreter's lock.

    Args:
        array: Texts, each different one once.
        chosen: Which rows, in which order.
        codes: [k] of these texts.

    Returns:
        The code of each chosen row, 0 for a missing one.
    """
    import pyarrow as pa

    indices = array.indices
    if isinstance(chosen, slice):
        start, stop, _ = chosen.indices(len(indices))
        indices = indices.slice(start, stop - start)
    else:
        indices = indices.take(pa.array(chosen))
    found = pa.array(codes).take(indices)
    shown: NDArray[Any] = (found.fill_null(0) if found.null_count else found).to_numpy()
    return shown
