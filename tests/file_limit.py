"""No file may pass a size, as on a full disk, and Python's own compiled modules are left alone.

Python keeps a module that it compiles without looking at how many bytes were written, so that a
process under such a limit would leave a module cut short to every later one.
"""

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def limit_files(nbytes: int) -> None:
    """Cut short the write that would pass a size, and fail the next; in child processes too.

    Args:
        nbytes: The size (RLIMIT_FSIZE).
    """
    sys.dont_write_bytecode = True
    # Worker processes inherit all three.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # noqa: TID251 - a setting of Python's
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, resource.RLIM_INFINITY))


@contextmanager
def limited_files(nbytes: int) -> Iterator[None]:
    """Do so for the length of a block, in this process alone."""
    allowed, kept = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, allowed[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
        sys.dont_write_bytecode = kept
