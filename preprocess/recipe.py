"""The protocol between the engine and one kind of raw data."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from loaders.format.fields import FieldSpec
from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item, Listing

REDONE: Final = "redone_shards"
"""Tally of shards whose first result was not to be trusted."""


class Ragged(NamedTuple):
    """Samples of different lengths.

    Attributes:
        values: [total, *shape] all values back to back.
        counts: [N] int64: values of each sample.
    """

    values: NDArray[Any]
    counts: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some samples, in the order of their items.

    Attributes:
        count: N samples.
        arrays: Field name -> [N, *shape] of the field's dtype, or ragged.
        skipped: Parts of items that could not become samples, in order.
        tallies: What was counted on the way: name -> a row of sums.
        more: The rest of the same item follows; an error that comes instead takes these back.
    """

    count: int
    arrays: Mapping[str, NDArray[Any] | Ragged]
    skipped: tuple[SampleError, ...] = ()
    tallies: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    more: bool = False


class Maker(Protocol):
    """What makes samples in one process, with all that it takes loaded; used by many threads."""

    def samples(self, files: ItemFiles, items: Sequence[Item]) -> Iterator[Rows | SampleError]:
        """Yield the samples of the items, in order; an item that is bad as a whole is an error.

        Where each item is one sample, every item yields its row or its error.
        """
        ...


class Recipe(Protocol):
    """How one kind of raw data becomes samples. A frozen, picklable dataclass of plain options."""

    @property
    def kind(self) -> str:
        """Name of the modality; the loader picks the reading side by it."""
        ...

    def options(self) -> dict[str, Any]:
        """Return everything that changes bytes, as JSON values; it is recorded and hashed."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return what else a reader should know, as JSON values; it is recorded beside them."""
        ...

    def backend(self, listing: Listing, workers: int) -> str:
        """Return the joblib backend that suits these items on that many workers."""
        ...

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return what every sample will hold."""
        ...

    @property
    def one_to_one(self) -> bool:
        """Whether every item is one sample of fixed size, unless it is bad."""
        ...

    def expected_nbytes(self, item: Item) -> int:
        """Return the bytes that the samples of an item take; exact where it is one sample.

        Those of all recipes that share it. Shards are cut by it: it must never change.
        """
        ...

    def predicted_nbytes(self, item: Item) -> float:
        """Return the same of this recipe alone, as far as it is known by now: what is foretold."""
        ...

    def too_large(self, item: Item) -> SampleError | None:
        """Return why an item is left out by its size alone, before it is read; None if it is not.

        Shards have places for such items all the same, so that what is in which follows from the
        listing alone.
        """
        ...

    def refusal(self, tallies: Mapping[str, tuple[int, ...]]) -> str | None:
        """Return what makes samples with these tallies of no use as a whole, if anything."""
        ...

    def notes(self, tallies: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
        """Return what these tallies, over all splits, tell that the user should know."""
        ...

    def opened(self) -> AbstractContextManager[Maker]:
        """Return what makes the samples, and holds this process's libraries as it wants them.

        Entered once per process at a time, around all threads that make samples.
        """
        ...


class Redo(Exception):  # noqa: N818
    """What has been made of a shard is not to be trusted: it is to be made again, differently.

    Attributes:
        recipe: What to make it with.
    """

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe.kind)
        self.recipe = recipe


def cut_items(
    items: Sequence[Item], recipe: Recipe, nbytes: int, most: int | None = None
) -> list[tuple[Item, ...]]:
    """Cut a list of items where their samples would pass so many bytes, or `most` items.

    Each part has at least one item; where items are one sample each, all but the last are equal.
    """
    if recipe.one_to_one and items:
        step = max(1, min(most or len(items), nbytes // recipe.expected_nbytes(items[0])))
        return [tuple(items[i : i + step]) for i in range(0, len(items), step)]
    parts: list[tuple[Item, ...]] = []
    first, filled = 0, 0
    for index, item in enumerate(items):
        size = recipe.expected_nbytes(item)
        if index > first and (filled + size > nbytes or index - first == most):
            parts.append(tuple(items[first:index]))
            first, filled = index, 0
        filled += size
    return [*parts, tuple(items[first:])] if items else []
