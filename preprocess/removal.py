"""What prep wrote to an output folder, by its manifest or its receipts, and how that is removed."""

import contextlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from loaders.errors import FormatError, MissingShardError
from loaders.format.containers import CONTAINERS
from loaders.format.files import (
    ITEMS,
    MANIFEST,
    REPORT,
    SKIPPED,
    WORK,
    publish,
    read_json,
    sync_directory,
)
from loaders.format.promised import promised_files
from loaders.format.spec import Manifest, read_manifest
from loaders.format.strict import Place
from preprocess.errors import OutputError
from preprocess.receipt import parse_receipt

RUN: Final = "run.json"
TEMPORARY: Final = "tmp-"
REMOVED: Final = "removed-manifest.json"
"""The manifest of a dataset that is being removed: it names what is left of it."""

ASKED_FOR: Final = "asked_for"
"""Key of what a run that has begun was asked for: see `preprocess.asked_for`."""


def is_begun(out: Path) -> bool:
    """Return whether there is anything of prep's in the folder that the work folder tells of."""
    return (out / WORK / REMOVED).exists() or bool(_receipts(out))


def _receipts(out: Path) -> list[Path]:
    """Return the receipts in the work folder."""
    found = (out / WORK).glob("*.receipt.json")
    return sorted(path for path in found if not path.name.startswith(TEMPORARY))


def read_run_hash(out: Path) -> str | None:
    """Return which run is unfinished in the folder; None if it ended before it began."""
    try:
        return str(read_begun(out)["run_hash"])
    except MissingShardError:
        return None


def read_begun(out: Path) -> dict[str, Any]:
    """Read what an unfinished run is, and which files beside its shards it may have written.

    Raises:
        MissingShardError: There is none.
        FormatError: What tells of it is damaged.
    """
    path = out / WORK / RUN
    place = Place(str(path))
    known = place.partial_mapping(read_json(path), {"run_hash", "files", ASKED_FOR})
    # Earlier versions of prep did not note what a run was asked for.
    entry = place.mapping(known, {"run_hash", "files"} | ({ASKED_FOR} & known.keys()))
    place.at("run_hash").text(entry["run_hash"])
    for name in place.at("files").sequence(entry["files"]):
        text = place.at("files").text(name)
        place.at("files").expect(
            ".." not in Path(text).parts and not Path(text).is_absolute(), text, "a path inside"
        )
    return entry


def read_known_manifest(out: Path) -> Manifest:
    """Read the manifest in the output folder; one that cannot be read is never overwritten."""
    try:
        return read_manifest(out)
    except FormatError as error:
        raise OutputError(
            f"{out}: holds a {MANIFEST} that cannot be read, so which files prep wrote is not "
            f"known ({error}); give another folder, or empty this one yourself"
        ) from error


def remove_dataset(out: Path) -> None:
    """Remove what prep wrote, manifest first; files of others stay."""
    removed = out / WORK / REMOVED
    if (out / MANIFEST).exists():
        _check_inside(out, dataset_files(out, read_known_manifest(out)))
        # Out of sight, and kept until all that it names is gone: stopped half-way, the next run
        # goes on with the removal.
        publish(out / MANIFEST, removed)
        sync_directory(out / WORK)
        sync_directory(out)
    # What is known of these files goes last: stopped before that, the next run goes on.
    paths = [out / SKIPPED, *([out / REPORT, out / ITEMS] if is_begun(out) else [])]
    with contextlib.suppress(MissingShardError):
        paths += [out / name for name in read_begun(out)["files"]]
    if removed.exists():
        manifest = Manifest.from_json(read_json(removed), str(removed))
        paths += dataset_files(out, manifest)
    _remove_files(out, paths)
    remove_receipts(out)
    removed.unlink(missing_ok=True)


def remove_receipts(out: Path, keep: Collection[Path] = ()) -> None:
    """Remove the shards that receipts tell of, but those to be kept, and then the receipts."""
    receipts = _receipts(out)
    paths = [out / name for receipt in receipts for name in _receipt_files(receipt)]
    _remove_files(out, [path for path in paths if path not in keep])
    for receipt in receipts:
        receipt.unlink()


def _remove_files(out: Path, paths: Sequence[Path]) -> None:
    """Remove files, and the folders that are empty then, durably."""
    _check_inside(out, paths)
    for path in paths:
        path.unlink(missing_ok=True)
    _remove_empty_folders(out, paths)
    folders = dict.fromkeys(folder for path in paths for folder in path.parents)
    for folder in folders:
        if (folder == out or out in folder.parents) and folder.is_dir():
            sync_directory(folder)


def _check_inside(out: Path, paths: Sequence[Path]) -> None:
    """Refuse to remove what a stranger's manifest or receipt names behind a link."""
    real = out.resolve()
    for folder in {path.parent for path in paths}:
        if not folder.resolve().is_relative_to(real):
            raise OutputError(
                f"{folder}: leads out of {out} by a link, and files in it would be removed; remove "
                "the link yourself"
            )


def dataset_files(out: Path, manifest: Manifest) -> list[Path]:
    """Return every file that the manifest stands for, apart from itself."""
    described = CONTAINERS[manifest.container].group_files(manifest)
    promised = [file.path for file in promised_files(out, manifest)]
    return [*promised, *(out / name for name in described)]


def _receipt_files(receipt: Path) -> list[str]:
    names = [str(path) for path, _, _ in parse_receipt(receipt).files.values()]
    for name in names:
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise FormatError(f"{receipt}: names {name!r} outside the dataset; remove the receipt")
    return names


def _remove_empty_folders(out: Path, paths: Iterable[Path]) -> None:
    folders = {folder for path in paths for folder in path.parents if out in folder.parents}
    for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
