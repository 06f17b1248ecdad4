"""Locks that end with the process that holds them."""

import fcntl
import os
from pathlib import Path


def try_lock(path: Path) -> int | None:
    """Lock a file, which is made if it is not there; the kernel frees it when its owner dies.

    Returns:
        A descriptor that holds the lock; None while another process, or another part of this one,
        does.

    Raises:
        OSError: The file cannot be opened or locked.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The owner before may have finished and removed the file between the two calls.
        same = path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino
    except BlockingIOError:
        same = False
    except BaseException:
        os.close(descriptor)
        raise
    if not same:
        os.close(descriptor)
    return descriptor if same else None
