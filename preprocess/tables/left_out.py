"""The records of a table that are no rows: listed in files, block by block, however many."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

from loaders.format.files import crc32c_digits, write_all
from preprocess.errors import SampleError
from preprocess.skipped import (
    Listed,
    as_pairs,
    listed_together,
    read_skipped_lines,
    skipped_lines,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpilledErrors:
    """The records of a block that are no rows, in a file like `skipped.jsonl`.

    Attributes:
        path: The file.
        count: Records.
        nbytes: Size of the file.
        crc32c: Of the whole file.
    """

    path: Path
    count: int
    nbytes: int
    crc32c: str


LeftOut = SpilledErrors | SampleError
"""Records of a block, or a whole file."""


def write_errors(errors: Sequence[SampleError], path: Path) -> SpilledErrors | None:
    """List records that are no rows in a file; None where there are none.

    Raises:
        OSError: The file could not be written.
    """
    if not errors:
        return None
    data = b"".join(skipped_lines(as_pairs(errors)))
    with path.open("wb", buffering=0) as file:
        # Not made durable: a checksum tells whether the file is whole when it is used again.
        write_all(file.fileno(), data)
    digits = crc32c_digits(data)
    return SpilledErrors(path=path, count=len(errors), nbytes=len(data), crc32c=digits)


def errors_of(left_out: Sequence[LeftOut]) -> Sequence[SampleError]:
    """Return one error for each record and file, read as they are asked for."""
    return listed_together([_listed(part) for part in left_out])


def _listed(part: LeftOut) -> Sequence[SampleError]:
    if isinstance(part, SampleError):
        return (part,)
    return Listed(part.count, lambda: starmap(SampleError, read_skipped_lines(part.path)))


def left_out_json(part: LeftOut) -> list[Any]:
    """Return the JSON form."""
    if isinstance(part, SampleError):
        return [part.key, part.reason]
    return [part.path.name, part.count, part.nbytes, part.crc32c]


def left_out_of(folder: Path, entry: list[Any]) -> LeftOut:
    """Parse the JSON form; files lie in the folder."""
    if len(entry) == 2:
        return SampleError(*entry)
    name, count, nbytes, crc32c = entry
    return SpilledErrors(path=folder / name, count=count, nbytes=nbytes, crc32c=crc32c)
