"""Whether the disk has room for a run: before it begins, and when it fills up all the same."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from preprocess.errors import NoSpaceError, OutputError, free_nbytes
from preprocess.report import human_nbytes

_RESERVE: Final = 1_000_000
"""Bytes needed beside the shards, and a hundredth of theirs, for manifests and file tables."""


def check_room(out: Path, nbytes: int) -> None:
    """Refuse to begin what the disk cannot hold.

    Args:
        out: The output folder; the nearest folder above it if it is not there yet.
        nbytes: Bytes of shards to be written, less those to be removed before.

    Raises:
        OutputError: Fewer bytes are free than will be written.
    """
    free, needed = free_nbytes(out), _needed(nbytes)
    if needed > free:
        raise OutputError(
            f"{out}: {human_nbytes(needed)} to be written, "
            f"{human_nbytes(free)} free; make room, use smaller or fewer sizes, or another disk"
        )


@contextmanager
def saying_what_is_wanted(out: Path, wanted: Callable[[], int]) -> Iterator[None]:
    """Let the error of a disk that fills up say how much room is wanted.

    Args:
        out: The folder that is written to.
        wanted: Bytes of shards or other data that are still to be written, about.

    Raises:
        NoSpaceError: With that.
    """
    try:
        yield
    except NoSpaceError as error:
        needed = _needed(wanted())
        left = f"about {needed:,} bytes are still to be written"
        if needed < free_nbytes(out):  # what was begun is gone by now
            left = f"what is left takes more than the {needed:,} bytes that were expected of it"
        raise NoSpaceError(f"{error}; {left}") from error


def _needed(nbytes: int) -> int:
    """Return the bytes that shards of so many take with all that lies beside them."""
    return nbytes + max(0, nbytes) // 100 + _RESERVE
