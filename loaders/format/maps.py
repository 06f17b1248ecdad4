"""Files of a dataset in memory: mapped read-only, however many there are."""

import contextlib
import errno
import mmap
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError, MissingShardError, ShardsError

Place = Callable[[int, int], NDArray[np.uint8]]
"""Maps an open file, read-only: (descriptor, bytes) -> [bytes] uint8. Raises OSError."""


def map_file(path: Path, nbytes: int, place: Place | None = None) -> NDArray[np.uint8]:
    """Map a file of known size, read-only.

    Args:
        path: The file.
        nbytes: The size that the manifest promises.
        place: Maps it; anywhere by default.

    Returns:
        [nbytes] uint8, not writable; the map is closed when the last view of it is gone.

    Raises:
        MissingShardError: The file is not there.
        FormatError: It is not a regular file or has another size.
        ShardsError: The process has too many maps, or no addresses left.
    """
    try:
        # Never block on a FIFO that took the file's place.
        descriptor = _open_for_map(path)
    except FileNotFoundError as error:
        raise MissingShardError(
            f"{path}: not found, the manifest names it; copy it again, or prepare the dataset "
            "again with --overwrite"
        ) from error
    except OSError as error:
        raise FormatError(f"{path}: cannot be opened: {error.strerror}") from error
    try:
        found = os.fstat(descriptor).st_size
        if found != nbytes:
            raise FormatError(
                f"{path}: {found} bytes, manifest says {nbytes}; "
                'run "prep check" or prepare it again'
            )
        if nbytes == 0:
            return np.empty(0, np.uint8)
        return (place or _map)(descriptor, nbytes)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise ShardsError(
                f"{path}: no room for another map of {nbytes:,} bytes: raise the number of maps of "
                'a process ("sysctl vm.max_map_count"), where it is limited its addresses '
                '("ulimit -v"), or prepare the dataset with a larger --shard-size'
            ) from error
        raise FormatError(f"{path}: cannot be mapped: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _open_for_map(path: Path) -> int:
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        return os.open(path, flags)
    except OSError as error:
        if error.errno != errno.EMFILE or not _raise_descriptor_limit():
            raise
        return os.open(path, flags)


def _map(descriptor: int, nbytes: int) -> NDArray[np.uint8]:
    # NOTE [ One map, no descriptor ]
    # Python before 3.13 keeps a descriptor for the life of each map, so 1,000 shards of three
    # fields would pass the usual soft limit of 1,024. There the soft limit is raised to the hard
    # one when it is met, as Go's runtime does at start-up.
    if sys.version_info >= (3, 13):
        untracked = mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_READ, trackfd=False)
        return np.frombuffer(untracked, np.uint8)
    try:
        found = mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_READ)
    except OSError as error:
        if error.errno != errno.EMFILE or not _raise_descriptor_limit():
            raise
        found = mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_READ)
    return np.frombuffer(found, np.uint8)


def _raise_descriptor_limit() -> bool:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            return True
    raise ShardsError(
        'too many open files for this dataset; raise the limit ("ulimit -n") or prepare it with a '
        "larger --shard-size"
    )
