"""Which documents of a first pass are kept, and in which order: arithmetic on their numbers."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.format.spec import SPLITS
from preprocess.tokens.documents import StoredDocuments
from preprocess.tokens.duplicates import distinct, first_of_each
from preprocess.tokens.first import DIGEST, SIGNATURE
from preprocess.tokens.options import Dedup


@dataclass(frozen=True, kw_only=True)
class Orders:
    """The order of the documents of every split. Pickles as its options, and is found anew.

    Attributes:
        folder: The dataset that the first pass has written.
        splits: Its splits, in order.
        seed: Shuffles the documents of each split; None keeps the order of the input.
        dedup: Which duplicates are left out.
        threshold: Of minhash.
    """

    folder: Path
    splits: tuple[str, ...]
    seed: int | None
    dedup: Dedup | None
    threshold: float

    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.folder, self.splits, self.seed, self.dedup, self.threshold)
        return _orders, values

    @cached_property
    def by_split(self) -> dict[str, NDArray[np.int64]]:
        """Split -> [M] int64: the numbers of its documents that are kept, in their new order."""
        stored = {name: StoredDocuments(self.folder, name) for name in self.splits}
        numbers = {name: np.arange(len(found)) for name, found in stored.items()}
        if self.dedup is not None:
            kept = self._kept(list(stored.values()))
            bounds = np.cumsum([len(found) for found in stored.values()])[:-1]
            for name, part in zip(self.splits, np.split(kept, bounds), strict=True):
                numbers[name] = np.flatnonzero(part)
        if self.seed is None:
            return numbers
        return {name: shuffled(found, self.seed, name) for name, found in numbers.items()}

    def _kept(self, stored: list[StoredDocuments]) -> NDArray[np.bool_]:
        """Return which documents stay, over all splits: of duplicates, the first."""
        if self.dedup == "exact":
            return first_of_each(np.concatenate([found.whole(DIGEST) for found in stored]))
        parts = [part for found in stored for part in found.parts(SIGNATURE)]
        return distinct(parts, self.threshold)


def _orders(
    folder: Path,
    splits: tuple[str, ...],
    seed: int | None,
    dedup: Dedup | None,
    threshold: float,
) -> Orders:
    return Orders(folder=folder, splits=splits, seed=seed, dedup=dedup, threshold=threshold)


def shuffled(numbers: NDArray[np.int64], seed: int, split: str) -> NDArray[np.int64]:
    """Return the numbers in an order that follows from the seed and the split alone.

    Source:
        PCG64 seeded with (seed, number of the split); O'Neill, "PCG: A Family of Simple Fast
        Space-Efficient Statistically Good Algorithms for Random Number Generation", 2014.
    """
    generator = np.random.Generator(np.random.PCG64([seed, SPLITS.index(split)]))
    return numbers[generator.permutation(len(numbers))]
