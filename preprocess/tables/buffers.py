"""What Arrow's arrays of numbers hold in memory, as NumPy shows it: nothing is looked at by row."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


def stored_numbers(array: "pa.Array") -> NDArray[Any]:
    """Return the numbers of an array as they lie in memory: a view, read-only.

    Args:
        array: Of whole numbers or floats; what lies in the places of missing ones is any number.
    """
    if not len(array):  # which may have no memory
        return np.empty(0, array.type.to_pandas_dtype())
    numbers = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
    return numbers[array.offset : array.offset + len(array)]


def validity(array: "pa.Array") -> NDArray[np.bool_]:
    """Return which values of an array are not missing, [n] bool."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    bits = array.buffers()[0]
    if bits is None:  # of an array that holds nothing
        return np.asarray(array.is_valid())
    # Ten times as fast as Arrow's own booleans, which become bytes one by one.
    first, count = divmod(array.offset, 8)
    nbytes = -(-(count + len(array)) // 8)
    found = np.unpackbits(np.frombuffer(bits, np.uint8, nbytes, first), bitorder="little")
    return found[count : count + len(array)].view(np.bool_)


def filled(numbers: NDArray[Any], valid: NDArray[np.bool_], number: int) -> NDArray[Any]:
    """Return whole numbers with another one in the places of missing ones.

    Args:
        numbers: [n] of any type of whole numbers.
        valid: [n] which of them are not missing.
        number: What is put in the places of the others.
    """
    # Without a branch for each: which are missing, no processor guesses.
    fill = numbers.dtype.type(number)
    found: NDArray[Any] = numbers ^ fill
    found *= valid.view(np.int8 if numbers.dtype.kind == "i" else np.uint8)
    found ^= fill
    return found


def narrowest(kind: "pa.DataType", bounds: tuple[int, int]) -> "pa.DataType":
    """Return the narrowest signed type that holds these bounds, if it is narrower than a type."""
    import pyarrow as pa

    low, high = bounds
    for narrow in (pa.int8(), pa.int16(), pa.int32()):
        top = 1 << (narrow.bit_width - 1)
        if narrow.bit_width < kind.bit_width and -top <= low and high < top:
            return narrow
    return kind


def narrowed(array: "pa.Array", bounds: tuple[int, int]) -> "pa.Array":
    """Return whole numbers in the narrowest signed type that holds them, if it is narrower.

    Args:
        array: The numbers.
        bounds: The smallest and the largest that is not missing; in the places of missing ones the
            smallest is stored.
    """
    import pyarrow as pa

    kind = narrowest(array.type, bounds)
    numbers = stored_numbers(array).astype(kind.to_pandas_dtype())
    bits = None
    if array.null_count:
        valid = validity(array)
        numbers = filled(numbers, valid, bounds[0])
        bits = array.buffers()[0] if not array.offset else None
        bits = bits or pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [bits, pa.py_buffer(numbers)]
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count)


def whole_range(array: "pa.Array") -> tuple[int, int] | None:
    """Return the smallest and the largest of whole numbers; None where all are missing."""
    if array.null_count == len(array):
        return None
    numbers = stored_numbers(array)
    if array.null_count:
        valid = validity(array)
        numbers = filled(numbers, valid, numbers[np.argmax(valid)])
    return int(numbers.min()), int(numbers.max())
