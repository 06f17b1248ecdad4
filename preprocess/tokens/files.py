"""Token files of other trainers: nanoGPT's, Megatron-LM's and llm.c's, whole or absent.

Each takes the shards of a dataset one by one, as maps, and holds a block of one at a time. An id
that the trainer's type cannot hold is named and refused; none ever wraps.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError
from loaders.format.files import sync_directory
from preprocess.errors import SourceError
from preprocess.tokens.whole_files import WholeFile, published, reported

Part = tuple[NDArray[Any], NDArray[np.uint64]]
"""One shard: [total] uint16 or uint32 ids of its documents back to back, and [documents + 1] uint64
offsets of them, from 0 to `total`."""

LlmcModel = Literal["gpt-2", "llama-3"]

_BLOCK: Final = 1 << 19
"""Values looked at and written at a time: 1 to 4 MB, in the processor's cache."""

_MEGATRON_INDEX: Final = struct.Struct("<9sQBQQ")
"""Magic, version, code of the type, sequences, document boundaries."""

_MEGATRON_TYPES: Final[Mapping[int, tuple[int, np.dtype[Any]]]] = {
    2: (8, np.dtype("<u2")),
    4: (4, np.dtype("<i4")),
}
"""By the bytes of a stored id: Megatron's code of the type, and the type; it has no uint32."""

_LLMC_HEADER: Final = 256
_LLMC_MODELS: Final[Mapping[LlmcModel, tuple[int, int, np.dtype[Any]]]] = {
    "gpt-2": (20240520, 1, np.dtype("<u2")),
    "llama-3": (20240801, 7, np.dtype("<u4")),
}
"""Magic, version and type of the ids."""

