"""The codes of the texts in the blocks of a column, in a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from loaders.format.files import write_all

if TYPE_CHECKING:
    import pyarrow as pa

MISSING: Final = 0
UNKNOWN: Final = 1
FIRST: Final = 2
"""Codes of a feature: of missing values, of those that the vocabulary does not have, and of the
first that it has."""

_TOGETHER: Final = 1 << 20
"""Codes that are taken at a time."""


@dataclass(frozen=True, slots=True)
class CodesFile:
    """Where the codes of one column's texts are.

    Attributes:
        path: File of int32: block by block, the code of each text, then of a missing one.
        starts: [blocks + 1] where each block's codes begin in it.
    """

    path: Path
    starts: NDArray[np.int64]


def codes_path(folder: Path, place: int) -> Path:
    """Return the file of the codes of the column that is at a place of the schema."""
    return folder / f"{place:04d}.codes"


def write_codes(
    numbers: IO[bytes], codes: NDArray[np.int32], folder: Path, place: int
) -> CodesFile:
    """Turn the numbers of texts into their codes.

    Args:
        numbers: As `TextTally` writes them: for every block those of its texts, then -1.
        codes: Of every text, and as the last one of a missing value.
        folder: Where the file goes.
        place: Of the column in the schema.

    Raises:
        OSError: The folder cannot take it.
    """
    path = codes_path(folder, place)
    numbers.seek(0)
    ends = [np.zeros(1, np.int64)]
    count = 0
    with path.open("wb", buffering=0) as file:
        while data := numbers.read(4 * _TOGETHER):
            found = np.frombuffer(data, "<i4")
            ends.append(count + np.flatnonzero(found < 0) + 1)
            count += len(found)
            write_all(file.fileno(), codes[found].astype("<i4", copy=False).data)
    return CodesFile(path, np.concatenate(ends))


def is_coded_text(array: "pa.Array") -> bool:
    """Whether an array is a dictionary of text, as blocks hold text."""
    import pyarrow as pa

    kind = array.type
    return bool(pa.types.is_dictionary(kind) and pa.types.is_large_string(kind.value_type))
