"""Files for others to read, whole or absent: temporary names until all of it is on the disk."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from loaders.format.files import publish, sync_directory, write_all
from preprocess.errors import OutputError, output_error


class WholeFile:
    """One file being written under a temporary name; on the disk when it is left well."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with reported(path.parent):
            self._file = path.open("wb", buffering=0)

    def write(self, data: NDArray[Any] | bytes) -> None:
        """Write at the end."""
        view = data if isinstance(data, bytes) else data.view(np.uint8).data
        with reported(self._path.parent):
            write_all(self._file.fileno(), view)

    def write_at(self, position: int, data: bytes) -> None:
        """Replace bytes that were written; nothing is written after this."""
        with reported(self._path.parent):
            os.lseek(self._file.fileno(), position, os.SEEK_SET)
            write_all(self._file.fileno(), data)

    def read_at(self, position: int, nbytes: int) -> NDArray[np.uint8]:
        """Read back bytes that were written."""
        with reported(self._path.parent), self._path.open("rb") as file:
            file.seek(position)
            return np.frombuffer(file.read(nbytes), np.uint8)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with reported(self._path.parent), self._file:
            if exc_type is None:
                os.fsync(self._file.fileno())


@contextmanager
def reported(folder: Path) -> Iterator[None]:
    """Say what stopped writing as the rest of preparation says it."""
    try:
        yield
    except OSError as error:
        raise output_error(folder, error) from error


@contextmanager
def published(*paths: Path) -> Iterator[tuple[Path, ...]]:
    """Give temporary names of one folder; what lies there gets its own when all went well.

    What is there is never replaced: of two files that belong together, a stop between two
    replacements would leave the new one beside the old one.
    """
    for path in paths:
        if os.path.lexists(path):
            raise OutputError(f"{path}: already there; remove it or export to another name")
    parent = paths[0].parent
    temporary = tuple(parent / f"tmp-{os.getpid()}-{path.name}" for path in paths)
    made = [folder for folder in paths[0].parents if not folder.exists()]
    done: list[Path] = []
    try:
        with reported(parent):
            parent.mkdir(parents=True, exist_ok=True)
            for path in temporary:
                _remove(path)  # of a process of the same number that was killed
        yield temporary
        with reported(parent):
            for source, path in zip(temporary, paths, strict=True):
                publish(source, path)
                done.append(path)
            for folder in (parent, *(folder.parent for folder in made)):
                sync_directory(folder)
    except BaseException:
        for path in (*temporary, *done):
            _remove(path)
        raise


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
