"""The files that a manifest promises, and whether they are there: names, sizes and checksums."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from loaders.errors import ChecksumError, FormatError, MissingShardError, ShardsError
from loaders.format.containers import CONTAINERS
from loaders.format.files import MANIFEST, checksum
from loaders.format.spec import Manifest

REMEDY: Final = 'copy it again, or make it again with "prep repair"'


class PromisedFile(NamedTuple):
    """One file that the manifest promises.

    There may be hundreds of thousands, and each is looked at before anything is read: a `Path` and
    a frozen dataclass for each took three times as long as asking the system for its size.

    Attributes:
        where: Where it lies.
        nbytes: Its size.
        crc32c: Its checksum, 8 hexadecimal digits.
        shard: Split and number of the shard that it is a part of; None for one beside the shards.
    """

    where: str
    nbytes: int
    crc32c: str
    shard: tuple[str, int] | None = None

    @property
    def path(self) -> Path:
        """Where it lies."""
        return Path(self.where)


def promised_files(
    root: Path, manifest: Manifest, split: str | None = None
) -> Iterator[PromisedFile]:
    """Yield the files of the shards, of one split or of all, then those beside them."""
    shard_name, folder = CONTAINERS[manifest.container].shard_name, os.path.join(root, "")
    for name, spec in manifest.splits.items():
        for column, _ in spec.columns() if split in {None, name} else ():
            files = spec.files[column.name]
            facts = zip(spec.counts, files.nbytes, files.crc32c, strict=True)
            for index, (count, nbytes, crc32c) in enumerate(facts):
                if count:
                    where = folder + shard_name(name, index, column, spec.capacity)
                    yield PromisedFile(where, nbytes, crc32c, (name, index))
    for name, (nbytes, crc32c) in manifest.extras.items():
        yield PromisedFile(folder + name, nbytes, crc32c)


def size_error(file: PromisedFile) -> ShardsError | None:
    """Return what is wrong with the presence and the size of a file."""
    try:
        status = os.stat(file.where)
    except (FileNotFoundError, NotADirectoryError):
        return MissingShardError(f"{file.path}: missing; {REMEDY}")
    except OSError as error:
        return FormatError(f"{file.path}: cannot be read: {error.strerror}")
    if not stat.S_ISREG(status.st_mode):
        return FormatError(f"{file.path}: not a regular file; {REMEDY}")
    if status.st_size != file.nbytes:
        return FormatError(
            f"{file.path}: {status.st_size} bytes, manifest says {file.nbytes}; {REMEDY}"
        )
    return None


def expect_sizes(root: Path, manifest: Manifest, split: str) -> None:
    """Refuse a split of which a file is missing, cut or extended; nothing is opened.

    So no shape that a manifest states makes a reader take more memory than files have bytes.

    Raises:
        MissingShardError: A file is not there.
        FormatError: It has another size than promised, or than shapes and counts need, or is no
            file.
    """
    _expect_agreement(root, manifest, split)
    for file in promised_files(root, manifest, split):
        error = size_error(file)
        if error is not None:
            raise error


def _expect_agreement(root: Path, manifest: Manifest, split: str) -> None:
    """Refuse a manifest whose file sizes do not follow from its shapes and counts."""
    spec, container = manifest.splits[split], CONTAINERS[manifest.container]
    for column, rows in spec.columns():
        sizes = {n: container.shard_nbytes(column, n, spec.capacity) for n in set(rows)}
        files = spec.files[column.name]
        for index, (count, nbytes) in enumerate(zip(rows, files.nbytes, strict=True)):
            expected = sizes[count] if spec.counts[index] else 0
            # Encoded samples in chunks have at least a byte each.
            fits = nbytes >= expected + count if column.in_chunks else nbytes == expected
            if not fits:
                raise FormatError(
                    f"{root / MANIFEST}: {split} shard {index} column {column.name}: "
                    f"{nbytes} bytes, {count} rows need {expected}"
                )


def expect_checksum(path: Path, promised: str) -> None:
    """Refuse a file whose bytes are not those that the manifest promises.

    Raises:
        ChecksumError: They are others.
        FormatError: It cannot be read.
    """
    try:
        found = checksum(path)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error
    if found != promised:
        raise ChecksumError(f"{path}: CRC-32C {found}, manifest says {promised}; {REMEDY}")
