"""What others serve of the rows that `table_rows_rate` measures, in a Python that has them.

They hold the rows as their users do: float32 [N, 13], int64 [N, 26] and the target, or a column
each, and give a batch of the same. Those that are not installed are left out; all serve a few
batches, and their seconds are scaled. Needs NumPy and torch, and nothing of this project.

Run: PYTHON -m tests.benchmarks.table_rows_peers COLUMNS.npz BATCH_SIZE ROUNDS
"""

import importlib.util
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]


def _orders(count: int, batch_size: int) -> Iterator[NDArray[np.int64]]:
    order = np.random.default_rng(0).permutation(count)
    for start in range(0, count - batch_size + 1, batch_size):
        yield order[start : start + batch_size]


def _scaled(batches: Iterator[Any], wanted: int, total: int) -> float:
    """Return the seconds of up to so many batches, scaled to all of them."""
    next(batches)  # what is set up once is outside the timing
    begin = time.perf_counter()
    timed = sum(1 for _ in itertools.islice(batches, wanted))
    return (time.perf_counter() - begin) / timed * total


def peers(columns: Columns, batch_size: int) -> dict[str, Callable[[], float]]:
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


def _tensors(parts: dict[str, torch.Tensor], batch_size: int) -> Callable[[], float]:
    count = len(parts["target"])

    def run() -> float:
        taken = map(torch.from_numpy, _orders(count, batch_size))
        batches = ({name: tensor[rows] for name, tensor in parts.items()} for rows in taken)
        return _scaled(batches, 50, count // batch_size)

    return run


def _tensor_dataset(parts: dict[str, torch.Tensor], batch_size: int) -> Callable[[], float]:
    data = torch.utils.data.TensorDataset(*parts.values())
    loader = torch.utils.data.DataLoader(data, batch_size, shuffle=True)
    return lambda: _scaled(iter(loader), 3, len(data) // batch_size)


def _tensordict(parts: dict[str, torch.Tensor], batch_size: int) -> Callable[[], float] | None:
    if not importlib.util.find_spec("tensordict"):
        return None
    from tensordict import TensorDict

    count = len(parts["target"])
    table = TensorDict(parts, batch_size=[count])

    def run() -> float:
        taken = map(torch.from_numpy, _orders(count, batch_size))
        return _scaled((table[rows] for rows in taken), 50, count // batch_size)

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


def main() -> None:
    """Measure from the command line: JSON of the seconds of an epoch, by name and round."""
    path, batch_size, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with np.load(path) as stored:
        columns = {name: stored[name] for name in stored.files}
    found = peers(columns, batch_size)
    json.dump({name: [run() for _ in range(rounds)] for name, run in found.items()}, sys.stdout)


if __name__ == "__main__":
    main()
