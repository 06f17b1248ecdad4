"""Numbers with decimal places that are written as text: which columns are whole numbers of units.

Only CSV and JSON write numbers: a float of Parquet or of a data frame is a float.
"""

from dataclasses import replace

import numpy as np

from preprocess.tables.block import Evidence
from preprocess.tables.decimals import range_in_units
from preprocess.tables.fitted_column import CODE_DTYPES, narrowest
from preprocess.tables.plan import ColumnPlan, with_range


def in_units(plan: ColumnPlan, evidence: Evidence) -> ColumnPlan | None:
    """Plan written numbers as decimals; None where some are no decimals of up to 15 digits.

    Args:
        plan: Of a column that is not of Arrow's decimals.
        evidence: Of all its values.
    """
    places, low, high = evidence.exponent, evidence.minimum, evidence.maximum
    if "float" not in evidence.kinds or places is None or low is None or high is None:
        return None
    ends = range_in_units(low, high, places)
    if ends is None:
        return None
    # Rows without a target are left out.
    missing = evidence.missing > 0 and plan.role != "target"
    found = replace(plan, kind="decimal", exponent=-places)
    return with_range(found, *ends, missing=missing)


def is_narrower(plan: ColumnPlan, evidence: Evidence) -> bool:
    """Whether written numbers are fewer bytes as decimals than as floats, or asked for as codes."""
    if plan.float32 or plan.dtype in {"float32", "float64"}:
        return False
    found = in_units(plan, evidence)
    if found is None or found.low is None or found.high is None:
        return False
    size = np.dtype(narrowest(found.high - found.low + 1)).itemsize
    as_float = np.dtype("float32" if evidence.float32_exact else "float64").itemsize
    return size < as_float or plan.dtype in CODE_DTYPES
