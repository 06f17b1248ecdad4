"""A parsed table in files that can be mapped: one a block, and one that says that all are there."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from loaders.errors import FormatError, MissingShardError
from loaders.format.files import (
    checksum,
    publish,
    read_json,
    to_json,
    write_atomically,
)
from preprocess.contents import Contents
from preprocess.errors import SampleError
from preprocess.tables.block import Block, Evidence
from preprocess.tables.block_sink import BlockSink
from preprocess.tables.buffers import narrowed, narrowest
from preprocess.tables.left_out import LeftOut, SpilledErrors, errors_of, left_out_json, left_out_of
from preprocess.tables.work import SPILL

if TYPE_CHECKING:
    import pyarrow as pa

_DECIMAL: Final = "__decimal__"

_KEY: Final = b"prep.key"
_ROW: Final = "__row"
"""Metadata that names a block's file, and its last column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpilledBlock:
    """A parsed block in its file.

    Attributes:
        index: Its number in the order of the input; those of refused files are left out.
        path: The file.
        key: The input file that its rows come from.
        split: The split that this file lies in.
        count: Rows.
        nbytes: Size of the file.
        crc32c: Of the whole file.
    """

    index: int
    path: Path
    key: str
    split: str
    count: int
    nbytes: int
    crc32c: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spilled:
    """A parsed table.

    Attributes:
        blocks: In the order of the input.
        columns: Names, in the order in which they came.
        evidence: Of every column, over all rows.
        left_out: Records of blocks, and whole files, that are left out, in the order of the input.
        notes: What the user should know.
        contents: Split name -> what each of its items held: see `ItemFiles.contents`.
    """

    blocks: tuple[SpilledBlock, ...]
    columns: tuple[str, ...]
    evidence: Mapping[str, Evidence]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...] = ()
    contents: Mapping[str, Contents] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Rows of all blocks."""
        return sum(block.count for block in self.blocks)

    @property
    def errors(self) -> Sequence[SampleError]:
        """What is left out, one error for each record and file; none is kept in memory."""
        return errors_of(self.left_out)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a block comes from.

    Attributes:
        index: Its number in the order of the input.
        key: The input file.
        split: The split that this file lies in.
    """

    index: int
    key: str
    split: str


def write_block(block: Block, folder: Path, origin: Origin) -> SpilledBlock:
    """Write a block to its file; nothing where it has no rows.

    Raises:
        OSError: The file could not be written.
    """
    path = folder / f"{origin.index:08d}.arrow"
    sink = BlockSink(-1)
    if len(block.rows):
        temporary = path.with_name(f"tmp-{path.name}")
        with temporary.open("wb", buffering=0) as file:
            sink = BlockSink(file.fileno())
            _write_ipc(block, sink)
        # Not made durable: a checksum tells whether the file is whole when it is used again.
        publish(temporary, path)
    return SpilledBlock(
        index=origin.index,
        path=path,
        key=origin.key,
        split=origin.split,
        count=len(block.rows),
        nbytes=sink.nbytes,
        crc32c=f"{sink.crc32c:08x}",
    )


def _write_ipc(block: Block, sink: BlockSink) -> None:
    import pyarrow as pa

    table = block.table
    if any(column.num_chunks > 1 for column in table.columns):
        # A file of Arrow's has one dictionary to a column.
        table = table.unify_dictionaries().combine_chunks()
    columns = [
        _narrow(column, block.evidence.get(name))
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    table = pa.table([*columns, pa.array(block.rows)], names=[*table.column_names, _ROW])
    key = block.key.encode(errors="surrogateescape")
    table = table.replace_schema_metadata({_KEY: key})
    with sink.opened() as stream, pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)


def _narrow(column: "pa.ChunkedArray", evidence: Evidence | None) -> "pa.ChunkedArray | pa.Array":
    """Return whole numbers, and places in dictionaries, in the narrowest type: less to write."""
    import pyarrow as pa

    kind = column.type
    if not column.num_chunks:
        return column
    array = column.chunk(0)
    if pa.types.is_dictionary(kind):
        indices = narrowed(array.indices, (0, len(array.dictionary) - 1))
        return pa.DictionaryArray.from_arrays(indices, array.dictionary, safe=False)
    low, high = (None, None) if evidence is None else (evidence.minimum, evidence.maximum)
    if pa.types.is_integer(kind) and isinstance(low, int) and isinstance(high, int):
        bounds = low, high
        return column if narrowest(kind, bounds) == kind else narrowed(array, bounds)
    return column


