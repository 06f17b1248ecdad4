"""How stored numbers become float32: a few steps of arithmetic, with constants worked out exactly.

# NOTE [ What float32 can hold ]
A value is `(code - 1 + offset) * 10**exponent`. As "values" the steps give the float32 next to it,
so integers above 2**24, decimals and times lose what float32 cannot hold. As "standardized" the
mean is taken off first, among the codes and exactly, since codes are integers; what is rounded then
is the distance from the mean, and a column of times or ids loses nothing that training could see.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from loaders.format.table_schema import ColumnSpec

Numeric = Literal["values", "standardized"]

SMALLEST_STD: Final = float(np.finfo(np.float32).tiny)
"""The smallest normal float32: a column that varies less is taken for a constant."""

_EXACT_BITS: Final = 24
"""Integers up to 2**24 are exact in float32."""

_EXACT_POWER: Final = 10
"""10**10 is the largest power of ten that is exact in float32."""

_INT64: Final = 1 << 63


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One operation on all columns of a group, in the dtype of its constants.

    Attributes:
        operation: "add", "multiply" or "divide".
        constants: [columns], of the dtype that the values are cast to first.
    """

    operation: Literal["add", "multiply", "divide"]
    constants: NDArray[Any]


def value_steps(specs: Sequence[ColumnSpec]) -> tuple[Step, ...]:
    """Return the steps from stored numbers of one dtype to values; a cast to float32 follows.

    Args:
        specs: Columns of the same dtype, alike in `all_bits`.
    """
    dtype = specs[0].dtype
    if dtype.startswith("float"):
        return ()
    if specs[0].all_bits is not None:
        return (*_sums(specs), *_units(specs, np.float64))
    bases = [spec.base for spec in specs]
    exponents = [spec.exponent for spec in specs]
    largest = max(map(abs, bases)) + np.iinfo(dtype).max
    small = largest <= 1 << _EXACT_BITS and max(map(abs, exponents)) <= _EXACT_POWER
    floats = np.float32 if small else np.float64
    before = [_inside(base) if dtype == "int64" else 0 for base in bases]
    after = [0 if inside else base for inside, base in zip(before, bases, strict=True)]
    steps = (
        Step("add", np.array(before, np.int64)),
        Step("add", np.array(after, floats)),
        *_units(specs, floats),
    )
    return tuple(step for step in steps if _does_something(step))


def _sums(specs: Sequence[ColumnSpec]) -> tuple[Step, ...]:
    """Return the step that adds codes of all 64 bits and their bases, modulo 2**64."""
    bases = np.array([spec.base % (2 * _INT64) for spec in specs], np.uint64).view(np.int64)
    # Also where all are 0: the sums may be without a sign.
    return (Step("add", bases),) if bases.any() or specs[0].all_bits == "uint64" else ()


def _units(specs: Sequence[ColumnSpec], dtype: type[np.floating[Any]]) -> tuple[Step, ...]:
    """Return the steps that multiply with the power of ten of each column."""
    exponents = [spec.exponent for spec in specs]
    steps = (
        Step("multiply", np.array([float(f"1e{max(e, 0)}") for e in exponents], dtype)),
        Step("divide", np.array([float(f"1e{max(-e, 0)}") for e in exponents], dtype)),
    )
    return tuple(step for step in steps if _does_something(step))


def _inside(base: int) -> int:
    """Return what is added to int64 codes as an integer: what is negative, which stays in 64 bits.

    The lowest, -2**63 - 1, wraps around, and back with any code of a value.
    """
    if not -_INT64 - 1 <= base < 0:
        return 0
    return (base + _INT64) % (2 * _INT64) - _INT64


def _does_something(step: Step) -> bool:
    neutral = 0 if step.operation == "add" else 1
    return bool((step.constants != neutral).any())


def standard_steps(specs: Sequence[ColumnSpec]) -> tuple[Step, ...]:
    """Return the steps from stored numbers of one dtype to (value - mean) / std.

    Args:
        specs: Columns of the same dtype, with statistics.
    """
    dtype = specs[0].dtype
    if dtype.startswith("float"):
        return _standard_floats(specs, np.dtype(dtype))
    if specs[0].all_bits is not None:
        return _standard_sums(specs)
    exact = np.dtype(np.float32 if dtype in {"uint8", "uint16"} else dtype)
    centers, scales, rests = [], [], []
    for spec in specs:
        mean, std = moments(spec)
        unit = Fraction(10) ** spec.exponent
        center = Fraction(mean) / unit - spec.base  # the mean among the codes
        whole = min(max(round(center), 0), np.iinfo(dtype).max)
        scale = unit / Fraction(std)
        centers.append(-whole)
        scales.append(_float(scale))
        rests.append(_float((whole - center) * scale))
    return (
        Step("add", np.array(centers, exact)),
        Step("multiply", np.array(scales, np.float32)),
        Step("add", np.array(rests, np.float32)),
    )


def _standard_sums(specs: Sequence[ColumnSpec]) -> tuple[Step, ...]:
    """Return these steps for codes of all 64 bits.

    A difference may be beyond int64. Its range makes a float64 of it exact enough: among n rows the
    deviation is at least 2**62 / sqrt(n), and the error at most 2**11.
    """
    units = [Fraction(10) ** spec.exponent for spec in specs]
    found = [moments(spec) for spec in specs]
    centers = [_float(Fraction(mean) / unit) for (mean, _), unit in zip(found, units, strict=True)]
    scales = [_float(unit / Fraction(std)) for (_, std), unit in zip(found, units, strict=True)]
    return (
        *_sums(specs),
        Step("add", -np.array(centers)),
        Step("multiply", np.array(scales, np.float32)),
    )


def _standard_floats(specs: Sequence[ColumnSpec], dtype: np.dtype[Any]) -> tuple[Step, ...]:
    found = [centered(*moments(spec), dtype) for spec in specs]
    centers, scales, rests = (np.array(part, dtype) for part in zip(*found, strict=True))
    return Step("add", -centers), Step("multiply", scales), Step("add", rests)


def centered(mean: float, std: float, dtype: np.dtype[Any]) -> tuple[float, float, float]:
    """Return center, scale and rest with (value - mean) / std = (value - center) * scale + rest.

    Args:
        mean: Of the values.
        std: Above 0.
        dtype: The center is the number next to the mean that it can hold; the rest makes up for it.
    """
    with np.errstate(over="ignore"):
        center = float(dtype.type(mean))
    if not np.isfinite(center):
        return center, 1 / std, 0.0
    return center, 1 / std, _float((Fraction(center) - Fraction(mean)) / Fraction(std))


def moments(spec: ColumnSpec) -> tuple[float, float]:
    """Return mean and standard deviation that a column is standardized with.

    Returns:
        0 and 1 where there are no values; 1 for the deviation of a constant.
    """
    found = spec.statistics
    if found is None or found.mean is None or found.std is None:
        return 0.0, 1.0
    return found.mean, found.std if found.std >= SMALLEST_STD else 1.0


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
