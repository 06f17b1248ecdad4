"""What datasets have to agree in to be mixed, and an array that holds samples of all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loaders.dataset import ShardDataset
from loaders.errors import SelectionError
from loaders.state import tokens_each
from loaders.table_lists import ListPart
from loaders.tables import TableDataset
from loaders.token_rows import Chat, Padded
from loaders.token_views import TokenPart, TokenView, count_of
from loaders.views import Gatherable, Part, View

Split = Callable[[NDArray[np.int64]], list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]]

_FACTS: Final = ("kind", "classes", "tokenizer", "columns", "vocabularies", "arrays")
_PROBE: Final = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class MixedPart:
    """One array of a mixed batch.

    Attributes:
        parts: The array in each source.
        split_up: Indices -> source, rows of the batch, and its own indices, for each source.
        lengths: Name of the array with each sample's share, where samples lie back to back.
        widened: Whether rows of the sources may differ in width, filled up with zeros.
    """

    parts: tuple[Part, ...]
    split_up: Split
    lengths: str | None
    widened: bool

    @property
    def name(self) -> str:
        """Its key among the arrays."""
        return self.parts[0].name

    @property
    def shown_as(self) -> str:
        """What a batch calls it."""
        return self.parts[0].shown_as

    @property
    def on_device(self) -> bool:
        """Whether it travels to the device of a batch, or stays in host memory."""
        return self.parts[0].on_device

    @property
    def fixed(self) -> bool:
        """Whether every sample has one row, of the same shape."""
        widths = {part.layout(_PROBE)[0] for part in self.parts if part.fixed}
        return len(widths) == 1 and all(part.fixed for part in self.parts)

    @property
    def apart(self) -> bool:
        """Whether it can be gathered without the others."""
        return all(part.apart for part in self.parts)

    def layout(self, indices: NDArray[np.int64]) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and dtype of the array for the samples [B] of a batch."""
        found = [self.parts[s].layout(local) for s, _, local in self.split_up(indices)]
        shapes = [shape for shape, _ in found] or [self.parts[0].layout(indices)[0]]
        dtype = self.parts[0].layout(indices[:0])[1] if not found else found[0][1]
        if self.lengths is not None:
            return (sum(shape[0] for shape in shapes),), dtype
        if self.widened:
            return (len(indices), max(shape[1] for shape in shapes)), dtype
        return (len(indices), *shapes[0][1:]), dtype


def is_flat(part: Part) -> bool:
    """Say whether the samples of a batch lie back to back, instead of one in each row."""
    if isinstance(part, MixedPart):
        return is_flat(part.parts[0])
    is_count = isinstance(part, TokenPart) and part.shape is count_of
    return isinstance(part, TokenPart) and not is_count and len(part.layout(_PROBE)[0]) == 1


def is_key(part: Part) -> bool:
    """Say whether rows hold text filled up with zeros, to a width of each dataset's own."""
    if isinstance(part, MixedPart):
        return part.widened
    return isinstance(part, View) and part.field.role == "key"


def check_sources(sources: Sequence[Gatherable]) -> None:
    """Refuse sources that cannot be mixed.

    Raises:
        SelectionError: Says which, and why.
    """
    if not sources:
        raise SelectionError("a Mix needs at least one dataset with its weight")
    for dataset in sources:
        if not isinstance(dataset, Gatherable):
            raise SelectionError(
                f"a Mix holds a {type(dataset).__name__}, expected what open_dataset returns, or a "
                "view of open_tokens such as .blocks(1024)"
            )
        if not len(dataset):
            raise SelectionError(f"{dataset.path}: {dataset.split} has no samples to draw from")
        wide = _as_long_as_the_longest(dataset)
        if wide is not None:
            raise SelectionError(
                f"{dataset.path}: a table with {wide} cannot be mixed: its rows of {wide} are as "
                "long as the longest of a batch"
            )
        rows = isinstance(dataset, TokenView) and isinstance(dataset.look, Padded | Chat)
        if rows and tokens_each(dataset) is None:
            raise SelectionError(
                f"{dataset.path}: rows that are as long as the longest of a batch cannot be mixed: "
                "give length=..."
            )
    _refuse_ragged(sources)
    first = sources[0]
    for dataset in sources[1:]:
        for what, one, other in zip(_FACTS, _facts(first), _facts(dataset), strict=True):
            if one != other:
                ours, theirs = _differing(one, other)
                raise SelectionError(
                    f"{dataset.path}: {what} {theirs}, {first.path} has {ours}: only datasets that "
                    "agree in this can be mixed"
                )


def _as_long_as_the_longest(dataset: Gatherable) -> str | None:
    """Return what a table has beside its records, if anything."""
    if not isinstance(dataset, TableDataset):
        return None
    tokens = any(isinstance(part, TokenPart) for part in dataset.views)
    lists = any(isinstance(part, ListPart) for part in dataset.views)
    return "tokens" if tokens else "lists" if lists else None


def _refuse_ragged(sources: Sequence[Gatherable]) -> None:
    for dataset in sources:
        if isinstance(dataset, ShardDataset) and dataset.is_ragged:
            raise SelectionError(
                f"{dataset.path}: pictures of different sizes, and boxes, cannot be mixed"
            )


def _differing(one: Any, other: Any) -> tuple[Any, Any]:
    """Return two facts, of lists and dicts what is not in both: tables can have many columns."""
    if isinstance(one, dict) and isinstance(other, dict):
        one, other = sorted(one.items()), sorted(other.items())
    if isinstance(one, list) and isinstance(other, list):
        return [v for v in one if v not in other] or one, [
            v for v in other if v not in one
        ] or other
    return one, other


def _facts(dataset: Gatherable) -> tuple[Any, ...]:
    """Return what has to be equal in all sources, in the order of `_FACTS`."""
    classes = dataset.classes if isinstance(dataset, ShardDataset | TableDataset) else ()
    kind, tokenizer = type(dataset).__name__, None
    columns, vocabularies = dataset.coding if isinstance(dataset, TableDataset) else (None, None)
    if isinstance(dataset, TokenView):
        kind = type(dataset.look).__name__
        tokenizer = dataset.look.store.manifest.recipe.get("tokenizer_sha256")
    arrays = [_part_facts(part) for part in dataset.views]
    return kind, classes, tokenizer, columns, vocabularies, arrays


def _part_facts(part: Part) -> tuple[Any, ...]:
    shape, dtype = part.layout(_PROBE)
    varies = is_flat(part) or is_key(part)
    return part.name, str(dtype), None if varies else shape[1:]
