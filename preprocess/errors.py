"""Errors of preparation; the whole tree is drawn in `loaders.errors`."""

import contextlib
import errno
import os
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
    if not os.path.lexists(out):
        free += "; the folder is not there"
    place = error.filename or out
    begun = any((out / WORK).glob("*.receipt.json"))
    kept = "; finished shards are kept, the same command goes on from there" if begun else ""
    kind = NoSpaceError if error.errno in {errno.ENOSPC, errno.EDQUOT} else OutputError
    return kind(f"{place}: cannot write: {error.strerror or error} ({free}){kept}")


def free_nbytes(out: Path) -> int:
    """Return the bytes that are free where a folder is, or will be.

    Raises:
        OutputError: Neither it nor a folder above it is there.
    """
    for folder in (out, *out.parents):  # a relative one, too: those above it may be closed to us
        with contextlib.suppress(OSError):
            return shutil.disk_usage(folder).free
    raise OutputError(f"{out}: neither it nor a folder above it is there")
