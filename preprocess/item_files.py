"""The files of items, opened so that nothing in their place can block or pass for them."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Final

from preprocess.errors import SampleError, SourceError
from preprocess.items import Item
from preprocess.sources import kind_of_file

_NOT_THE_FILE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE})
"""Errors of the machine; a file that meets one is not to be left out for it."""


@contextmanager
def open_item(root: Path, item: Item) -> Iterator[FileIO]:
    """Open the file of an item; what goes wrong with reading it inside is named as well.

    Raises:
        SampleError: It cannot be read, is no regular file any more, or was written to since it was
            listed, also while it was open.
        SourceError: The machine is short of descriptors or memory, or lost the file system: no
            fault of the file, and no reason to leave it out.
    """
    path = os.path.join(root, item.key)
    try:
        # A FIFO in its place would block for ever without O_NONBLOCK.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                kind = kind_of_file(status.st_mode)
                raise SampleError(item.key, f"not a regular file but a {kind}")
            _check_unchanged(item, status)
            yield file
            if not file.closed:  # by whoever has read it
                _check_unchanged(item, os.fstat(descriptor))
    except OSError as error:
        if error.errno in _NOT_THE_FILE:
            raise SourceError(
                f"{path}: cannot be read: {error.strerror}; finished shards are kept, the same "
                "command goes on from there"
            ) from error
        raise SampleError(item.key, f"cannot be read: {error.strerror or error}") from error


def read_item(root: Path, item: Item, max_nbytes: int | None = None) -> bytes:
    """Read the whole file of an item.

    Raises:
        SampleError: As `open_item`; or it has more than `max_nbytes`, and is not read.
        SourceError: As `open_item`.
    """
    check_nbytes(item, max_nbytes)
    with open_item(root, item) as file:
        data = file.read(item.nbytes + 1)  # and no more, if it grows meanwhile
        while len(data) <= item.nbytes and (more := file.read(item.nbytes + 1 - len(data))):
            data += more  # one call reads 2 GiB at most
    _check_size(item, len(data))
    return data


def check_nbytes(item: Item, max_nbytes: int | None) -> None:
    """Refuse a file that is larger than files may be, before it is read.

    Raises:
        SampleError: It has more than `max_nbytes`.
    """
    if (error := too_large(item, max_nbytes)) is not None:
        raise error


def too_large(item: Item, max_nbytes: int | None) -> SampleError | None:
    """Return the error of a file that is larger than files may be, by its size when listed."""
    if max_nbytes is None or item.nbytes <= max_nbytes:
        return None
    reason = f"{item.nbytes:,} bytes, files may have {max_nbytes:,}; raise --max-item-bytes"
    return SampleError(item.key, reason)


def is_unchanged(item: Item, status: os.stat_result) -> bool:
    """Return whether a file is as it was when it was listed, by its size and time of change."""
    return (status.st_size, status.st_mtime_ns) == (item.nbytes, item.mtime_ns)


def _check_unchanged(item: Item, status: os.stat_result) -> None:
    _check_size(item, status.st_size)
    if status.st_mtime_ns != item.mtime_ns:
        reason = "changed while it was prepared: it was written to since it was listed"
        raise SampleError(item.key, reason)


def _check_size(item: Item, nbytes: int) -> None:
    if nbytes != item.nbytes:
        reason = f"changed while it was prepared: {nbytes} bytes, listed with {item.nbytes}"
        raise SampleError(item.key, reason)
