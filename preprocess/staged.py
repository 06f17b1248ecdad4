"""A dataset that grows: what replaces files of it waits in the work folder for its manifest."""

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from loaders.format.files import (
    MANIFEST,
    WORK,
    make_directory,
    publish,
    sync_directory,
    write_atomically,
)
from loaders.format.spec import Manifest
from preprocess.removal import dataset_files, remove_receipts

_NEXT: Final = "next"

# NOTE [ Staged files ]
# The new manifest is staged first and put in its place first, by one rename: that is the moment in
# which the dataset has grown. So a folder of staged files with a manifest in it belongs to an
# append that did not get so far, and is dropped; one without belongs to one that did, and its files
# are put in their places by whoever comes next.


def replace_files(out: Path, manifest: bytes, files: Mapping[str, bytes | Iterable[bytes]]) -> None:
    """Put a manifest in the place of another, and then the files beside the shards.

    Args:
        out: The dataset's folder, held by this run.
        manifest: The new manifest's bytes.
        files: Path below the dataset -> bytes.

    Raises:
        OSError: The folder cannot take them; the dataset is as it was, or as it is to be.
    """
    put_staged(out)
    staged = out / WORK / _NEXT
    write_atomically(staged / MANIFEST, manifest, work=out / WORK)
    for name, data in files.items():
        write_atomically(staged / name, data, work=out / WORK)
    publish(staged / MANIFEST, out / MANIFEST)
    sync_directory(out)
    sync_directory(staged)
    put_staged(out)


def put_staged(out: Path) -> None:
    """Finish what `replace_files` has begun, or drop it: see NOTE [ Staged files ]."""
    staged = out / WORK / _NEXT
    committed = not (staged / MANIFEST).exists()
    paths = _files(staged)
    for path in paths:
        if committed:
            place = out / path.relative_to(staged)
            make_directory(place.parent)  # not durably after the name that a file has now
            publish(path, place)
            sync_directory(place.parent)
        else:
            if path == staged / MANIFEST:  # not durably before the others
                for folder in {other.parent for other in paths}:
                    sync_directory(folder)
            path.unlink()
    _remove(staged)


def _files(staged: Path) -> list[Path]:
    """Return the staged files, the manifest last: without it the rest would count."""
    paths = [path for path in staged.rglob("*") if not path.is_dir()]
    return sorted(paths, key=lambda path: (path == staged / MANIFEST, path))


def _remove(staged: Path) -> None:
    folders = [path for path in staged.rglob("*") if path.is_dir()]
    for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
        folder.rmdir()
    with contextlib.suppress(FileNotFoundError):
        staged.rmdir()


def beside(out: Path, name: str) -> Path:
    """Return where a file beside the shards is: in its place, or still staged for it."""
    staged = out / WORK / _NEXT
    waits = (staged / name).exists() and not (staged / MANIFEST).exists()
    return staged / name if waits else out / name


def settle(out: Path, manifest: Manifest) -> None:
    """Leave in a held folder what belongs to its dataset, and nothing of a run that was stopped.

    Args:
        out: The dataset's folder.
        manifest: Its manifest.
    """
    put_staged(out)
    remove_receipts(out, keep=frozenset(dataset_files(out, manifest)))
