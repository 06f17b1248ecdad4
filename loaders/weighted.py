"""A dataset whose samples are drawn by weight."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from loaders.errors import SelectionError
from loaders.order import AS_STORED, Epoch, visit
from loaders.samples import SampleDataset
from loaders.sampling import MOST, derived_seed
from loaders.selection import Chosen
from loaders.state import fingerprint_of, tokens_each
from loaders.stretches import Stretches
from loaders.views import Part, Take, fresh

_GAMMA, _FIRST, _SECOND = (
    np.array(number, np.uint64)
    for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_BITS: Final = 53
"""Random bits of a double in 0..1."""


class Weighted:
    """Draws samples of a dataset by weight, with replacement, for a `Loader` or a `Mix`.

    As torch's `WeightedRandomSampler(weights, num_samples)`, but a draw follows from the seed of
    the `Loader`, the epoch and its number alone: ranks draw different ones of the same sequence,
    and a state of the `Loader` suffices to continue exactly, with any number of ranks.

    Drawing without replacement is what `Loader(dataset)` does: all weights alike. Of the weights 8
    bytes a sample are kept.

    Args:
        dataset: What `open_dataset`, `open_table` or a view of `open_tokens` gives, or a selection.
        weights: [len(dataset)] numbers >= 0 that need not add up to 1: array, tensor or list;
            or "balanced", where every class of the dataset is drawn as often as any other.
        num_samples: Draws in an epoch, by default as many as there are samples.

    Raises:
        SelectionError: It is no such dataset, the weights do not fit it, or it has no classes.
    """

    def __init__(
        self,
        dataset: SampleDataset,
        weights: Any | Literal["balanced"],
        num_samples: int | None = None,
    ) -> None:
        if not isinstance(dataset, SampleDataset):
            raise SelectionError(
                f"a Weighted holds a {type(dataset).__name__}, expected what open_dataset or "
                "open_table returns, or a view of open_tokens such as .blocks(1024); a Mix has "
                "weights of its own"
            )
        if dataset.groups is not None:
            raise SelectionError(
                f"{dataset.path}: draws by weight are of all buckets, and batches of one: "
                "ds.select(indices), where an index may come several times, weighs samples"
            )
        count = len(dataset) if num_samples is None else num_samples
        if type(count) is not int or not (num_samples is None or 1 <= count <= MOST):
            raise SelectionError(
                f"num_samples={num_samples!r}: expected an integer from 1 to {MOST}"
            )
        if isinstance(weights, str):
            given = _balanced(dataset, weights)
        else:
            given = _checked_weights(dataset, weights)
        self.dataset = dataset
        self._count = count
        self._ends = np.cumsum(given)  # [len(dataset)] float64
        # Rounding may lead up to the very end, which is beyond the last that can be drawn.
        self._last = int(np.flatnonzero(given)[-1])

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Weighted({len(self):,} draws an epoch of {self.dataset!r})"

    @property
    def path(self) -> Path:
        """The dataset's folder."""
        return self.dataset.path

    @property
    def split(self) -> str:
        """The split's name."""
        return self.dataset.split

    @property
    def views(self) -> tuple[Part, ...]:
        """The arrays of a batch."""
        return self.dataset.views

    @property
    def span(self) -> int:
        """Stored samples: indices lie below."""
        return self.dataset.span

    @property
    def indices(self) -> Chosen:
        """The stored index of each sample of the dataset."""
        return self.dataset.indices

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the dataset, the weights and the draws in an epoch."""
        weights = hashlib.sha256(self._ends.astype("<f8", copy=False).data).hexdigest()
        facts = [fingerprint_of(self.dataset), weights, len(self)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    @property
    def tokens_each(self) -> int | None:
        """Tokens in every sample; None where that differs."""
        return tokens_each(self.dataset)

    def order(self, positions: NDArray[np.int64], epoch: Epoch) -> NDArray[np.int64]:
        """Return the stored index of the sample that each position [B] of an epoch draws.

        Raises:
            SelectionError: The order is not to be random, or blocks of neighbours.
        """
        if not epoch.shuffle or epoch.window is not None:
            asked = '"block"' if epoch.shuffle else "False"
            raise SelectionError(
                f"{self.path}: shuffle={asked}, but draws by weight are random over the whole "
                "dataset: leave shuffle out"
            )
        places = uniform(positions, epoch.seed, epoch.number) * self._ends[-1]
        drawn = np.minimum(np.searchsorted(self._ends, places, side="right"), self._last)
        return visit(self.dataset, drawn, AS_STORED)

    def stretches(self, indices: NDArray[np.int64]) -> Iterator[Stretches]:
        """Yield the parts of maps that a gather of ascending stored indices [B] reads."""
        return self.dataset.stretches(indices)

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy what belongs to stored indices [B] into arrays of the parts' layouts."""
        self.dataset.gather_into(indices, buffers)

    def all_stretches(self) -> Iterator[Stretches]:
        """Yield the parts of maps that batches read."""
        return self.dataset.all_stretches()

    @property
    def made_nbytes(self) -> int:
        """Bytes that `show` makes of a sample."""
        return self.dataset.made_nbytes

    def show(self, rows: Mapping[str, Tensor], take: Take = fresh) -> Mapping[str, Any]:
        """Turn filled arrays into a batch as the dataset would."""
        return self.dataset.show(rows, take)


def _balanced(dataset: SampleDataset, weights: str) -> NDArray[np.float64]:
    if weights != "balanced":
        raise SelectionError(f'weights={weights!r}: expected "balanced" or one number a sample')
    labels = dataset.read_labels()
    if not len(labels):
        raise SelectionError(f"{dataset.path}: {dataset.split} has no samples to draw from")
    counts = np.bincount(labels, minlength=1)
    return np.divide(1.0, np.maximum(counts, 1), dtype=np.float64).take(labels)


def _checked_weights(dataset: SampleDataset, weights: Any) -> NDArray[np.float64]:
    if isinstance(weights, Tensor):
        weights = weights.detach().cpu()
    try:
        given = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise SelectionError(f"{dataset.path}: weights are no numbers: {error}") from error
    if given.shape != (len(dataset),):
        raise SelectionError(
            f"{dataset.path}: weights of shape {list(given.shape)} for {len(dataset)} samples: "
            "give one number for each"
        )
    bad = np.flatnonzero(~((given >= 0) & (given < np.inf)))
    if len(bad):
        raise SelectionError(
            f"{dataset.path}: weight {given[bad[0]]} of sample {bad[0]}: expected a number >= 0"
        )
    with np.errstate(over="ignore"):
        total = float(given.sum())
    if not 0 < total < np.inf:
        raise SelectionError(
            f"{dataset.path}: weights add up to {total}: expected a positive number"
        )
    return given


def uniform(positions: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.float64]:
    """Return a random number for each position [B] of an epoch: float64 in 0..1, without 1.

    Source:
        Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014: SplitMix64,
        counted by the position.
    """
    key = np.array(derived_seed(seed, epoch), np.uint64)
    mixed = positions.astype(np.uint64) * _GAMMA + key
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * factor
    mixed ^= mixed >> np.uint64(31)
    return ((mixed >> np.uint64(64 - _BITS)) * 2.0**-_BITS).astype(np.float64, copy=False)
