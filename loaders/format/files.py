"""Files, whole or absent: names, atomic writes and checksums shared by both containers."""

import contextlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from loaders.errors import FormatError, MissingShardError
from loaders.format.crc32c import extend

MANIFEST: Final = "manifest.json"
"""Written last: a folder is a dataset exactly when this file is there."""

WORK: Final = ".prep"
"""Temporary files, receipts and the lock of a run that has not finished."""

REPORT: Final = "report.json"
SKIPPED: Final = "skipped.jsonl"
ITEMS: Final = "items.jsonl"
"""What a dataset was made from, run by run; not a part of it, as the report."""

_MAX_DEPTH: Final = 32
"""Levels of a JSON document: far above any manifest, far below any limit of Python's."""

_NESTED: Final = frozenset({dict, list})

_OPEN_FILES: Final = 64
"""Files that are open at a time, at most: a process may have no more than some hundred."""

CHECKSUM_BLOCK: Final = 1 << 20
"""Bytes per read: large enough for full speed, small enough to stay in the processor's cache."""


def to_json(value: Any, *, indent: int | None = None) -> bytes:
    """Encode `value` the one way that the format writes JSON: keys sorted, no NaN, UTF-8."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, sort_keys=True, allow_nan=False, separators=separators, indent=indent)
    return text.encode() + b"\n"


def read_json(path: Path) -> Any:
    """Read one JSON file.

    Raises:
        MissingShardError: The file is not there.
        FormatError: It is not UTF-8 JSON, nests too deeply, or repeats a key.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise MissingShardError(f"{path}: not found") from error
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_unique_keys,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
        _check_depth(value, _MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not valid JSON ({error})") from error
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number beyond the range of a double")
    return value


def _check_depth(value: Any, allowed: int) -> None:
    if type(value) not in _NESTED:
        return
    members = value.values() if isinstance(value, dict) else value
    if members and allowed == 1:
        raise ValueError(f"more than {_MAX_DEPTH} levels deep")
    for member in members:
        if type(member) in _NESTED:  # a call for each number and text would take a second a million
            _check_depth(member, allowed - 1)


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write every byte of `data`, however short the single writes are.

    NumPy's own writers can lose the end of a file on a full disk and report success; a plain
    `write` with its result looked at cannot.
    """
    view = memoryview(data).cast("B")
    while view.nbytes:
        view = view[os.write(descriptor, view) :]


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory, and those above it that are not there yet, durably.

    Where the one that is there may be written and not read, its own name is left to the system.
    """
    made = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
    path.mkdir(parents=True, exist_ok=True)
    for folder in made:
        with contextlib.suppress(PermissionError):
            sync_directory(folder.parent)


def publish(temporary: Path, path: Path) -> None:
    """Give a finished and fsynced temporary file its name, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(temporary, path)


def write_atomically(
    path: Path, data: bytes | Iterable[bytes], *, work: Path | None = None
) -> None:
    """Write a file so that a reader sees the old one, the new one, or none: never a part.

    Args:
        path: The file's name.
        data: All of its bytes, or parts of them one after the other.
        work: Folder on the same file system for the temporary file; `path`'s own by default.

    Raises:
        OSError: The file could not be written whole; then `path` is as it was.
    """
    write_together({path: data}, work=work or path.parent)


def write_together(files: Mapping[Path, bytes | Iterable[bytes]], *, work: Path) -> None:
    """Write each file as `write_atomically` does, and wait for the disk once and not for each.

    Args:
        files: Path -> bytes, in the order in which they get their names.
        work: Folder on the same file system for the temporary files.

    Raises:
        OSError: As for `write_atomically`; files before this one may be there.
    """
    waiting = list(files.items())
    for first in range(0, len(waiting), _OPEN_FILES):
        _write_group(waiting[first : first + _OPEN_FILES], work)


def _write_group(files: Sequence[tuple[Path, bytes | Iterable[bytes]]], work: Path) -> None:
    tag = f"tmp-{os.getpid()}"
    named = [(work / f"{tag}-{n}-{path.name}", path) for n, (path, _) in enumerate(files)]
    paths = [path for path, _ in files]
    made = [folder for path in paths for folder in path.parents if not folder.exists()]
    try:
        with contextlib.ExitStack() as stack:
            opened = []
            for (temporary, _), (_, data) in zip(named, files, strict=True):
                file = stack.enter_context(temporary.open("wb", buffering=0))
                opened.append(file)
                for part in [data] if isinstance(data, bytes) else data:
                    write_all(file.fileno(), part)
            for file in opened:
                os.fsync(file.fileno())
        for temporary, path in named:
            publish(temporary, path)
    except BaseException:
        for temporary, _ in named:
            temporary.unlink(missing_ok=True)
        raise
    for folder in dict.fromkeys(path.parent for path in (*paths, *made)):
        sync_directory(folder)


def expect_inside(root: Path, path: Path) -> None:
    """Refuse a file that a link leads to from outside: a stranger's dataset reads nothing else.

    Args:
        root: The dataset's folder, which may be a link itself.
        path: A file below it.

    Raises:
        FormatError: It lies elsewhere.
    """
    real = os.path.realpath(path)
    if not real.startswith(os.path.join(os.path.realpath(root), "")):
        raise FormatError(
            f"{path}: a link leads out of the dataset, to {real}; put a copy of the file in its "
            "place (cp -rL copies a dataset without links)"
        )


def checksum(path: Path) -> str:
    """Return the CRC-32C of a whole file as 8 hexadecimal digits.

    Args:
        path: The file.
    """
    value = 0
    block = np.empty(CHECKSUM_BLOCK, np.uint8)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block.data):
            value = extend(value, block[:count])
    return f"{value:08x}"


def crc32c_digits(data: bytes) -> str:
    """Return the CRC-32C of some bytes as 8 hexadecimal digits."""
    return f"{extend(0, data):08x}"
