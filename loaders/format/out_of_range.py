"""What becomes of new numbers outside of the range that a column of a table stores."""

from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from loaders.format.table_column import ColumnSpec

OutOfRange = Literal["refuse", "clip", "missing"]

FLOAT32_RANGE: Final = (-float(np.finfo(np.float32).max), float(np.finfo(np.float32).max))

OUT_OF_RANGE: Final[tuple[OutOfRange, ...]] = get_args(OutOfRange)


def is_outside(
    values: NDArray[Any], valid: NDArray[np.bool_], spec: ColumnSpec
) -> NDArray[np.bool_]:
    """Mark the numbers that are there and have no code.

    Args:
        values: [...] int64 or uint64.
        valid: [...] bool; False for missing ones.
        spec: Of whole numbers.
    """
    low, high = spec.bounds
    marked: NDArray[np.bool_] = (values < low) | (values > high)
    if spec.unused is not None:
        marked |= values == spec.unused
    return marked & valid


def clip_or_drop(
    values: NDArray[Any],
    valid: NDArray[np.bool_],
    spec: ColumnSpec,
    how: Literal["clip", "missing"],
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return numbers of which those outside became the nearest one inside, or missing ones.

    Args:
        values: [...] int64 or uint64.
        valid: [...] bool.
        spec: Of whole numbers.
        how: Which of both.
    """
    if how == "missing":
        return values, valid & ~is_outside(values, valid, spec)
    limits, (low, high) = np.iinfo(values.dtype), spec.bounds
    found = np.clip(values, max(low, limits.min), min(high, limits.max))
    if (unused := spec.unused) is not None:
        found[found == unused] = unused - 1 if unused > low else unused + 1
    return found, valid


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
