"""Files, whole or absent: names, atomic writes, maps and checksums shared by both containers."""

import contextlib
import errno
import json
import math
import mmap
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from google_crc32c import extend
from numpy.typing import NDArray

from loaders.errors import FormatError, MissingShardError, ShardsError

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
        raise FormatError(f"{path}: not valid JSON ({error}); prepare the dataset again") from error
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
    temporary = (work or path.parent) / f"tmp-{os.getpid()}-{path.name}"
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        with temporary.open("wb", buffering=0) as file:
            for part in [data] if isinstance(data, bytes) else data:
                write_all(file.fileno(), part)
            os.fsync(file.fileno())
        publish(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    for folder in (path.parent, *(folder.parent for folder in made)):
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

    Source:
        CRC-32C (Castagnoli): RFC 3720, appendix B.4.
    """
    value = 0
    with path.open("rb", buffering=0) as file:
        while block := file.read(CHECKSUM_BLOCK):
            value = extend(value, block)
    return f"{value:08x}"


def crc32c_digits(data: bytes) -> str:
    """Return the CRC-32C of some bytes as 8 hexadecimal digits."""
    return f"{extend(0, data):08x}"


Place = Callable[[int, int], NDArray[np.uint8]]
"""Maps an open file, read-only: (descriptor, bytes) -> [bytes] uint8. Raises OSError."""


def map_file(path: Path, nbytes: int, place: Place | None = None) -> NDArray[np.uint8]:
    """Map a file of known size, read-only.

    Args:
        path: The file.
        nbytes: The size that the manifest promises.
        place: Maps it; anywhere by default.

    Returns:
        [nbytes] uint8, not writable; the map is closed when the last view of it is gone.

    Raises:
        MissingShardError: The file is not there.
        FormatError: It is not a regular file or has another size.
        ShardsError: The process has too many maps, or no addresses left.
    """
    try:
        # Never block on a FIFO that took the file's place.
        descriptor = _open_for_map(path)
    except FileNotFoundError as error:
        raise MissingShardError(
            f"{path}: not found, the manifest names it; copy it again, or prepare the dataset "
            "again with --overwrite"
        ) from error
    except OSError as error:
        raise FormatError(f"{path}: cannot be opened: {error.strerror}") from error
    try:
        found = os.fstat(descriptor).st_size
        if found != nbytes:
            raise FormatError(
                f"{path}: {found} bytes, manifest says {nbytes}; "
                'run "prep check" or prepare it again'
            )
        if nbytes == 0:
            return np.empty(0, np.uint8)
        return (place or _map)(descriptor, nbytes)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise ShardsError(
                f"{path}: no room for another map of {nbytes:,} bytes: raise the number of maps of "
                'a process ("sysctl vm.max_map_count"), where it is limited its addresses '
                '("ulimit -v"), or prepare the dataset with a larger --shard-size'
            ) from error
        raise FormatError(f"{path}: cannot be mapped: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _open_for_map(path: Path) -> int:
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        return os.open(path, flags)
    except OSError as error:
        if error.errno != errno.EMFILE or not _raise_descriptor_limit():
            raise
        return os.open(path, flags)


def _map(descriptor: int, nbytes: int) -> NDArray[np.uint8]:
    # NOTE [ One map, no descriptor ]
    # Python before 3.13 keeps a descriptor for the life of each map, so 1,000 shards of three
    # fields would pass the usual soft limit of 1,024. There the soft limit is raised to the hard
    # one when it is met, as Go's runtime does at start-up.
    if sys.version_info >= (3, 13):
        untracked = mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_READ, trackfd=False)
        return np.frombuffer(untracked, np.uint8)
    try:
        found = mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_READ)
    except OSError as error:
        if error.errno != errno.EMFILE or not _raise_descriptor_limit():
            raise
        found = mmap.mmap(descriptor, nbytes, access=mmap.ACCESS_READ)
    return np.frombuffer(found, np.uint8)


def _raise_descriptor_limit() -> bool:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            return True
    raise ShardsError(
        'too many open files for this dataset; raise the limit ("ulimit -n") or prepare it with a '
        "larger --shard-size"
    )
