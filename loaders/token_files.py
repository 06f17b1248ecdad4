"""Token files of other trainers, mapped: nanoGPT's and Megatron-LM's.

Both come out as the shards of a token dataset do: ids back to back, and where each document begins.
Nothing is believed before the sizes of the files bear it out.
"""

import hashlib
import os
import stat
import struct
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError, MissingShardError, SelectionError, VersionError
from loaders.format.fields import FieldSpec
from loaders.format.maps import map_file
from loaders.format.spec import Manifest
from loaders.format.split_spec import SplitSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BLOCK: Final = 1 << 19
"""Values looked at at a time."""

_HEADER: Final = struct.Struct("<9sQBQQ")
_MAGIC: Final = b"MMIDIDX\0\0"
_VERSION: Final = 1

_TYPES: Final["Mapping[int, np.dtype[Any]]"] = {8: np.dtype("<u2"), 4: np.dtype("<u4")}
"""Megatron's codes of the types that hold ids: 8 is its uint16; 4 is its int32, the same bytes as
uint32 for every id that is not negative."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenFile:
    """The documents of one file; pickles as the call that opened it.

    Attributes:
        values: [total] uint16 or uint32 ids of all documents back to back, a read-only map.
        offsets: [documents + 1] uint64, read-only: document i is
            `values[offsets[i] : offsets[i + 1]]`.
        opener: Opens it again, in another process.
        eos_id: The id that ends each document, if it was said.
    """

    values: NDArray[Any]
    offsets: NDArray[np.uint64]
    opener: "Callable[[], TokenFile]"
    eos_id: int | None = None

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.offsets) - 1

    def __reduce__(self) -> tuple[Any, ...]:
        return self.opener, ()


def open_nanogpt(
    path: Path, *, dtype: Literal["uint16", "uint32"] = "uint16", eos_id: int | None
) -> TokenFile:
    """Map a file of ids and nothing else, as nanoGPT prepares it.

    Args:
        path: `train.bin` or `val.bin`.
        dtype: Of the ids. The file does not say it: nanoGPT's own are uint16.
        eos_id: The id that ends each document and belongs to it; what follows the last one is a
            document too. None: the file is one document.

    Raises:
        MissingShardError: The file is not there.
        FormatError: It is empty, or not a whole number of ids.
        SelectionError: Another dtype, or an `eos_id` that it cannot hold.

    Source:
        karpathy/nanoGPT, `data/openwebtext/prepare.py`.
    """
    if dtype not in {"uint16", "uint32"}:
        raise SelectionError(f"dtype: {dtype!r}, token ids are stored as uint16 or uint32")
    little = np.dtype(dtype).newbyteorder("<")
    highest = int(np.iinfo(little).max)
    if eos_id is not None and not 0 <= eos_id <= highest:
        raise SelectionError(f"eos_id: {eos_id}, {dtype} holds 0 to {highest}")
    nbytes = _size(path)
    if nbytes == 0 or nbytes % little.itemsize:
        raise FormatError(
            f"{path}: {nbytes} bytes, expected at least one {dtype} and a multiple of "
            f"{little.itemsize}; copy it again, or name its dtype"
        )
    values = map_file(path, nbytes).view(little)
    return TokenFile(
        values=values,
        offsets=_frozen(_document_offsets(values, eos_id)),
        opener=partial(open_nanogpt, path, dtype=dtype, eos_id=eos_id),
        eos_id=eos_id,
    )


def _document_offsets(values: NDArray[Any], eos_id: int | None) -> NDArray[np.uint64]:
    found: list[NDArray[np.uint64]] = [np.zeros(1, np.uint64)]
    if eos_id is not None:
        for start in range(0, len(values), _BLOCK):
            ends = np.flatnonzero(values[start : start + _BLOCK] == eos_id) + (start + 1)
            found.append(ends.astype(np.uint64))
    if eos_id is None or int(values[-1]) != eos_id:
        found.append(np.array([len(values)], np.uint64))
    return np.concatenate(found)


def open_megatron(prefix: Path) -> TokenFile:
    """Map `prefix`.bin by `prefix`.idx, an IndexedDataset of Megatron-LM.

    A document may be several sequences; they lie back to back. The code in the index decides the
    type, never the size of a vocabulary. int32 comes out as uint32: a negative id, which no
    tokenizer gives, is one from 2^31 on.

    Args:
        prefix: Path without ".bin" and ".idx", as Megatron's `--data-path` takes it.

    Raises:
        MissingShardError: One of the files is not there.
        FormatError: They are not an index and the ids that it describes.
        VersionError: Another version of the index.

    Source:
        NVIDIA/Megatron-LM, `megatron/core/datasets/indexed_dataset.py`.
    """
    binary, index = Path(f"{prefix}.bin"), Path(f"{prefix}.idx")
    values_nbytes = _size(binary)
    data, dtype, sequences = _open_index(index)
    if values_nbytes % dtype.itemsize:
        raise FormatError(
            f"{binary}: {values_nbytes} bytes, not a multiple of the {dtype.itemsize} that "
            f"{index.name} says; copy both again"
        )
    lengths_end = 4 * sequences
    pointers_end = lengths_end + 8 * sequences
    bounds = _sequence_bounds(
        index,
        data[:lengths_end].view("<i4"),
        data[lengths_end:pointers_end].view("<i8"),
        dtype.itemsize,
        values_nbytes // dtype.itemsize,
    )
    documents = data[pointers_end:].view("<i8")
    _check_documents(index, documents, sequences)
    return TokenFile(
        values=map_file(binary, values_nbytes).view(dtype),
        offsets=_frozen(bounds[documents]),
        opener=partial(open_megatron, prefix),
    )


def _open_index(path: Path) -> tuple[NDArray[np.uint8], np.dtype[Any], int]:
    """Map an index; return what follows its header, the type of the ids, and the sequences."""
    nbytes = _size(path)
    if nbytes < _HEADER.size:
        raise FormatError(f"{path}: {nbytes} bytes, a Megatron index has {_HEADER.size} or more")
    data = map_file(path, nbytes)
    magic, version, code, sequences, documents = _HEADER.unpack(data[: _HEADER.size].tobytes())
    if magic != _MAGIC:
        raise FormatError(f"{path}: begins with {magic!r}, a Megatron index with {_MAGIC!r}")
    if version != _VERSION:
        raise VersionError(f"{path}: version {version} of the index, only {_VERSION} is known")
    if code not in _TYPES:
        raise FormatError(f"{path}: type code {code}, expected 8 (uint16) or 4 (int32) for ids")
    expected = _HEADER.size + 12 * sequences + 8 * documents
    if nbytes != expected:
        raise FormatError(
            f"{path}: {nbytes} bytes, {sequences} sequences and {documents} document boundaries "
            f"need {expected}; it was cut, or is multimodal, which holds more than text"
        )
    return data[_HEADER.size :], _TYPES[code], sequences


def _sequence_bounds(
    path: Path,
    lengths: NDArray[np.int32],
    pointers: NDArray[np.int64],
    itemsize: int,
    total: int,
) -> NDArray[np.uint64]:
    """Return [sequences + 1] tokens at which they begin and the last one ends.

    Raises:
        FormatError: They do not lie back to back, or do not fill the file of `total` tokens.
    """
    bounds = np.zeros(len(lengths) + 1, np.uint64)
    begin = 0
    for start in range(0, len(lengths), _BLOCK):
        block = lengths[start : start + _BLOCK]
        if int(block.min()) < 0:
            at = start + int((block < 0).argmax())
            raise FormatError(f"{path}: sequence {at} has {lengths[at]} tokens, expected 0 or more")
        ends = np.cumsum(block, dtype=np.int64) + begin
        if int(ends[-1]) > total:
            break
        bounds[start + 1 : start + 1 + len(block)] = ends
        wrong = pointers[start : start + len(block)] != (ends - block) * itemsize
        if wrong.any():
            at = start + int(wrong.argmax())
            raise FormatError(
                f"{path}: sequence {at} begins at byte {pointers[at]}, expected "
                f"{int(bounds[at]) * itemsize} from the lengths of those before it"
            )
        begin = int(ends[-1])
    else:
        if begin == total:
            return bounds
    raise FormatError(
        f"{path}: its lengths do not add up to the {total} tokens of the .bin file; copy both again"
    )


def _check_documents(path: Path, documents: NDArray[np.int64], sequences: int) -> None:
    if not len(documents) or int(documents[0]) != 0 or int(documents[-1]) != sequences:
        raise FormatError(
            f"{path}: document boundaries {documents[:1]} to {documents[-1:]}, "
            f"expected 0 to {sequences}"
        )
    for start in range(0, len(documents) - 1, _BLOCK):
        block = documents[start : start + _BLOCK + 1]
        falls = block[1:] < block[:-1]
        if falls.any():
            at = start + 1 + int(falls.argmax())
            raise FormatError(
                f"{path}: document boundary {at} is {documents[at]}, expected "
                f"{documents[at - 1]} or more"
            )


def _size(path: Path) -> int:
    """Return the size of a regular file.

    Raises:
        MissingShardError: It is not there.
        FormatError: It is something else.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        raise MissingShardError(f"{path}: not found") from error
    except OSError as error:
        raise FormatError(f"{path}: cannot be opened: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise FormatError(f"{path}: not a regular file")
    return status.st_size


def _frozen(offsets: NDArray[np.uint64]) -> NDArray[np.uint64]:
    offsets.flags.writeable = False
    return offsets


def described(file: TokenFile, split: str) -> Manifest:
    """Describe another trainer's file as the dataset that it stands for."""
    field = FieldSpec(
        name="tokens", dtype=file.values.dtype.name, shape=(), role="tokens", ragged=True
    )
    spec = SplitSpec(
        fields=(field,),
        capacity=None,
        items=1,
        counts=(len(file),),
        values={"tokens": (len(file.values),)},
        files={},
        statistics={},
        class_counts=None,
    )
    # Where each document begins tells files apart; the ids themselves are too many to be read.
    digest = hashlib.sha256(file.offsets.data).hexdigest()
    return Manifest(
        container="tensor",
        kind="tokens",
        recipe={"tokenizer": {"eos_id": file.eos_id}},
        recipe_hash=digest,
        source_hash=digest,
        classes=(),
        skipped=0,
        splits={split: spec},
    )
