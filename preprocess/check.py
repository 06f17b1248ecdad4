"""`prep check`: a dataset against its manifest."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loaders.errors import FormatError, MissingShardError, ShardsError
from loaders.format.containers import CONTAINERS
from loaders.format.files import (
    ITEMS,
    MANIFEST,
    REPORT,
    SKIPPED,
    WORK,
    checksum,
    expect_inside,
)
from loaders.format.promised import REMEDY, PromisedFile, promised_files, size_error
from loaders.format.spec import SPLITS, Manifest, read_manifest
from loaders.format.table_schema import TABLE_SCHEMA, read_table_schema
from preprocess.receipt import parse_receipt

_OWN: Final = frozenset({MANIFEST, REPORT, SKIPPED, ITEMS})

_SHARD: Final = re.compile(rf"({'|'.join(SPLITS)})/([0-9]+\.[a-z0-9_]+\.npy|[a-z0-9_/]+/c/[0-9/]+)")
"""Places of shards in a folder, of either container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What a check found.

    Attributes:
        path: The dataset's folder.
        files: Files that were looked at.
        nbytes: Bytes that the manifest promises in them.
        shard_nbytes: Those in shards, which a run reports; the others are in files beside them,
            as a tokenizer.
        full: Whether checksums were compared.
        problems: One line a bad file: which, what came, what was expected, what to do.
        foreign: Files in the folder that are not part of the dataset.
        bad: The bad files that the manifest promises, or that describe the shards.
    """

    path: Path
    files: int
    nbytes: int
    shard_nbytes: int
    full: bool
    problems: tuple[str, ...]
    foreign: tuple[str, ...]
    bad: tuple[PromisedFile, ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "path": str(self.path),
            "files": self.files,
            "nbytes": self.nbytes,
            "shard_nbytes": self.shard_nbytes,
            "full": self.full,
            "problems": list(self.problems),
            "foreign": list(self.foreign),
        }


def check_dataset(
    path: Path | str, *, full: bool = False, workers: int | None = None
) -> CheckReport:
    """Compare every file of a dataset with its manifest.

    Args:
        path: The dataset's folder.
        full: Compare checksums too, which reads every byte; otherwise presence and size.
        workers: Files read at a time; None for one per usable core.

    Raises:
        IncompleteError: There is no finished dataset.
        FormatError: The manifest itself is damaged.
    """
    from joblib import Parallel, cpu_count, delayed, parallel_config

    root = Path(path)
    manifest = read_manifest(root)
    promised = list(promised_files(root, manifest))
    described = CONTAINERS[manifest.container].group_files(manifest)
    with parallel_config(backend="threading", n_jobs=workers or cpu_count()):
        found = Parallel()(delayed(_check_file)(root, file, full=full) for file in promised)
    results = dict(zip(promised, found, strict=True))
    problems = list(_problems(results))
    bad = [file for file, result in results.items() if result not in {file.crc32c, ""}]
    for name, data in described.items():
        problem = _check_described(root / name, data)
        if problem is not None:
            problems.append(problem)
            bad.append(PromisedFile(str(root / name), len(data), ""))
    if not any(problem.startswith(f"{root / TABLE_SCHEMA}:") for problem in problems):
        problems += _check_schema(root, manifest)
    expected = {file.path for file in promised} | {root / name for name in described}
    finished = _finished(root)
    others = {name: _said_of_other(name, finished) for name in _others(root, expected)}
    problems += [f"{root / name}: {said}" for name, said in others.items() if said]
    return CheckReport(
        path=root,
        files=len(expected),
        nbytes=sum(file.nbytes for file in promised),
        shard_nbytes=sum(file.nbytes for file in promised if file.shard is not None),
        full=full,
        problems=tuple(problems),
        foreign=tuple(name for name, said in others.items() if not said),
        bad=tuple(dict.fromkeys(bad)),
    )


def _check_file(root: Path, file: PromisedFile, *, full: bool) -> str | ShardsError:
    """Return the checksum of a file, "" where that is not wanted, or what is wrong with it."""
    error = size_error(file)
    if error is not None:
        return error
    try:
        expect_inside(root, file.path)
        return checksum(file.path) if full else ""
    except FormatError as refused:
        return refused
    except OSError as failed:
        return FormatError(f"{file.path}: cannot be read: {failed.strerror}; {REMEDY}")


def _problems(results: Mapping[PromisedFile, str | ShardsError]) -> Iterator[str]:
    """Yield a line for each bad file; of one that has the bytes of another, which."""
    owners = {(file.nbytes, file.crc32c): file for file in results}
    for file, found in results.items():
        if isinstance(found, ShardsError):
            yield str(found)
        elif found not in {file.crc32c, ""}:
            owner = owners.get((file.nbytes, found))
            holds = "" if owner is None else f", which is that of {owner.path}: swapped or doubled"
            yield f"{file.path}: CRC-32C {found}{holds}, manifest says {file.crc32c}; {REMEDY}"


def _check_schema(root: Path, manifest: Manifest) -> Iterator[str]:
    try:
        read_table_schema(root, manifest)
    except FormatError as error:
        yield str(error)
    except MissingShardError as error:
        yield f"{error}; {REMEDY}"


def _check_described(path: Path, data: bytes) -> str | None:
    try:
        if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
            return None
    except OSError as error:
        return f"{path}: cannot be read: {error.strerror}; {REMEDY}"
    return f"{path}: missing or changed; {REMEDY}"


def _others(root: Path, expected: set[Path]) -> list[str]:
    """Return what else is in the folder; the work folder as one."""
    own = {str(path) for path in expected} | {str(root / name) for name in _OWN}
    found = []
    for folder, folders, names in os.walk(root):
        if Path(folder) == root and WORK in folders:
            folders.remove(WORK)
            found.append(os.path.join(folder, WORK))
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        found += [path for n in (*names, *links) if (path := os.path.join(folder, n)) not in own]
    return sorted(os.path.relpath(path, root) for path in found)


def _finished(root: Path) -> list[frozenset[str]]:
    """Return the files of each shard that a run which was stopped has finished."""
    found = []
    for path in (root / WORK).glob("*.receipt.json"):
        try:
            found.append(frozenset(name for name, *_ in parse_receipt(path).files.values()))
        except ShardsError:  # a stale one all the same
            found.append(frozenset())
    return found


def _said_of_other(name: str, finished: Sequence[frozenset[str]]) -> str | None:
    """Return what is wrong about what the manifest does not promise, and what to do."""
    if name == WORK:
        shards = f"{len(finished)} finished shard{'s' * (len(finished) != 1)}"
        return (
            f"left by a run that was stopped, with the receipts of {shards}; give its command "
            "again, which goes on from there, or remove it yourself"
        )
    if any(name in names for names in finished):
        return f"made by the run that was stopped and left {WORK}; give its command again"
    if _SHARD.fullmatch(name):
        return "a shard that the manifest does not name, of another run or copy; remove it"
    return None
