"""Packing of documents into rows: seconds and fill of each method, and laying out the rows.

Lengths are log-normal, as those of web text are; documents that are longer than a row are cut.

Run: python -m tests.benchmarks.packing_rate
"""

import argparse
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from preprocess.tokens.packing import Packing, pack, packed_rows, split_long
from tests.benchmarks.rounds import Runs, alternate, report, show

# exp(5.6) = 270 tokens in the middle, 500 on average, 1 in 30 above 2048.
MEDIAN, SPREAD = 5.6, 1.1


def document_lengths(count: int) -> NDArray[np.int64]:
    """Make the lengths of some documents."""
    drawn = np.random.default_rng(0).lognormal(MEDIAN, SPREAD, count)
    return np.maximum(1, drawn).astype(np.int64)


def measure(count: int, capacity: int, rounds: int) -> tuple[Runs, dict[str, float]]:
    """Time the methods in turns; give the runs and the fill of each method."""
    lengths, _ = split_long(document_lengths(count), capacity)
    packings: dict[str, Packing] = {}

    def best_fit() -> None:
        packings["best_fit"] = pack(lengths, capacity, "best_fit")

    def first_fit() -> None:
        packings["first_fit"] = pack(lengths, capacity, "first_fit")

    alternate({"best_fit": best_fit, "first_fit": first_fit}, 1)
    ids = (np.arange(int(lengths.sum())) % 50_000).astype(np.uint32)
    lay = partial(packed_rows, ids, lengths, packings["best_fit"], capacity, 0, np.dtype("uint16"))
    contenders = {
        "best_fit": best_fit,
        "first_fit": first_fit,
        "laying out": lambda: lay() and None,
        "copy of the ids": lambda: ids.astype(np.uint16).sum() and None,
    }
    runs = alternate(contenders, rounds)
    return runs, {name: packing.fill(lengths, capacity) for name, packing in packings.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--capacities", type=int, nargs="+", default=[1024, 2048])
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args(arguments)
    for capacity in chosen.capacities:
        runs, fills = measure(chosen.count, capacity, chosen.rounds)
        title = f"{chosen.count} documents into rows of {capacity}"
        show(report(title, runs, count=chosen.count, unit="documents", reference="best_fit"))
        show([f"  fill of {name}: {fill:.5f}" for name, fill in fills.items()])


if __name__ == "__main__":
    main()
