"""What becomes of new numbers outside of the range that a column of a table stores."""

from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

OutOfRange = Literal["refuse", "clip", "missing"]

FLOAT32_RANGE: Final = (-float(np.finfo(np.float32).max), float(np.finfo(np.float32).max))

OUT_OF_RANGE: Final[tuple[OutOfRange, ...]] = get_args(OutOfRange)


def is_outside(
    values: NDArray[Any], valid: NDArray[np.bool_], bounds: tuple[int, int]
) -> NDArray[np.bool_]:
    """Mark the numbers that are there and have no code.

    Args:
        values: [...] int64 or uint64.
        valid: [...] bool; False for missing ones.
        bounds: The smallest and the largest number with a code.
    """
    low, high = bounds
    marked: NDArray[np.bool_] = ((values < low) | (values > high)) & valid
    return marked


def clip_or_drop(
    values: NDArray[Any],
    valid: NDArray[np.bool_],
    bounds: tuple[int, int],
    how: Literal["clip", "missing"],
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return numbers of which those outside became the nearest one inside, or missing ones.

    Args:
        values: [...] int64 or uint64.
        valid: [...] bool.
        bounds: The smallest and the largest number with a code.
        how: Which of both.
    """
    if how == "missing":
        return values, valid & ~is_outside(values, valid, bounds)
    limits = np.iinfo(values.dtype)
    return np.clip(values, max(bounds[0], limits.min), min(bounds[1], limits.max)), valid


def narrow_floats(
    values: NDArray[np.float64], how: OutOfRange
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Round to float32.

    Args:
        values: [...] float64.
        how: What becomes of finite numbers that float32 cannot hold; refused ones are infinite.

    Returns:
        [...] float32, and [...] bool, True for those.
    """
    with np.errstate(over="ignore"):
        found = values.astype(np.float32)
    beyond: NDArray[np.bool_] = np.isinf(found) & np.isfinite(values)
    if how != "refuse" and beyond.any():
        largest = np.finfo(np.float32).max if how == "clip" else np.nan
        found[beyond] = np.copysign(np.float32(largest), values[beyond])
    return found, beyond
