"""What became of a column, and the parts of it that all kinds share."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from loaders.format.table_schema import ColumnDtype, ColumnSpec, ListLayout, Loss
from preprocess.errors import SourceError
from preprocess.tables.plan import ColumnPlan
from preprocess.tables.text_codes import CodesFile

PADDED_NBYTES: Final = 128
"""Lists whose longest takes no more are filled up in the record: two lines of a cache, which a
gather of whole records reads faster than a list elsewhere."""

CODE_DTYPES: Final[tuple[ColumnDtype, ...]] = ("uint8", "uint16", "int32", "int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedColumn:
    """What became of a column.

    Attributes:
        spec: As the schema keeps it.
        vocabulary: The file that `spec.vocabulary` names; None without one.
        unknown: Values that the vocabulary does not have, in train, validation and test.
        constant: Train has one value alone.
        notes: What the user should know.
        codes: The codes of all texts, where they are known already.
    """

    spec: ColumnSpec
    vocabulary: bytes | None = None
    unknown: tuple[int, ...] = ()
    constant: bool = False
    notes: tuple[str, ...] = ()
    codes: CodesFile | None = None


def make_spec(
    plan: ColumnPlan,
    dtype: ColumnDtype,
    losses: tuple[Loss, ...] = (),
    **own: Any,
) -> ColumnSpec:
    """Return the description of a column whose stored type is known.

    Args:
        plan: What it becomes.
        dtype: Its stored type.
        losses: What was lost on the way.
        own: Attributes that only columns of its kind have.
    """
    if plan.kind in {"text", "left_out"}:
        raise ValueError(f"column {plan.name!r}: {plan.kind} is no part of a record")
    return ColumnSpec(
        name=plan.name,
        kind=plan.kind,  # type: ignore[arg-type] # the kinds of ColumnSpec are left
        role=plan.role,
        dtype=dtype,
        length=plan.length,
        losses=losses,
        holds=plan.holds,
        layout=list_layout(plan, dtype, nullable=own.get("nullable", True)),
        **own,
    )


def list_layout(plan: ColumnPlan, dtype: ColumnDtype, *, nullable: bool) -> ListLayout:
    """Choose where the values of lists are.

    Args:
        plan: Of a column.
        dtype: Of a value.
        nullable: A code is kept for missing values, to fill lists up with.
    """
    if not plan.varies:
        return "fixed"
    short = plan.length * np.dtype(dtype).itemsize <= PADDED_NBYTES
    return "padded" if short and nullable else "ragged"


def narrowest(top: int) -> ColumnDtype:
    """Return the narrowest type of codes from 0 to `top`."""
    return next(dtype for dtype in CODE_DTYPES if top <= np.iinfo(dtype).max)


def code_dtype(plan: ColumnPlan, top: int, what: str) -> ColumnDtype:
    """Return the type of codes up to `top`.

    Raises:
        SourceError: The one that is asked for does not hold them.
    """
    if plan.dtype is None:
        return narrowest(max(top, 0))
    if plan.dtype not in CODE_DTYPES or top > np.iinfo(plan.dtype).max:
        raise SourceError(f"column {plan.name!r}: {plan.dtype} does not hold the codes of {what}")
    return plan.dtype
