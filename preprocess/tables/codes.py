"""The codes of the texts of every block, found once: one look-up in a vocabulary for all blocks."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from google_crc32c import value as crc32c
from numpy.typing import NDArray

from loaders.format.files import write_all
from loaders.format.table_schema import ColumnSpec, TableSchema
from preprocess.errors import output_error
from preprocess.tables.coded_texts import different_texts_in, is_coded
from preprocess.tables.encode import NO_CLASS, UNKNOWN
from preprocess.tables.spill import SpilledBlock, map_block
from preprocess.tables.text_codes import CodesFile, codes_path

if TYPE_CHECKING:
    import pyarrow as pa

_TOGETHER: Final = 1 << 20
"""Texts that are looked up at a time, at least: the table of a vocabulary is built each time."""

Look = Callable[["pa.LargeStringArray"], NDArray[np.int32]]
"""Texts -> their codes."""


@dataclass(frozen=True)
class BlockCodes:
    """Where the codes of the texts of every block are.

    Attributes:
        files: By column.
    """

    files: Mapping[str, CodesFile]

    def of_block(self, number: int) -> dict[str, NDArray[np.int32]]:
        """Return the codes of a block's texts, by column; `number` is its place among all."""
        found = {}
        for name, (codes, starts) in self._mapped.items():
            first, end = starts[number : number + 2].tolist()
            found[name] = codes[first:end]
        return found

    @cached_property
    def _mapped(self) -> dict[str, tuple[NDArray[np.int32], NDArray[np.int64]]]:
        """Map the files once; each column's codes, and where those of each block begin."""
        return {
            name: (np.memmap(file.path, "<i4", mode="r").view(np.ndarray), file.starts)
            for name, file in self.files.items()
        }

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs: paths, and nothing that is mapped."""
        return {"files": self.files}


def find_codes(
    blocks: Sequence[SpilledBlock],
    schema: TableSchema,
    vocabularies: Mapping[str, bytes],
    folder: Path,
    workers: int,
    known: Mapping[str, CodesFile] | None = None,
) -> BlockCodes:
    """Look the texts of all blocks up, a column to a thread, and write their codes to files.

    Args:
        blocks: Parsed rows.
        schema: Says which columns have codes.
        vocabularies: Path of a vocabulary -> its file.
        folder: Where the files go.
        workers: Threads.
        known: Column -> its codes, of those that need no look.

    Raises:
        OutputError: The folder cannot take them.
    """
    files = dict(known or {})
    coded = [
        (place, spec)
        for place, spec in enumerate(schema.columns)
        if is_coded(spec) and spec.name not in files
    ]

    def find(place: int, spec: ColumnSpec) -> CodesFile:
        path = codes_path(folder, place)
        look = looker(spec, vocabularies)
        starts = [0]
        with path.open("wb", buffering=0) as file:
            for codes in _codes(blocks, spec, look):
                write_all(file.fileno(), codes.astype("<i4").data)
                starts.append(starts[-1] + len(codes))
        return CodesFile(path, np.array(starts))

    try:
        with ThreadPoolExecutor(workers, thread_name_prefix="prep-codes") as pool:
            for (_, spec), found in zip(coded, pool.map(lambda c: find(*c), coded), strict=True):
                files[spec.name] = found
    except OSError as error:
        raise output_error(folder, error) from error
    return BlockCodes(files)


def looker(spec: ColumnSpec, vocabularies: Mapping[str, bytes]) -> Look:
    """Return what finds the codes of texts of a column."""
    if spec.buckets is not None:
        buckets = spec.buckets

        def hashed(texts: "pa.LargeStringArray") -> NDArray[np.int32]:
            found = [1 + crc32c(text.encode()) % buckets for text in texts.to_pylist()]
            return np.array(found, np.int32)

        return hashed
    if spec.vocabulary is None:
        raise ValueError(f"column {spec.name!r}: its values are no codes")
    import pyarrow as pa
    import pyarrow.compute as pc

    values = pa.array(json.loads(vocabularies[spec.vocabulary])["values"], pa.large_string())
    first, absent = (0, NO_CLASS) if spec.role == "target" else (2, UNKNOWN)
    # Truth values are one class each, however they are written.
    folded = spec.role == "target" and set(values[:3].to_pylist()) <= {"false", "true"}

    def known(texts: "pa.LargeStringArray") -> NDArray[np.int32]:
        texts = pc.utf8_lower(texts) if folded else texts
        places = pc.index_in(texts, value_set=values).fill_null(-1).to_numpy()
        return np.where(places < 0, absent, places + first).astype(np.int32)

    return known


def _codes(
    blocks: Sequence[SpilledBlock], spec: ColumnSpec, look: Look
) -> Iterator[NDArray[np.int32]]:
    """Yield the codes of each block in turn; texts of many blocks are looked up together."""
    import pyarrow as pa

    missing = np.array([NO_CLASS if spec.role == "target" else 0], np.int32)
    held: list[pa.LargeStringArray] = []

    def looked_up() -> Iterator[NDArray[np.int32]]:
        codes = look(pa.concat_arrays(held)) if held else np.empty(0, np.int32)
        ends = np.cumsum([len(texts) for texts in held])
        for part in np.split(codes, ends[:-1]) if held else ():
            yield np.concatenate([part, missing])

    for block in blocks:
        held.append(different_texts_in(map_block(block).table, spec))
        if sum(map(len, held)) >= _TOGETHER:
            yield from looked_up()
            held = []
    yield from looked_up()
