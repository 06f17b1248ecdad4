"""Errors of preparation; the whole tree is drawn in `loaders.errors`."""

import os
from pathlib import Path

from loaders.errors import ShardsError
from loaders.format.files import WORK


class SourceError(ShardsError):
    """The input as a whole cannot be prepared."""


class OutputError(ShardsError):
    """The output folder cannot take this run: not empty, another run's, too small or read-only."""


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
    try:
        status = os.statvfs(out)
        free = f"{status.f_bavail * status.f_frsize:,} bytes are free"
    except OSError:
        free = "the folder is not there"
    place = error.filename or out
    begun = any((out / WORK).glob("*.receipt.json"))
    kept = "; finished shards are kept, the same command goes on from there" if begun else ""
    return OutputError(f"{place}: cannot write: {error.strerror or error} ({free}){kept}")
