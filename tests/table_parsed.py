"""Small parsed tables: texts of CSV and Arrow tables, cut into blocks and spilled."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from preprocess.tables.fit import Fitted, fit
from preprocess.tables.options import TableOptions
from preprocess.tables.parse import parse_block
from preprocess.tables.raw_block import RawBlock
from preprocess.tables.schema import decide
from preprocess.tables.spill import Origin, Spilled, write_block
from preprocess.tables.toml import Wish

if TYPE_CHECKING:
    import pyarrow as pa

    from preprocess.tables.block import Evidence


def csv_blocks(text: str, size: int = 1 << 20, key: str = "a.csv") -> Iterator[RawBlock]:
    """Cut a CSV text without quotes into blocks of `size` rows."""
    header, *lines = text.splitlines(keepends=True)
    names = tuple(header.strip().split(","))
    for start in range(0, len(lines), size):
        data = "".join(lines[start : start + size]).encode()
        yield RawBlock(key=key, kind="csv", first=start + 2, data=data, names=names)


def table_blocks(
    table: "pa.Table", size: int = 1 << 20, key: str = "a.parquet"
) -> Iterator[RawBlock]:
    """Cut an Arrow table into blocks of `size` rows."""
    for start in range(0, len(table), size):
        part = table.slice(start, size).combine_chunks()
        yield RawBlock(key=key, kind="table", first=start + 1, table=part)


def spill_blocks(
    folder: Path,
    blocks: Iterable[RawBlock],
    options: TableOptions,
    splits: dict[str, str] | None = None,
) -> Spilled:
    """Parse and spill blocks; `splits` names the split of files that are not of train."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    evidence: dict[str, Evidence] = {}
    columns: list[str] = []
    for index, raw in enumerate(blocks):
        block = parse_block(raw, options)
        split = (splits or {}).get(raw.key, "train")
        written.append(write_block(block, folder, Origin(index, raw.key, split)))
        columns = block.table.column_names
        for name, found in block.evidence.items():
            evidence[name] = evidence[name].merged(found) if name in evidence else found
    return Spilled(blocks=tuple(written), columns=tuple(columns), evidence=evidence, left_out=())


def fit_blocks(
    folder: Path,
    blocks: Iterable[RawBlock],
    options: TableOptions | None = None,
    wishes: dict[str, Wish] | None = None,
    workers: int = 1,
) -> Fitted:
    """Parse, decide and fit."""
    options = options or TableOptions()
    spilled = spill_blocks(folder, blocks, options)
    plans = decide(spilled.evidence, spilled.columns, options, wishes)
    return fit(spilled, plans, options, workers)
