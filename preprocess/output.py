"""The output folder: whose it is, whether there is room, and what may be removed from it."""

import contextlib
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from loaders.format.containers import CONTAINERS
from loaders.format.files import (
    ITEMS,
    MANIFEST,
    REPORT,
    SKIPPED,
    WORK,
    make_directory,
    write_atomically,
)
from loaders.format.promised import promised_files, size_error
from loaders.format.spec import Manifest
from preprocess.asked_for import note_begun
from preprocess.described import group_names, refuse_collisions
from preprocess.differences import difference, difference_begun
from preprocess.errors import OutputError, output_error
from preprocess.in_work import remove_notes
from preprocess.locks import try_lock
from preprocess.plan import Plan
from preprocess.removal import (
    REMOVED,
    TEMPORARY,
    is_begun,
    read_known_manifest,
    read_run_hash,
    remove_dataset,
)
from preprocess.skipped import read_skipped_lines
from preprocess.staged import put_staged, settle
from preprocess.task import OWNER

_LOCK: Final = "lock"


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to write into one output folder, held by a lock that ends with the process.

    Attributes:
        out: The folder.
        owner: Names this claim; a worker that outlives its run finds another name, and stops.
        made: Whether the folder was made for it.
        descriptor: Of the locked file.
    """

    out: Path
    owner: str
    made: bool
    descriptor: int

    def release(self, *, finished: bool) -> None:
        """Give the folder back; a run that finished, or never began, leaves no work folder."""
        try:
            if finished or not is_begun(self.out):
                shutil.rmtree(self.out / WORK, ignore_errors=True)
                if self.made and not finished and not any(self.out.iterdir()):
                    self.out.rmdir()
            else:
                _clear_temporary(self.out)
                remove_notes(self.out / WORK)  # this process ends in order: no item is to blame
        except OSError:
            return  # the folder vanished or cannot be written; the error in flight says so
        finally:
            os.close(self.descriptor)


def check_paths(source: Path, out: Path) -> None:
    """Refuse an output folder inside the source, around it, or the same.

    Raises:
        OutputError: The folders overlap.
    """
    real_source, real_out = (Path(os.path.realpath(folder)) for folder in (source, out))
    if real_out == real_source:
        raise OutputError(f"{out}: is the source {source}; give a folder outside it")
    if real_source in real_out.parents:
        raise OutputError(f"{out}: lies inside the source {source}; give a folder outside it")
    if real_out in real_source.parents:
        raise OutputError(f"{out}: holds the source {source}; give a folder of its own")


def find_complete(plan: Plan, *, overwrite: bool) -> Manifest | None:
    """Look at the output folder, touching nothing.

    Returns:
        The manifest if this very run is complete there, None if it can be started or taken up.

    Raises:
        OutputError: The folder holds something else, and is not to be overwritten.
    """
    out = plan.out
    if plan.before is not None:
        _expect_before(plan, plan.before.manifest)
        return None
    if os.path.lexists(out) and not out.is_dir():
        raise OutputError(f"{out}: not a folder; give a new or empty one")
    try:
        names = sorted(os.listdir(out)) if out.exists() else []
    except OSError as error:
        raise OutputError(f"{out}: cannot be listed: {error.strerror}") from error
    if MANIFEST in names:
        manifest = read_known_manifest(out)
        return None if overwrite else _same_dataset(plan, manifest)
    if WORK in names and (overwrite or read_run_hash(out) in {None, plan.run_hash}):
        return None
    if WORK in names:
        raise OutputError(
            f"{out}: holds an unfinished run {difference_begun(plan)}; finish that one, give "
            "another folder, or --overwrite to start again"
        )
    foreign = [name for name in names if name != SKIPPED]  # a run without any sample leaves that
    if foreign and not overwrite:
        raise OutputError(
            f"{out}: not empty (holds {foreign[0]!r}); give a new or empty folder, or --overwrite, "
            "which removes only what prep wrote"
        )
    return None


def is_complete(plan: Plan) -> bool:
    """Return whether this very run is complete in the output folder."""
    if plan.before is not None or not (plan.out / MANIFEST).is_file():
        return False
    return difference(plan, read_known_manifest(plan.out)) is None


def _expect_before(plan: Plan, manifest: Manifest) -> None:
    """Refuse to append to another dataset than that of the plan, or to one that is damaged."""
    if read_known_manifest(plan.out) != manifest:
        raise OutputError(f"{plan.out}: another run has just finished here; give the command again")
    _expect_files(plan.out, manifest)
    if manifest.skipped:  # what it lists is wanted at the end: say now that it cannot be read
        for _ in read_skipped_lines(plan.out / SKIPPED):
            pass


def _same_dataset(plan: Plan, manifest: Manifest) -> Manifest:
    if (other := difference(plan, manifest)) is not None:
        remedy = "give another folder, or --overwrite to prepare it again"
        raise OutputError(f"{plan.out}: {other}; {remedy}")
    _expect_files(plan.out, manifest)
    return manifest


def _expect_files(out: Path, manifest: Manifest) -> None:
    for file in promised_files(out, manifest):
        if (error := size_error(file)) is not None:
            raise OutputError(f"{error}; or --overwrite, which prepares the dataset again")


def claim(plan: Plan, *, overwrite: bool) -> Claim:
    """Take the output folder for this run; remove what was to be overwritten.

    Raises:
        OutputError: Another run is writing there, or the folder cannot be written.
    """
    work = plan.out / WORK
    made = not plan.out.exists()
    owner = uuid.uuid4().hex
    try:
        make_directory(work)
        held = Claim(plan.out, owner, made, _lock(work))
    except OSError as error:
        raise output_error(plan.out, error) from error
    try:
        write_atomically(work / OWNER, owner.encode())
        _begin(plan, overwrite=overwrite)
        _clear_temporary(plan.out)
    except OSError as error:
        held.release(finished=False)
        raise output_error(plan.out, error) from error
    except BaseException:
        held.release(finished=False)
        raise
    return held


def hold(out: Path) -> Claim:
    """Take the folder of a finished dataset; nothing is left there of a run that was stopped.

    Raises:
        OutputError: Another run is writing there, or the folder cannot be written.
    """
    try:
        (out / WORK).mkdir(exist_ok=True)
        held = Claim(out, owner="", made=False, descriptor=_lock(out / WORK))
    except OSError as error:
        raise output_error(out, error) from error
    try:
        settle(out, read_known_manifest(out))
    except BaseException as error:
        os.close(held.descriptor)  # and nothing else: what waits there may belong to the dataset
        if isinstance(error, OSError):
            raise output_error(out, error) from error
        raise
    return held


def _begin(plan: Plan, *, overwrite: bool) -> None:
    """Make the locked folder ready for the plan's shards; what is of this very run stays."""
    out = plan.out
    put_staged(out)
    if plan.before is not None:
        _begin_append(plan, plan.before.manifest)
        return
    replaced = (out / MANIFEST).exists()
    if replaced and not overwrite:
        raise OutputError(f"{out}: another run has just finished here; give the command again")
    unfinished_removal = (out / WORK / REMOVED).exists()
    if read_run_hash(out) == plan.run_hash and not (replaced or unfinished_removal):
        return
    if overwrite or unfinished_removal:
        remove_dataset(out)
    described = group_names(plan)
    refuse_collisions(plan, [REPORT, ITEMS, *described])
    note_begun(plan, described)


