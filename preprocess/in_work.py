"""Which items are in work: a short note of every thread, which outlives a process that dies.

A note lies in the work folder, a file a thread. It is written for the kernel to keep, not for the
disk: it tells of a process that died, and after a power cut no item is to blame.
"""

import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PREFIX: Final = "in-work-"
_NBYTES: Final = 96
"""Of a note: always as many, so that one write replaces another."""

_PARTS: Final = 6


@dataclass(frozen=True, slots=True)
class Note:
    """What one thread had in work.

    Attributes:
        pid: Its process.
        run: First digits of the run's hash.
        split: Name of the split.
        shard: Number of the shard.
        first: The item in work, among those of the shard.
        count: Items that it may have been, from there on.
        since: Time of `time.monotonic`, of this start of the machine.
    """

    pid: int
    run: str
    split: str
    shard: int
    first: int
    count: int
    since: float


@dataclass(frozen=True, slots=True)
class Notes:
    """Writes the notes of one process.

    Attributes:
        folder: The work folder.
        run_hash: Of the run.
    """

    folder: Path
    run_hash: str
    _own: threading.local = field(default_factory=threading.local)
    _files: dict[Path, int] = field(default_factory=dict)

    def begin(self, split: str, shard: int, first: int, count: int) -> None:
        """Say that this thread begins with an item.

        Raises:
            OSError: The note cannot be written.
        """
        text = f"{self.run_hash[:16]} {split} {shard} {first} {count} {time.monotonic():.3f}"
        self._write(text.encode())

    def end(self) -> None:
        """Say that this thread has nothing in work."""
        self._write(b"")

    def _write(self, text: bytes) -> None:
        descriptor = getattr(self._own, "descriptor", None)
        if descriptor is None:
            path = self.folder / f"{PREFIX}{os.getpid()}-{threading.get_ident()}"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._own.descriptor = self._files[path] = descriptor
        os.pwrite(descriptor, text.ljust(_NBYTES), 0)

    def close(self) -> None:
        """Remove the notes: nothing is in work any more."""
        for path, descriptor in self._files.items():
            os.close(descriptor)
            path.unlink(missing_ok=True)
        self._files.clear()


def read_notes(folder: Path, run_hash: str) -> list[Note]:
    """Return what threads of a run have in work, or had when their process died."""
    found = []
    for path in sorted(folder.glob(f"{PREFIX}*")):
        try:
            parts = path.read_text(encoding="utf-8", errors="replace").split()
            pid = int(path.name.removeprefix(PREFIX).partition("-")[0])
            if len(parts) == _PARTS and parts[0] == run_hash[:16]:
                shard, first, count = map(int, parts[2:5])
                found.append(Note(pid, parts[0], parts[1], shard, first, count, float(parts[5])))
        except (FileNotFoundError, ValueError):
            continue  # its thread has just ended, or it was cut short: then it tells of nothing
    return found


def remove_notes(folder: Path) -> None:
    """Remove all notes, of whatever run."""
    for path in folder.glob(f"{PREFIX}*"):
        path.unlink(missing_ok=True)
