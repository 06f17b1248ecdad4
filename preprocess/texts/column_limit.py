"""How many columns a table may have: beyond that, what a parser holds for each of them adds up."""

from typing import Final

from loaders.format.records import MAX_PARTS
from preprocess.errors import SampleError

MAX_COLUMNS: Final = MAX_PARTS
"""As many as a record of a dataset may have. CSV with 65,536 columns and 30 rows took 1 GiB and 71
s of processor time, with 20,000 columns and 100 rows 0.5 GiB and 19 s."""

COLUMNS_REMEDY: Final = (
    f"a table may have {MAX_COLUMNS:,}; leave out what is not needed, or write many values of one "
    "kind as one list"
)


def check_column_count(count: int, key: str) -> None:
    """Refuse a file, which `key` names, of so many columns.

    Raises:
        SampleError: They are more than a table may have.
    """
    if count > MAX_COLUMNS:
        raise SampleError(key, f"{count:,} columns, and {COLUMNS_REMEDY}")