_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What an export wrote.

    Attributes:
        files: In the order in which they are read.
        dtype: Of the ids in them.
        documents: Exported, empty ones included.
        tokens: Exported.
    """

    files: tuple[Path, ...]
    dtype: str
    documents: int
    tokens: int


class _Source:
    """The shards, checked, cut into blocks of the type that is written, and counted."""

    def __init__(self, parts: Iterable[Part], reader: str) -> None:
        self.documents = 0
        self.tokens = 0
        self._parts = parts
        self._reader = reader
        self._shard = -1

    def __iter__(self) -> Iterator[Part]:
        for shard, (values, offsets) in enumerate(self._parts):
            self._shard = shard
            if problem := _problem(values, offsets):
                raise FormatError(f'shard {shard}: {problem}; run "prep check"')
            yield values, offsets
            self.documents += len(offsets) - 1
            self.tokens += len(values)
        if not self.tokens:
            raise SourceError(f"no tokens to export: {self._reader} cannot map an empty file")

    def blocks(self, values: NDArray[Any], dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
        """Give the values of the shard at hand, a block at a time, as `dtype`."""
        highest = int(np.iinfo(dtype).max)
        fits = np.iinfo(values.dtype).max <= highest
        for start in range(0, len(values), _BLOCK):
            block = values[start : start + _BLOCK]
            if not fits and int(block.max()) > highest:
                at = int((block > highest).argmax())
                raise SourceError(
                    f"shard {self._shard} token {start + at}: id {block[at]} is over {highest}, "
                    f"the most that {self._reader} reads from {dtype.name}"
                )
            yield np.ascontiguousarray(block, dtype)

    def lengths(self, offsets: NDArray[np.uint64]) -> Iterator[NDArray[np.int32]]:
        """Give the tokens of each document of the shard at hand, a block at a time."""
        for start in range(0, len(offsets) - 1, _BLOCK):
            lengths = np.diff(offsets[start : start + _BLOCK + 1])
            if int(lengths.max()) > _INT32_MAX:
                at = int((lengths > _INT32_MAX).argmax())
                raise SourceError(
                    f"shard {self._shard} document {start + at}: {lengths[at]} tokens are over "
                    f"{_INT32_MAX}, the most that {self._reader} counts in one document"
                )
            yield lengths.astype("<i4")

    def exported(self, files: tuple[Path, ...], dtype: np.dtype[Any]) -> Exported:
        """Say what was written."""
        return Exported(files=files, dtype=dtype.name, documents=self.documents, tokens=self.tokens)


def _problem(values: NDArray[Any], offsets: NDArray[Any]) -> str:
    if values.ndim != 1 or values.dtype.name not in {"uint16", "uint32"}:
        return f"ids of {values.dtype} {list(values.shape)}, not uint16 or uint32 [tokens]"
    if offsets.ndim != 1 or offsets.dtype.name != "uint64" or not len(offsets):
        return f"offsets of {offsets.dtype} {list(offsets.shape)}, not uint64 [documents + 1]"
    if int(offsets[0]) != 0 or int(offsets[-1]) != len(values):
        return f"offsets from {offsets[0]} to {offsets[-1]}, not from 0 to {len(values)}"
    for start in range(0, len(offsets) - 1, _BLOCK):
        block = offsets[start : start + _BLOCK + 1]
        if (block[1:] < block[:-1]).any():
            return "an offset is below the one before it"
    return ""


def export_nanogpt(parts: Iterable[Part], path: Path) -> Exported:
    """Write all ids as one file of uint16 and nothing else, as nanoGPT's `train.py` maps it.

    The file holds no boundaries: what ends a document must be among the ids.

    Args:
        parts: The shards in order; uint32 ones may be exported while every id is below 65,536.
        path: The file, `train.bin` or `val.bin` in nanoGPT's data folder; not there yet.

    Raises:
        SourceError: An id does not fit uint16, or there is none.
        FormatError: Offsets and values of a shard do not agree.
        OutputError: `path` is there, or could not be written.

    Source:
        karpathy/nanoGPT, `train.py` (`get_batch`) and `data/openwebtext/prepare.py`.
    """
    dtype = np.dtype("<u2")
    source = _Source(parts, "nanoGPT")
    with published(path) as (temporary,), WholeFile(temporary) as file:
        for values, _ in source:
            for block in source.blocks(values, dtype):
                file.write(block)
    return source.exported((path,), dtype)


def export_megatron(parts: Iterable[Part], prefix: Path) -> Exported:
    """Write `prefix`.bin and `prefix`.idx, an IndexedDataset of Megatron-LM.

    A document is one sequence. The index names the type: uint16 for a dataset stored as uint16,
    int32 for one stored as uint32. Megatron's own preparation takes int32 from a vocabulary of
    65,500 on; its reader follows the index, but merging its files with these wants one type.
    Lengths are int32, and byte positions int64.

    Args:
        parts: The shards in order; the first one's type decides.
        prefix: Path without ".bin" and ".idx", as Megatron's `--data-path` takes it; neither file
            is there yet. The index gets its name last.

    Raises:
        SourceError: An id does not fit, a document has over 2^31 - 1 tokens, or there is no token.
        FormatError: Offsets and values of a shard do not agree.
        OutputError: A file is there, or could not be written.

    Source:
        NVIDIA/Megatron-LM, `megatron/core/datasets/indexed_dataset.py`.
    """
    binary, index = Path(f"{prefix}.bin"), Path(f"{prefix}.idx")
    code, dtype = _MEGATRON_TYPES[2]
    source = _Source(parts, "Megatron-LM")
    with (
        published(binary, index) as (binary_temporary, index_temporary),
        WholeFile(binary_temporary) as values_file,
        WholeFile(index_temporary) as index_file,
    ):
        index_file.write(bytes(_MEGATRON_INDEX.size))
        for number, (values, offsets) in enumerate(source):
            if number == 0:
                code, dtype = _MEGATRON_TYPES[values.dtype.itemsize]
            for lengths in source.lengths(offsets):
                index_file.write(lengths)
            for block in source.blocks(values, dtype):
                values_file.write(block)
        _finish_index(index_file, source.documents, dtype.itemsize)
        header = (b"MMIDIDX\0\0", 1, code, source.documents, source.documents + 1)
        index_file.write_at(0, _MEGATRON_INDEX.pack(*header))
    return source.exported((binary, index), dtype)


def _finish_index(file: WholeFile, documents: int, itemsize: int) -> None:
    """Write where each document begins, from the lengths that are there, and which they are."""
    pointer = 0
    for start in range(0, documents, _BLOCK):
        count = min(_BLOCK, documents - start)
        lengths = file.read_at(_MEGATRON_INDEX.size + 4 * start, 4 * count).view("<i4")
        pointers, pointer = pointers_of(lengths, itemsize, pointer)
        file.write(pointers)
    for start in range(0, documents + 1, _BLOCK):
        file.write(np.arange(start, min(start + _BLOCK, documents + 1), dtype="<i8"))


def pointers_of(
    lengths: NDArray[np.int32], itemsize: int, start: int
) -> tuple[NDArray[np.int64], int]:
    """Return where sequences that lie back to back begin.

    Args:
        lengths: [N] int32 tokens of each, at least one.
        itemsize: Bytes of a token.
        start: Byte at which the first begins.

    Returns:
        [N] int64 bytes, and the byte after the last.
    """
    nbytes = lengths.astype("<i8") * itemsize
    ends = np.cumsum(nbytes) + start
    pointers = np.empty(len(lengths), "<i8")
    np.subtract(ends, nbytes, out=pointers)
    return pointers, int(ends[-1])


def export_llmc(
    parts: Iterable[Part],
    folder: Path,
    *,
    model: LlmcModel,
    name: str = "train",
    tokens_per_shard: int = 100_000_000,
) -> Exported:
    """Write `folder`/`name`_000000.bin and so on, as llm.c reads them by a pattern.

    All shards but the last hold `tokens_per_shard` tokens, whatever document ends there. llm.c
    refuses a shard of less than one batch of all processes: remove a last one that is too short.

    Args:
        parts: The shards in order.
        folder: Gets its name when all of it is written; not there yet.
        model: "gpt-2" stores uint16, "llama-3" uint32.
        name: What the files' names begin with.
        tokens_per_shard: 1 to 2^31 - 1: the count in the header is int32.

    Raises:
        SourceError: An id does not fit, or there is none.
        FormatError: Offsets and values of a shard do not agree.
        OutputError: `folder` is there, or could not be written.
        ValueError: `tokens_per_shard` is out of range.

    Source:
        karpathy/llm.c, `dev/data/data_common.py` (`write_datafile`) and `llmc/dataloader.h`.
    """
    if not 1 <= tokens_per_shard <= _INT32_MAX:
        raise ValueError(f"tokens_per_shard: {tokens_per_shard}, not from 1 to {_INT32_MAX}")
    magic, version, dtype = _LLMC_MODELS[model]
    source = _Source(parts, "llm.c")
    header = np.zeros(_LLMC_HEADER, "<i4")
    header[:2] = magic, version
    names: list[str] = []
    blocks = (block for values, _ in source for block in source.blocks(values, dtype))
    with published(folder) as (temporary,):
        with reported(folder.parent):
            temporary.mkdir()
        for shard, pieces in groupby(_cut(blocks, tokens_per_shard), key=itemgetter(0)):
            names.append(f"{name}_{shard:06d}.bin")
            header[2] = 0
            with WholeFile(temporary / names[-1]) as file:
                file.write(header)
                for _, piece in pieces:
                    file.write(piece)
                    header[2] += piece.size
                file.write_at(0, header.tobytes())
        with reported(folder.parent):
            sync_directory(temporary)
    return source.exported(tuple(folder / name for name in names), dtype)


def _cut(blocks: Iterable[NDArray[Any]], size: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Cut a stream of blocks into pieces that lie in one shard of `size`, with its number."""
    position = 0
    for block in blocks:
        start = 0
        while start < block.size:
            piece = block[start : start + size - position % size]
            yield position // size, piece
            position += piece.size
            start += piece.size
