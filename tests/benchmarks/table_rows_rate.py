"""Shuffled batches of a table's rows through `loaders.Loader`, against the memory's own speed.

A row has 39 features and a target, 13 integers of which some are missing and 26 categories, packed
in 116 bytes. There are two limits, both with an order that is known before. The first is a copy of
the same rows, one by one, from one array in memory into one buffer that nobody keeps: `np.take`,
which is as fast as a loop of memcpy in C. The second also copies as many bytes as the columns have
that a batch is made of: 13 float32, 26 int64 and the target as int64, 268 bytes a row, one after
the other. "gather" is what the host does for a device: the rows of a batch from the shards' maps
into a buffer. "stored" is a `Loader` whose batches hold the records and typed views of them: narrow
types, as what others serve. The `Loader` otherwise makes the columns, which for a device happens
there; it does so in threads, but the loop here gives them nothing to hide behind.

What others serve is in `table_rows_peers`, for a Python that has them.

Run: python -m tests.benchmarks.table_rows_rate [--peers-python PYTHON]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.format.table_schema import ColumnSpec
from tests.benchmarks.rounds import Runs, alternate, report, show
from tests.table_stores import statistics, write_table

LIMIT = "copy of the same rows"
LIMIT_WRITTEN = "copy of the rows, and of their columns' bytes"
_WRITTEN = 13 * 4 + 26 * 8 + 8
INTEGERS = ("int32",) * 5 + ("uint16",) * 4 + ("uint8",) * 4
CATEGORIES = ("int32",) * 16 + ("uint16",) * 8 + ("uint8",) * 2
_STORED = ("int32", "uint16", "uint8")
_TOP = {"int32": 1_000_000, "uint16": 60_000, "uint8": 250}
_MISSING = 0.1

Columns = dict[str, NDArray[Any]]


def prepare(scratch: Path, count: int, shards: int) -> tuple[Path, Columns]:
    """Write random rows as a dataset of some shards; give its codes too."""
    rng = np.random.default_rng(0)
    specs: list[ColumnSpec] = []
    codes: Columns = {}
    for number, dtype in enumerate(INTEGERS):
        name = f"i{number}"
        found = rng.integers(1, _TOP[dtype], count)
        codes[name] = np.where(rng.random(count) < _MISSING, 0, found).astype(dtype)
        known = statistics([1.0, float(_TOP[dtype])])
        specs.append(
            ColumnSpec(
                name=name,
                kind="integer",
                role="feature",
                dtype=dtype,  # type: ignore[arg-type]
                offset=-3,
                statistics=known,
            )
        )
    for number, dtype in enumerate(CATEGORIES):
        name = f"c{number}"
        codes[name] = np.minimum(rng.zipf(1.2, count), _TOP[dtype]).astype(dtype)
        specs.append(
            ColumnSpec(
                name=name,
                kind="categorical",
                role="feature",
                dtype=dtype,  # type: ignore[arg-type]
                buckets=_TOP[dtype],
            )
        )
    specs.append(ColumnSpec(name="y", kind="boolean", role="target", dtype="uint8"))
    codes["y"] = rng.integers(1, 3, count).astype(np.uint8)
    sizes = [len(part) for part in np.array_split(np.arange(count), shards)]
    return write_table(scratch / f"table_{shards}", specs, codes, shards=sizes), codes


def _one_epoch(loader: Any) -> None:
    last: dict[str, Any] = {}
    for batch in loader:
        last = batch
    names = ("numeric", "categorical") if "numeric" in last else _STORED
    if [last[name].shape[1] for name in names] not in ([13, 26], [21, 12, 8]):
        raise RuntimeError("the loader gave other columns")


def _orders(count: int, batch_size: int) -> Iterator[NDArray[np.int64]]:
    order = np.random.default_rng(0).permutation(count)
    for start in range(0, count - batch_size + 1, batch_size):
        yield order[start : start + batch_size]


def _copy(records: NDArray[np.uint8], orders: list[NDArray[np.int64]], written: int = 0) -> None:
    """Copy the rows of each batch, and as many bytes a row as `written` out of the cache."""
    count = len(orders[0])
    buffer = np.empty((count, records.shape[1]), np.uint8)
    known, columns = np.zeros((2, count * written), np.uint8)
    for rows in orders:
        # The default mode="raise" copies through a hidden buffer at half the speed.
        np.take(records, rows, axis=0, out=buffer, mode="clip")
        np.copyto(columns, known)


def _gather(data: Any, orders: list[NDArray[np.int64]]) -> None:
    (part,) = data.views
    buffer = np.empty(*part.layout(orders[0]))
    for rows in orders:
        data.gather_into(rows, {part.name: buffer})


def peers(columns: Columns, batch_size: int, rounds: int, python: Path, scratch: Path) -> Runs:
    """Return the seconds of the other ways to serve the same rows, in a Python that has them."""
    path = scratch / "columns.npz"
    np.savez(path, **columns)
    module = "tests.benchmarks.table_rows_peers"
    command = [str(python), "-W", "ignore", "-m", module, str(path), str(batch_size), str(rounds)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    if done.returncode != 0:
        raise RuntimeError(f"{python}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return dict(json.loads(done.stdout))


def measure(
    scratch: Path, *, count: int, batch_size: int, rounds: int, python: Path
) -> tuple[Runs, int]:
    """Time whole epochs in turns, everything in the page cache; give the runs and the rows."""
    from loaders import Loader, open_table

    tables = {}
    for shards in (1, 4, 10):
        tables[shards], columns = prepare(scratch, count, shards)
    (file,) = (tables[1] / "train").glob("*.npy")
    rows = np.load(file)
    records = rows.view(np.uint8).reshape(len(rows), rows.itemsize)
    orders = [*_orders(count, batch_size)]
    contenders: dict[str, Callable[[], float | None]] = {
        LIMIT: partial(_copy, records, orders),
        LIMIT_WRITTEN: partial(_copy, records, orders, written=_WRITTEN),
    }
    for shards, path in tables.items():
        name = f"{shards} shards" if shards > 1 else "1 shard"
        data = open_table(path)
        contenders[f"gather, {name}"] = partial(_gather, data, orders)
        contenders[f"loaders.Loader, {name}"] = partial(_one_epoch, Loader(data, batch_size))
        stored = open_table(path, shown="stored")
        contenders[f"loaders.Loader, stored, {name}"] = partial(
            _one_epoch, Loader(stored, batch_size)
        )
    for option in ({"numeric": "standardized"}, {"codes": "int32"}):
        (shown,) = option.values()
        loader = Loader(open_table(tables[1], **option), batch_size)  # type: ignore[arg-type]
        contenders[f"loaders.Loader, {shown}"] = partial(_one_epoch, loader)
    alternate(contenders, 1)  # the maps come into the page cache
    runs = alternate(contenders, rounds)
    runs |= peers(columns, batch_size, rounds, python, scratch)
    return runs, count // batch_size * batch_size


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers-python", type=Path, default=Path(sys.executable))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs, rows = measure(
            Path(scratch),
            count=chosen.count,
            batch_size=chosen.batch_size,
            rounds=chosen.rounds,
            python=chosen.peers_python,
        )
    title = f"{rows} rows of 39 features in 116 bytes, shuffled, batch {chosen.batch_size}"
    for limit in (LIMIT, LIMIT_WRITTEN):
        show(report(title, runs, count=rows, unit="rows", reference=limit))


if __name__ == "__main__":
    main()
