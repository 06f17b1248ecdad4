"""Lines on stderr while samples are read into memory: one that counts, on a terminal alone."""

import sys
import time
from types import TracebackType
from typing import Final, Self

from loaders.page_cache import Kept
from loaders.views import Gatherable

_EVERY_SECONDS: Final = 0.1
_GIB: Final = 1 << 30


class Progress:
    """Counts bytes read, in place; leaves nothing behind.

    Args:
        dataset: Whose samples.
        total: Bytes there will be.
        quiet: Say nothing, as all ranks but one do.
    """

    def __init__(self, dataset: Gatherable, total: int, *, quiet: bool) -> None:
        self._name = f"{dataset.path}: {dataset.split}"
        self._total = total
        self._quiet = quiet
        self._counting = not quiet and sys.stderr.isatty()
        self._shown = 0.0
        self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._clear()

    def read(self, nbytes: int) -> None:
        """Show how many bytes were read by now."""
        now = time.monotonic()
        if not self._counting or now - self._shown < _EVERY_SECONDS:
            return
        self._shown = now
        line = f"{self._name}: {nbytes / _GIB:.1f} of {self._total / _GIB:.1f} GiB read into memory"
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = len(line)

    def kept(self, kept: Kept) -> None:
        """Say what of the files is not in RAM for good, if anything is not."""
        self._clear()
        found = []
        if kept.nbytes < self._total:
            found.append(
                f"{kept.nbytes:,} of {self._total:,} bytes fit, the rest is read from disk"
            )
        if kept.locked < kept.nbytes:
            found.append(
                f"{kept.nbytes - kept.locked:,} bytes are not locked, as the limit of locked "
                'memory ("ulimit -l") is reached, or the system locks no more pieces: they stay as '
                "long as nobody needs the room"
            )
        if found and not self._quiet:
            sys.stderr.write(f"{self._name}: residency ram: {'; '.join(found)}\n")

    def _clear(self) -> None:
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0
