"""The hidden folder beside the output folder, in which a table lies between its steps.

What is in it can be made again from the source: it saves the work of a run that was stopped, and
is removed with the end of the run. It holds nothing that anybody reads but the run itself.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from preprocess.errors import OutputError, SourceError, output_error
from preprocess.fatal import FATAL
from preprocess.in_work import PREFIX
from preprocess.locks import try_lock

_LOCK: Final = "lock"

SPILL: Final = "spill.json"
"""Written when all blocks are there; what it says is checked before they are used again."""

_OURS: Final = re.compile(
    rf"lock|tmp-.*|spill\.json|{re.escape(FATAL)}|{PREFIX}.*"
    r"|[0-9]{8}\.(arrow|skipped)|[0-9]{4,8}\.codes"
    r"|(train|validation|test)\.[0-9]{4}|(train|validation|test)\.list_[0-9]+\.[0-9]{5,8}"
)
"""Names that a run gives: what it goes on without and what is in work, blocks, lists of records
that are left out, codes, windows, and the lists that the rows of these have beside their records.
"""


def work_folder(out: Path) -> Path:
    """Return where the table of a run to `out` lies between its steps."""
    absolute = Path(os.path.abspath(out))  # without ".." at its end, whose name would be no name
    return absolute.parent / f".{absolute.name}.table"


@dataclass(frozen=True, slots=True)
class Work:
    """The right to write into such a folder, held by a lock that ends with the process.

    Attributes:
        folder: The folder.
        descriptor: Of the locked file.
        is_temporary: A dry run's own.
    """

    folder: Path
    descriptor: int
    is_temporary: bool = False

    def clear(self, kept: tuple[str, ...] = ()) -> None:
        """Remove what an earlier run left here; the lock stays.

        Args:
            kept: How the names of other files begin that stay.

        Raises:
            OutputError: A file cannot be removed.
        """
        try:
            for path in self.folder.iterdir():
                if _OURS.fullmatch(path.name) and not path.name.startswith((_LOCK, *kept)):
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise output_error(self.folder, error) from error

    def try_clear(self, kept: tuple[str, ...] = ()) -> str | None:
        """Remove what is left here; return what could not be removed, as a note."""
        try:
            self.clear(kept)
        except OutputError as error:
            return f"left behind, and not needed: {error}"
        return None

    def release(self, *, finished: bool) -> str | None:
        """Give the folder back; remove it if nothing in it is worth keeping.

        Returns:
            What could not be removed, as a note.
        """
        left = None
        try:
            # Blocks are of use once all of them are there.
            if finished or not (self.folder / SPILL).exists():
                left = self.try_clear(() if finished else (FATAL, PREFIX))
                (self.folder / _LOCK).unlink(missing_ok=True)
                self.folder.rmdir()
        except OSError:
            return left  # files of others stay
        finally:
            os.close(self.descriptor)
        return left


def claim_work(folder: Path) -> Work:
    """Take a folder for a run; what an earlier run left there stays.

    Raises:
        OutputError: Another run has it, it holds files of others, or it cannot be written.
    """
    try:
        if folder.is_symlink():  # what it points to may be anybody's
            raise OutputError(f"{folder}: a link, where a table lies between its steps; move it")
        folder.mkdir(parents=True, exist_ok=True)
        foreign = sorted(name for name in os.listdir(folder) if not _OURS.fullmatch(name))
        if foreign:
            raise OutputError(
                f"{folder}: holds {foreign[0]!r}, which prep did not write; a table lies there "
                "between its steps: move that file"
            )
        return Work(folder, _lock(folder))
    except OSError as error:
        raise output_error(folder, error) from error


def _lock(folder: Path) -> int:
    """Lock the folder."""
    descriptor = try_lock(folder / _LOCK)
    if descriptor is None:
        raise OutputError(f"{folder}: another prep run is at work here; wait for it to end")
    return descriptor


@contextmanager
def hold_work(out: Path, *, dry_run: bool) -> Iterator[Work]:
    """Hold the folder of a run to `out`; what is worth keeping stays if the run is stopped.

    Args:
        out: The output folder.
        dry_run: Hold a folder of another name, of which nothing stays.

    Raises:
        OutputError: The folder cannot be had.
    """
    if dry_run:
        near = next(folder for folder in work_folder(out).parents if folder.is_dir())
        try:
            folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.table-", dir=near))
        except OSError as error:
            raise output_error(near, error) from error
        try:
            yield Work(folder, -1, is_temporary=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    work = claim_work(work_folder(out))
    finished = True
    try:
        yield work
    except SourceError:
        raise  # other options are needed, or another source
    except BaseException:
        finished = False
        raise
    finally:
        work.release(finished=finished)


def remove_work(folder: Path) -> str | None:
    """Remove what a stopped run has left of the folder, once its dataset is complete."""
    if not folder.is_dir():
        return None
    try:
        return claim_work(folder).release(finished=True)
    except OutputError as error:
        return f"left behind, and not needed: {error}"
