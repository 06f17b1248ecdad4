"""Shuffled batches of a table's rows through `loaders.Loader`, against the memory's own speed.

A row has 39 features and a target, 13 integers of which some are missing and 26 categories, packed
in 116 bytes. The limit is a copy of the same bytes, row by row, from one array in memory into one
buffer that nobody keeps: `np.take`, which is as fast as a loop of memcpy in C. "gather" is what the
host does for a device: the rows of a batch from the shards' maps into a buffer. The `Loader` makes
float32 and int64 columns of them as well, which for a device happens there.

Others hold the rows as their users do: float32 [N, 13], int64 [N, 26] and the target, and give a
batch of the same. Those that are not installed are left out; the slow ones serve a few batches,
and their seconds are scaled.

Run: python -m tests.benchmarks.table_rows_rate
"""

import argparse
import importlib.util
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from loaders.format.table_schema import ColumnSpec
from tests.benchmarks.rounds import Runs, alternate, report, show
from tests.table_stores import statistics, write_table

LIMIT = "copy of the same rows"
INTEGERS = ("int32",) * 5 + ("uint16",) * 4 + ("uint8",) * 4
CATEGORIES = ("int32",) * 16 + ("uint16",) * 8 + ("uint8",) * 2
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
    last = None
    for batch in loader:
        last = batch
    if last is None or last["numeric"].shape[1] != 13 or last["categorical"].shape[1] != 26:
        raise RuntimeError("the loader gave other columns")


def _orders(count: int, batch_size: int) -> Iterator[NDArray[np.int64]]:
    order = np.random.default_rng(0).permutation(count)
    for start in range(0, count - batch_size + 1, batch_size):
        yield order[start : start + batch_size]


def _copy(records: NDArray[np.uint8], batch_size: int) -> None:
    buffer = np.empty((batch_size, records.shape[1]), np.uint8)
    for rows in _orders(len(records), batch_size):
        # The default mode="raise" copies through a hidden buffer at half the speed.
        np.take(records, rows, axis=0, out=buffer, mode="clip")


def _gather(data: Any, batch_size: int) -> None:
    (part,) = data.views
    buffer = np.empty(*part.layout(np.arange(batch_size)))
    for rows in _orders(len(data), batch_size):
        data.gather_into(rows, {part.name: buffer})


def _scaled(batches: Iterator[Any], wanted: int, total: int) -> float:
    """Return the seconds of up to so many batches, scaled to all of them."""
    next(batches)  # what is set up once is outside the timing
    begin = time.perf_counter()
    timed = sum(1 for _ in itertools.islice(batches, wanted))
    return (time.perf_counter() - begin) / timed * total


def peers(columns: Columns, batch_size: int) -> dict[str, Callable[[], float | None]]:
    """Return those of the other ways to serve the same rows that are installed."""
    integers, categories = [f"i{n}" for n in range(13)], [f"c{n}" for n in range(26)]
    numeric = torch.from_numpy(np.stack([columns[n].astype(np.float32) for n in integers], 1))
    codes = torch.from_numpy(np.stack([columns[n].astype(np.int64) for n in categories], 1))
    parts = {
        "numeric": numeric,
        "categorical": codes,
        "target": torch.from_numpy(columns["y"].astype(np.int64)),
    }
    made = {
        "float32 and int64 tensors": _tensors(parts, batch_size),
        "TensorDataset": _tensor_dataset(parts, batch_size),
        "tensordict": _tensordict(parts, batch_size),
        "polars": _polars(columns, (integers, categories), batch_size),
        "datasets, torch format": _datasets(columns, batch_size),
    }
    return {name: call for name, call in made.items() if call is not None}


def _tensors(parts: dict[str, torch.Tensor], batch_size: int) -> Callable[[], None]:
    def run() -> None:
        for rows in _orders(len(parts["target"]), batch_size):
            indices = torch.from_numpy(rows)
            _ = {name: tensor[indices] for name, tensor in parts.items()}

    return run


def _tensor_dataset(parts: dict[str, torch.Tensor], batch_size: int) -> Callable[[], float]:
    data = torch.utils.data.TensorDataset(*parts.values())
    loader = torch.utils.data.DataLoader(data, batch_size, shuffle=True)
    return lambda: _scaled(iter(loader), 3, len(data) // batch_size)


def _tensordict(
    parts: dict[str, torch.Tensor], batch_size: int
) -> Callable[[], float | None] | None:
    if not importlib.util.find_spec("tensordict"):
        return None
    from tensordict import TensorDict

    count = len(parts["target"])
    table = TensorDict(parts, batch_size=[count])

    def run() -> None:
        for rows in _orders(count, batch_size):
            table[torch.from_numpy(rows)]

    return run


def _polars(
    columns: Columns, names: tuple[list[str], list[str]], batch_size: int
) -> Callable[[], float] | None:
    if not importlib.util.find_spec("polars"):
        return None
    import polars as pl

    frame = pl.DataFrame(columns)
    count = len(frame)

    def run() -> float:
        taken = (frame[rows] for rows in _orders(count, batch_size))
        batches = ([rows.select(part).to_torch() for part in names] for rows in taken)
        return _scaled(batches, 20, count // batch_size)

    return run


def _datasets(columns: Columns, batch_size: int) -> Callable[[], float] | None:
    if not importlib.util.find_spec("datasets"):
        return None
    from datasets import Dataset

    held = Dataset.from_dict(columns).with_format("torch")
    count = len(held)

    def run() -> float:
        batches = (held[rows] for rows in _orders(count, batch_size))
        return _scaled(batches, 1, count // batch_size)

    return run


def measure(
    scratch: Path, *, count: int, batch_size: int, rounds: int, with_peers: bool = True
) -> tuple[Runs, int]:
    """Time whole epochs in turns, everything in the page cache; give the runs and the rows."""
    from loaders import Loader, open_table

    one, columns = prepare(scratch, count, 1)
    four, _ = prepare(scratch, count, 4)
    (file,) = (one / "train").glob("*.npy")
    rows = np.load(file)
    records = rows.view(np.uint8).reshape(len(rows), rows.itemsize)
    contenders: dict[str, Callable[[], float | None]] = {LIMIT: partial(_copy, records, batch_size)}
    for name, path in (("1 shard", one), ("4 shards", four)):
        data = open_table(path)
        contenders[f"gather, {name}"] = partial(_gather, data, batch_size)
        contenders[f"loaders.Loader, {name}"] = partial(_one_epoch, Loader(data, batch_size))
    standardized = Loader(open_table(one, numeric="standardized"), batch_size)
    contenders["loaders.Loader, standardized"] = partial(_one_epoch, standardized)
    if with_peers:
        contenders |= peers(columns, batch_size)
    alternate(contenders, 1)  # the maps come into the page cache
    return alternate(contenders, rounds), count // batch_size * batch_size


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs, rows = measure(
            Path(scratch),
            count=chosen.count,
            batch_size=chosen.batch_size,
            rounds=chosen.rounds,
        )
    title = f"{rows} rows of 39 features in 116 bytes, shuffled, batch {chosen.batch_size}"
    show(report(title, runs, count=rows, unit="rows", reference=LIMIT))


if __name__ == "__main__":
    main()
