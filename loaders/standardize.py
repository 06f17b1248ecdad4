"""Numeric columns of a table become standardized floats on the device, as part of the model."""

from collections.abc import Sequence
from typing import Final, Literal, Protocol, Self, get_args

import numpy as np
import torch
from torch import Tensor

from loaders.errors import NormalizeError, SelectionError
from loaders.exact_buffers import ExactModule
from loaders.format.table_schema import TableSchema
from loaders.table_numbers import SMALLEST_STD, Numeric, centered, moments

Missing = Literal["mean", "zero", "indicator"]

_FLOAT32: Final = np.dtype(np.float32)


class HasColumns(Protocol):
    """A table that knows its numeric columns."""

    @property
    def schema(self) -> TableSchema:
        """All columns."""

    @property
    def numeric(self) -> Numeric:
        """How numbers are shown."""

    @property
    def numeric_names(self) -> Sequence[str]:
        """Columns of "numeric", in its order."""


class Standardize(ExactModule):
    """`(value - mean) / std` for each numeric column, with something in place of missing values.

    Mean and deviation are those of the training rows. They are kept as a float32 `center`, `scale`
    and `rest`, saved with the model, and stay float32 when the model is cast (`model.half()`); such
    a cast chooses the output's dtype instead. The rest is what float32 lacks of the mean, so that
    columns far from zero come out as if it had been subtracted exactly.

    Args:
        mean: Of each column.
        std: Standard deviation of each column; 0, or below what float32 can hold, divides by 1.
        missing: What stands for NaN: "mean" is 0 in the output; "zero" is what a value of 0 becomes
            there; "indicator" is the mean, and a column of 0 and 1 is appended for each of
            `indicated`, where 1 is missing.
        indicated: Positions of the columns with an indicator.
        dtype: The output's dtype, whatever happens to the model. None: float32, or what the module
            was last cast to.

    Raises:
        NormalizeError: The statistics are no finite numbers or not one of each a column, or dtype
            is not a float.
        SelectionError: `missing` is none of these, or a position is no column.
    """

    exact = ("center", "scale", "rest")
    center: Tensor  # [Cn] float32, the mean
    scale: Tensor  # [Cn] float32, 1 / std
    rest: Tensor  # [Cn] float32, (center - mean) / std
    indicated: Tensor  # [Ci] int64, columns with an indicator

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        *,
        missing: Missing = "mean",
        indicated: Sequence[int] = (),
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(dtype)
        if missing not in get_args(Missing):
            raise SelectionError(f"missing={missing!r}: expected one of {get_args(Missing)}")
        if len(mean) != len(std) or not len(mean):
            raise NormalizeError(
                f"{len(mean)} means and {len(std)} standard deviations; expected one of each a "
                "column, and at least one column"
            )
        wrong = [place for place in indicated if not 0 <= place < len(mean)]
        if wrong or (indicated and missing != "indicator"):
            raise SelectionError(
                f"indicated={list(indicated)}: expected columns below {len(mean)}, and with "
                'missing="indicator" alone'
            )
        found = [_constants(place, *pair) for place, pair in enumerate(zip(mean, std, strict=True))]
        for name, values in zip(self.exact, zip(*found, strict=True), strict=True):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32))
        self.register_buffer("indicated", torch.tensor([*indicated], dtype=torch.int64))
        self.missing: Missing = missing

    @classmethod
    def for_table(
        cls,
        dataset: HasColumns,
        *,
        missing: Missing = "mean",
        dtype: torch.dtype | None = None,
    ) -> Self:
        """Take the statistics of training rows from a table.

        Args:
            dataset: What `open_table` returns, with numeric="values".
            missing: As in the constructor; indicators are those of the columns with missing values
                in the training rows.
            dtype: As in the constructor.

        Raises:
            SelectionError: It has no numeric columns, or they are standardized already.
            NormalizeError: A mean is beyond what float32 can hold.
        """
        if dataset.numeric != "values":
            raise SelectionError(
                'its batches are standardized already: open it with numeric="values", or leave '
                "Standardize out"
            )
        specs = [dataset.schema.column(name) for name in dataset.numeric_names]
        if not specs:
            raise SelectionError("it has no numeric columns, so there is nothing to standardize")
        found = [moments(spec) for spec in specs]
        lossy = [s.statistics is not None and s.statistics.missing > 0 for s in specs]
        places = [place for place, lacks in enumerate(lossy) if lacks]
        return cls(
            [mean for mean, _ in found],
            [std for _, std in found],
            missing=missing,
            indicated=places if missing == "indicator" else (),
            dtype=dtype,
        )

    @property
    def out_features(self) -> int:
        """Columns of the output."""
        return len(self.center) + len(self.indicated)

    def forward(self, numeric: Tensor) -> Tensor:
        """Standardize a batch.

        Args:
            numeric: [..., Cn] float32 or float64 values on the module's device, NaN where missing.

        Returns:
            [..., out_features] in `output_dtype`, without NaN: Cn columns, then the indicators.

        Raises:
            NormalizeError: They are neither, or not as many columns as there are statistics.
        """
        if numeric.dtype not in {torch.float32, torch.float64}:
            raise NormalizeError(
                f"numeric is {numeric.dtype}, expected float32 values as batches of open_table "
                "hold them: codes would be taken for numbers, and narrower floats have lost what "
                "is standardized here"
            )
        if not numeric.dim() or numeric.shape[-1] != self.center.shape[0]:
            raise NormalizeError(
                f"numeric has shape {list(numeric.shape)}, expected [..., Cn] with Cn = "
                f"{self.center.shape[0]}, the number of columns of the statistics"
            )
        lost = torch.isnan(numeric)
        values = numeric.masked_fill(lost, 0.0) if self.missing == "zero" else numeric
        shown = torch.addcmul(self.rest, (values - self.center).to(torch.float32), self.scale)
        if self.missing != "zero":
            shown = shown.masked_fill(lost, 0.0)
        shown = shown.to(self.output_dtype)
        if self.missing != "indicator":
            return shown
        flags = lost.index_select(-1, self.indicated).to(self.output_dtype)
        return torch.cat([shown, flags], dim=-1)

    def extra_repr(self) -> str:
        """What goes in and out, for `print(model)`."""
        return (
            f"columns={self.center.shape[0]}, missing={self.missing!r}, "
            f"out_features={self.out_features}, dtype={self.output_dtype}"
        )


def _constants(place: int, mean: float, std: float) -> tuple[float, float, float]:
    deviation = std if std >= SMALLEST_STD else 1.0
    if not (np.isfinite(mean) and np.isfinite(std) and std >= 0):
        raise NormalizeError(
            f"column {place}: mean {mean} and standard deviation {std}, expected finite numbers, "
            "the deviation not negative"
        )
    found = centered(mean, deviation, _FLOAT32)
    if not np.isfinite(found).all():
        raise NormalizeError(
            f"column {place}: mean {mean} is beyond float32: open the table with "
            'numeric="standardized"'
        )
    return found
