"""Several datasets as one, drawn from in proportion to weights."""

import hashlib
import json
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from loaders.announce import Stretched
from loaders.errors import SelectionError
from loaders.mix_sources import MixedPart, check_sources, is_flat, is_key
from loaders.order import Epoch, visit
from loaders.proportion import DRAWS, Proportion
from loaders.sampling import MOST, derived_seed
from loaders.selection import Chosen, stored_indices, taken_once
from loaders.state import fingerprint_of, tokens_each
from loaders.stretches import Stretches
from loaders.views import Gatherable, Part, Take, fresh, mapped, span
from loaders.weighted import Weighted


class Mix:
    """Several datasets of the same kind, drawn from in proportion to weights, for a `Loader`.

    Draws are spread evenly: after any n draws, also in the midst of an epoch, a source of weight w
    has given n * w samples, less or more by below 2 (by at most 1 for up to three sources). Each
    source is visited in an order of its own, whole before anything of it comes again, and goes on
    in the next epoch of the mix where the last one ended. All of it follows from the number of a
    draw alone, so a state of the `Loader` suffices to continue exactly.

    `Loader(mix, ..., shuffle=False)` visits each source as stored; the weights hold all the same.
    Indices count through the samples of the sources, one source after the other.

    Args:
        sources: Dataset -> weight, or pairs of them where one dataset comes twice. Weights are
            positive and need not add up to 1.
        seed: Any integer >= 0; with the seed of the `Loader` it fixes the order of each source.
        epoch_size: Draws in an epoch. By default as many as it takes until every source was seen
            whole: once that which is largest for its weight, the others more often.

    Raises:
        SelectionError: There is no source, a weight is not positive, or the sources do not fit
            together.
    """

    def __init__(
        self,
        sources: Mapping[Gatherable, float] | Sequence[tuple[Gatherable, float]],
        *,
        seed: int = 0,
        epoch_size: int | None = None,
    ) -> None:
        pairs = [*(sources.items() if isinstance(sources, Mapping) else sources)]
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise SelectionError(
                    f"a Mix holds a {type(pair).__name__}, expected pairs (dataset, weight)"
                )
        self.sources: tuple[Gatherable, ...] = tuple(dataset for dataset, _ in pairs)
        check_sources([_plain(dataset) for dataset in self.sources])
        for dataset, weight in pairs:
            if not isinstance(weight, int | float) or not 0 < weight < math.inf:
                raise SelectionError(
                    f"{dataset.path}: weight {weight!r}, expected a positive number"
                )
        for name, value, least in (("seed", seed, 0), ("epoch_size", epoch_size, 1)):
            if value is not None and (type(value) is not int or value < least):
                raise SelectionError(f"{name}={value!r}: expected an integer of at least {least}")
        self.seed = seed
        self._proportion = Proportion([weight for _, weight in pairs])
        self._count = self._until_all_seen() if epoch_size is None else epoch_size
        if self._count > MOST:
            raise SelectionError(
                f"an epoch of {self._count} draws, up to {MOST} can be: give a smaller epoch_size"
            )
        self._ends = np.cumsum([span(dataset) for dataset in self.sources], dtype=np.int64)
        self._starts = np.concatenate(([0], self._ends[:-1]))
        self.views: tuple[Part, ...] = tuple(self._mixed_parts())

    def _until_all_seen(self) -> int:
        def seen(draws: int) -> bool:
            counts = self._proportion.counts(draws)
            return all(c >= len(s) for c, s in zip(counts, self.sources, strict=True))

        return bisect_left(range(MOST + 1), True, key=seen)  # noqa: FBT003

    def _mixed_parts(self) -> Iterator[MixedPart]:
        names = {part.name for part in self.sources[0].views}
        for parts in zip(*(dataset.views for dataset in self.sources), strict=True):
            lengths = None
            if is_flat(parts[0]):
                own = f"{parts[0].name}_lengths"
                lengths = own if own in names else "lengths"
                if lengths not in names:
                    raise SelectionError(
                        f"{self.sources[0].path}: {parts[0].name!r} of a batch cannot be mixed; "
                        "blocks, documents, and rows and chats of a fixed length can"
                    )
            yield MixedPart(parts, self.split_up, lengths, is_key(parts[0]))

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        total = sum(self._proportion.shares)
        shares = ", ".join(
            f"{share / total:.4g} of {dataset!r}"
            for share, dataset in zip(self._proportion.shares, self.sources, strict=True)
        )
        return f"Mix({len(self):,} samples an epoch: {shares})"

    @property
    def path(self) -> Path:
        """The folders of the sources, for errors."""
        return Path(" + ".join(str(dataset.path) for dataset in self.sources))

    @property
    def split(self) -> str:
        """The splits of the sources."""
        return " + ".join(dict.fromkeys(dataset.split for dataset in self.sources))

    @property
    def span(self) -> int:
        """Samples of all sources: indices lie below."""
        return int(self._ends[-1])

    @property
    def indices(self) -> Chosen:
        """Indices of the samples that can be drawn, each once, ascending."""
        taken = [taken_once(dataset) for dataset in self.sources]
        if sum(map(len, taken)) == self.span:
            return range(self.span)
        places = [np.arange(len(one), dtype=np.int64) for one in taken]
        own = map(stored_indices, taken, places)
        return np.concatenate([a + b for a, b in zip(own, self._starts, strict=True)])

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the sources, their weights, the seed, and the length of an epoch."""
        prints = [fingerprint_of(dataset) for dataset in self.sources]
        facts = [prints, self._proportion.shares, self.seed, len(self)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    @property
    def tokens_each(self) -> int | None:
        """Tokens in every sample; None where that differs."""
        return tokens_each(self.sources[0])  # rows of all sources are alike

    def order(self, positions: NDArray[np.int64], epoch: Epoch) -> NDArray[np.int64]:
        """Return the index of the sample that each position of an epoch draws.

        Args:
            positions: [B] integers in 0..len-1.
            epoch: Of the `Loader`; each source is visited in the same kind of order.

        Raises:
            SelectionError: There were more draws by then than can be numbered.
        """
        if (epoch.number + 1) * len(self) > DRAWS:
            raise SelectionError(
                f"epoch={epoch.number}: up to {DRAWS} samples can be drawn from a Mix"
            )
        for dataset in self.sources:  # one may refuse the order, before the first is drawn of it
            visit(dataset, positions[:0], epoch)
        chosen, earlier = self._proportion.draws(positions + epoch.number * len(self))
        found = np.empty(len(positions), np.int64)
        for s in np.unique(chosen).tolist():
            dataset, own_seed = self.sources[s], derived_seed(epoch.seed, self.seed, s)
            rows = np.flatnonzero(chosen == s)
            passes, places = np.divmod(earlier[rows], len(dataset))
            for number in np.unique(passes).tolist():
                now = passes == number
                own = replace(epoch, seed=own_seed, number=number)
                indices = visit(dataset, places[now], own)
                found[rows[now]] = self._starts[s] + indices
        return found

    def split_up(
        self, indices: NDArray[np.int64]
    ) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Return each source in a batch, its rows of the batch, and its own indices for them."""
        chosen = np.searchsorted(self._ends, indices, side="right")
        found = []
        for s in np.unique(chosen).tolist():
            rows = np.flatnonzero(chosen == s)
            found.append((s, rows, indices[rows] - self._starts[s]))
        return found

    def stretches(self, indices: NDArray[np.int64]) -> Iterator[Iterable[NDArray[Any]]]:
        """Yield the parts of maps that a gather of ascending indices [B] reads, where known."""
        for s, _, local in self.split_up(indices):
            dataset = self.sources[s]
            if isinstance(dataset, Stretched):
                yield from dataset.stretches(local)

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Gather once from each source, and put the samples where the draws want them.

        Args:
            indices: [B] integers in 0..span-1.
            buffers: An array for each of `views`, of its layout for these indices, C-contiguous;
                those of parts that can be gathered apart may be missing.
        """
        pieces: dict[str, list[NDArray[Any]]] = {
            part.name: [np.empty(0)] * len(indices) for part in self._flat()
        }
        for s, rows, local in self.split_up(indices):
            dataset = self.sources[s]
            wanted = [part for part in dataset.views if part.name in buffers]
            own = {part.name: np.empty(*part.layout(local)) for part in wanted}
            dataset.gather_into(local, own)
            for name, values in own.items():
                if name not in pieces:
                    _put_rows(buffers[name], rows, values)
            for part in self._flat():
                ends = np.cumsum(own[str(part.lengths)])[:-1]
                for row, piece in zip(rows.tolist(), np.split(own[part.name], ends), strict=True):
                    pieces[part.name][row] = piece
        for name, found in pieces.items():
            if found:
                np.concatenate(found, out=buffers[name])

    def _flat(self) -> list[MixedPart]:
        return [p for p in self.views if isinstance(p, MixedPart) and p.lengths is not None]

    def all_stretches(self) -> Iterator[Stretches]:
        """Yield the parts of maps that batches read of each source."""
        for dataset in self.sources:
            yield from mapped(dataset).all_stretches()

    @property
    def made_nbytes(self) -> int:
        """Bytes that `show` makes of a sample."""
        return self.sources[0].made_nbytes

    def show(self, rows: Mapping[str, Tensor], take: Take = fresh) -> Mapping[str, Any]:
        """Turn filled arrays into a batch as each of the sources would."""
        return self.sources[0].show(rows, take)


def _put_rows(buffer: NDArray[Any], rows: NDArray[np.int64], values: NDArray[Any]) -> None:
    if buffer.shape[1:] == values.shape[1:]:
        buffer[rows] = values
    else:
        buffer[rows] = 0
        buffer[rows, : values.shape[1]] = values


def _plain(dataset: Gatherable) -> Gatherable:
    """Return what is drawn from: of a mix one of its sources, which are all alike."""
    if isinstance(dataset, Weighted):
        return dataset.dataset
    return _plain(dataset.sources[0]) if isinstance(dataset, Mix) else dataset