def _begin_append(plan: Plan, manifest: Manifest) -> None:
    """Make the locked folder of a dataset ready for further shards."""
    _expect_before(plan, manifest)
    if read_run_hash(plan.out) == plan.run_hash:
        return
    settle(plan.out, manifest)
    described = set(group_names(plan)) - CONTAINERS[manifest.container].group_files(manifest).keys()
    refuse_collisions(plan, sorted(described - manifest.extras.keys()))
    note_begun(plan, [])


def clear_finished(out: Path) -> None:
    """Remove the work folder of a run that was stopped between its manifest and its end."""
    # Whoever holds the lock removes it; on read-only storage it stays, and harms nobody.
    with contextlib.suppress(OSError, OutputError):
        if (out / WORK).exists():
            hold(out).release(finished=True)


def _lock(work: Path) -> int:
    """Lock the work folder."""
    descriptor = try_lock(work / _LOCK)
    if descriptor is None:
        raise OutputError(f"{work.parent}: another prep run is writing here; wait for it to end")
    return descriptor


def _clear_temporary(out: Path) -> None:
    for path in (out / WORK).glob(f"{TEMPORARY}*"):
        path.unlink(missing_ok=True)


def replaced_nbytes(plan: Plan) -> int:
    """Return the bytes of a dataset in the output folder that an overwriting run removes first."""
    if not (plan.out / MANIFEST).exists():
        return 0
    splits = read_known_manifest(plan.out).splits.values()
    return sum(sum(files.nbytes) for split in splits for files in split.files.values())
