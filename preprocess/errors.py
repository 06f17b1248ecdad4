"""Errors of preparation; the whole tree is drawn in `loaders.errors`."""

import errno
import shutil
from pathlib import Path

from loaders.errors import ShardsError
from loaders.format.files import WORK


class SourceError(ShardsError):
    """The input as a whole cannot be prepared."""


class OutputError(ShardsError):
    """The output folder cannot take this run: not empty, another run's, too small or read-only."""


class NoSpaceError(OutputError):
    """The disk is full, or the user's share of it."""


class SampleError(ShardsError):
    """One item cannot become a sample; it is skipped, counted and listed.

    Attributes:
        key: Names the item, as in the dataset's `key` field.
        reason: Why, in one line.
    """

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.key}: {self.reason}"


def output_error(out: Path, error: OSError) -> OutputError:
    """Say what stopped writing and where, and that what is finished is kept."""
    free = f"{free_nbytes(out):,} bytes are free"
    if not out.exists():
        free += "; the folder is not there"
    place = error.filename or out
    begun = any((out / WORK).glob("*.receipt.json"))
    kept = "; finished shards are kept, the same command goes on from there" if begun else ""
    kind = NoSpaceError if error.errno in {errno.ENOSPC, errno.EDQUOT} else OutputError
    return kind(f"{place}: cannot write: {error.strerror or error} ({free}){kept}")


def free_nbytes(out: Path) -> int:
    """Return the bytes that are free where a folder is, or will be."""
    nearest = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    return shutil.disk_usage(nearest).free