_MAPPED: Final = 256
"""Blocks that stay mapped: their pages are the page cache's, and not this process's own."""


_maps: dict[tuple[Path, str], Block] = {}
"""By path, and by checksum, which tells blocks of other runs apart."""


def map_block(block: SpilledBlock) -> Block:
    """Map a block as `open_block`, or return the map that is there from before.

    The first blocks stay: of those that were used last, a run over more would find none.
    """
    key = block.path, block.crc32c
    found = _maps.get(key)
    if found is None:
        found = open_block(block.path)
        if len(_maps) < _MAPPED:
            _maps[key] = found
    return found


def unmap_blocks() -> None:
    """Let go of all maps: a file that is removed takes room until the last of them is gone."""
    _maps.clear()


def open_block(path: Path) -> Block:
    """Map a block that `spill` wrote; nothing is copied.

    Raises:
        FormatError: The file is not such a block.
    """
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowException) as error:
        raise FormatError(f"{path}: a parsed block that cannot be read: {error}") from error
    key = table.schema.metadata[_KEY].decode(errors="surrogateescape")
    last = table.num_columns - 1
    rows = table.column(last).combine_chunks().to_numpy()
    # Errors and evidence were taken when the block was made.
    return Block(key, table.remove_column(last), rows, {})


def write_spill(folder: Path, identity: dict[str, Any], spilled: Spilled) -> None:
    """Say that all blocks are there, and what they follow from.

    Raises:
        OSError: The file could not be written.
    """
    write_atomically(folder / SPILL, to_json({"identity": identity, **_to_json(spilled)}))


def _to_json(spilled: Spilled) -> dict[str, Any]:
    return {
        "blocks": [[b.index, b.key, b.split, b.count, b.nbytes, b.crc32c] for b in spilled.blocks],
        "columns": list(spilled.columns),
        "evidence": [_evidence_json(found) for found in spilled.evidence.values()],
        "left_out": [left_out_json(part) for part in spilled.left_out],
        "notes": list(spilled.notes),
        "contents": dict(spilled.contents),
    }


def _evidence_json(evidence: Evidence) -> str:
    """Return JSON in a string: infinities are no numbers of the files around it."""
    values = {part.name: getattr(evidence, part.name) for part in fields(evidence)}
    values["kinds"] = sorted(evidence.kinds)
    return json.dumps(values, default=_decimal_json)


def _decimal_json(value: Any) -> dict[str, str]:
    """Return the smallest or largest of decimals, which no float is."""
    return {_DECIMAL: str(Decimal(value))}


def _evidence_of(text: str) -> Evidence:
    values = json.loads(
        text, object_hook=lambda found: Decimal(found[_DECIMAL]) if _DECIMAL in found else found
    )
    values["kinds"] = frozenset(values["kinds"])
    values["not_kind"] = {kind: tuple(first) for kind, first in values["not_kind"].items()}
    lengths = values["list_lengths"]
    values["list_lengths"] = None if lengths is None else tuple(lengths)
    return Evidence(**values)


def _is_whole(path: Path, nbytes: int, crc32c: str) -> bool:
    return os.path.getsize(path) == nbytes and checksum(path) == crc32c


def read_spill(folder: Path, identity: dict[str, Any]) -> Spilled | None:
    """Return what a stopped run has parsed, if all of it is there and follows from this input."""
    try:
        found = read_json(folder / SPILL)
        if found["identity"] != identity:
            return None
        blocks = tuple(
            SpilledBlock(
                index=index,
                path=folder / f"{index:08d}.arrow",
                key=key,
                split=split,
                count=count,
                nbytes=nbytes,
                crc32c=crc32c,
            )
            for index, key, split, count, nbytes, crc32c in found["blocks"]
        )
        left_out = tuple(left_out_of(folder, entry) for entry in found["left_out"])
        listed = [part for part in left_out if isinstance(part, SpilledErrors)]
        if not all(_is_whole(b.path, b.nbytes, b.crc32c) for b in blocks):
            return None
        if not all(_is_whole(each.path, each.nbytes, each.crc32c) for each in listed):
            return None
        evidence = map(_evidence_of, found["evidence"])
        return Spilled(
            blocks=blocks,
            columns=tuple(found["columns"]),
            evidence=dict(zip(found["columns"], evidence, strict=True)),
            left_out=left_out,
            notes=tuple(found["notes"]),
            contents={name: [*map(tuple, each)] for name, each in found["contents"].items()},
        )
    except (MissingShardError, FormatError, OSError, ValueError, TypeError, KeyError):
        return None  # it is parsed again
