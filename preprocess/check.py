"""`prep check`: a dataset against its manifest."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loaders.errors import FormatError, MissingShardError
from loaders.format.containers import CONTAINERS
from loaders.format.files import MANIFEST, REPORT, SKIPPED, checksum
from loaders.format.spec import Manifest, read_manifest
from loaders.format.table_schema import TABLE_SCHEMA, read_table_schema

_OWN = frozenset({MANIFEST, REPORT, SKIPPED})


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """One file that the manifest promises."""

    path: Path
    nbytes: int
    crc32c: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What a check found.

    Attributes:
        path: The dataset's folder.
        files: Files that were looked at.
        nbytes: Bytes that the manifest promises in them.
        full: Whether checksums were compared.
        problems: One line a bad file: which, what came, what was expected.
        foreign: Files in the folder that are not part of the dataset.
    """

    path: Path
    files: int
    nbytes: int
    full: bool
    problems: tuple[str, ...]
    foreign: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "path": str(self.path),
            "files": self.files,
            "nbytes": self.nbytes,
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
    shards = list(_promised_files(root, manifest))
    described = CONTAINERS[manifest.container].group_files(manifest)
    with parallel_config(backend="threading", n_jobs=workers or cpu_count()):
        found = Parallel()(delayed(_check_file)(file, full=full) for file in shards)
    problems = [problem for problem in found if problem]
    problems += [
        problem
        for name, data in described.items()
        if (problem := _check_described(root / name, data))
    ]
    if not any(problem.startswith(f"{root / TABLE_SCHEMA}:") for problem in problems):
        problems += _check_schema(root, manifest)
    expected = {file.path for file in shards} | {root / name for name in described}
    return CheckReport(
        path=root,
        files=len(expected),
        nbytes=sum(file.nbytes for file in shards),
        full=full,
        problems=tuple(problems),
        foreign=tuple(_foreign(root, expected)),
    )


def _promised_files(root: Path, manifest: Manifest) -> Iterator[ExpectedFile]:
    container = CONTAINERS[manifest.container]
    for name, split in manifest.splits.items():
        for column, _ in split.columns():
            files = split.files[column.name]
            for index, count in enumerate(split.counts):
                if count:
                    path = container.shard_path(root, name, index, column, split.capacity)
                    yield ExpectedFile(path, files.nbytes[index], files.crc32c[index])
    for name, (nbytes, crc32c) in manifest.extras.items():
        yield ExpectedFile(root / name, nbytes, crc32c)


def _check_file(file: ExpectedFile, *, full: bool) -> str | None:
    remedy = "copy it again, or prepare the dataset again with --overwrite"
    try:
        if not file.path.is_file():
            return f"{file.path}: missing; {remedy}"
        nbytes = file.path.stat().st_size
        if nbytes != file.nbytes:
            return f"{file.path}: {nbytes} bytes, manifest says {file.nbytes}; {remedy}"
        found = checksum(file.path) if full else file.crc32c
    except OSError as error:
        return f"{file.path}: cannot be read: {error.strerror}"
    if found != file.crc32c:
        return f"{file.path}: CRC-32C {found}, manifest says {file.crc32c}; {remedy}"
    return None


def _check_schema(root: Path, manifest: Manifest) -> Iterator[str]:
    try:
        read_table_schema(root, manifest)
    except (FormatError, MissingShardError) as error:
        yield f"{error}; prepare the dataset again"


def _check_described(path: Path, data: bytes) -> str | None:
    try:
        if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
            return None
    except OSError as error:
        return f"{path}: cannot be read: {error.strerror}"
    return f"{path}: missing or changed; prepare the dataset again"


def _foreign(root: Path, expected: set[Path]) -> Iterator[str]:
    own = expected | {root / name for name in _OWN}
    for path in sorted(root.rglob("*")):
        if path not in own and (path.is_symlink() or not path.is_dir()):
            yield str(path.relative_to(root))
