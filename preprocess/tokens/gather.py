"""The second pass: documents of the first one, in their new order -> rows of samples."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.format.fields import FieldSpec
from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item, Listing
from preprocess.recipe import Maker, Ragged, Recipe, Rows
from preprocess.tokens.documents import StoredDocuments
from preprocess.tokens.first import PAIR_TOKENS, TEXT_NBYTES
from preprocess.tokens.layouts import AnyLayout, Encoded, LaidOut
from preprocess.tokens.maker import join_lines, tally
from preprocess.tokens.order import Orders
from preprocess.tokens.runs import starts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherRecipe:
    """How stored documents become the samples that another recipe describes.

    An item is a range of places in the new order.

    Attributes:
        final: Describes the samples.
        layout: What is stored of a document.
        orders: Where the documents are, and in which order they come.
        split: The split's name.
        unknown: Id of what the tokenizer does not know.
        carried: What the first pass has counted; recorded once.
    """

    final: Recipe
    layout: AnyLayout
    orders: Orders
    split: str
    unknown: int | None
    carried: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def kind(self) -> str:
        """Name of the modality."""
        return self.final.kind

    def options(self) -> dict[str, Any]:
        """Return everything that changes bytes, as JSON values."""
        return self.final.options()

    def facts(self) -> dict[str, Any]:
        """Return what else a reader should know."""
        return self.final.facts()

    def backend(self, listing: Listing, workers: int) -> str:  # noqa: ARG002
        """Choose threads: copying releases the interpreter's lock."""
        return "threading"

    @property
    def one_to_one(self) -> bool:
        """A range holds any number of documents."""
        return False

    def expected_nbytes(self, item: Item) -> int:
        """Return about the bytes of an item's samples."""
        return item.nbytes

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return what every sample will hold."""
        return self.final.fields()

    def predicted_nbytes(self, item: Item) -> float:
        """Return the same: all samples are its own."""
        return self.expected_nbytes(item)

    def too_large(self, item: Item) -> SampleError | None:  # noqa: ARG002
        """Return None: the documents have been read already."""
        return None

    def refusal(self, tallies: Mapping[str, tuple[int, ...]]) -> str | None:
        """Return what makes the samples of no use as a whole, if anything."""
        return self.final.refusal(tallies)

    def notes(self, tallies: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
        """Return what these tallies tell that the user should know."""
        return self.final.notes(tallies)

    @contextmanager
    def opened(self) -> Iterator[Maker]:
        """Map the documents."""
        yield _Gatherer(
            recipe=self,
            documents=StoredDocuments(self.orders.folder, self.split),
            order=self.orders.by_split[self.split],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gatherer:
    recipe: GatherRecipe
    documents: StoredDocuments
    order: NDArray[np.int64]

    def samples(self, files: ItemFiles, items: Sequence[Item]) -> Iterator[Rows | SampleError]:  # noqa: ARG002
        """Yield the samples of the ranges, in order."""
        for item in items:
            yield self._rows(self.order[item.start : item.stop], first=item.start == 0)

    def _rows(self, chosen: NDArray[np.int64], *, first: bool) -> Rows:
        stored = self.documents
        encoded = self._encoded(chosen)
        laid_out = self.recipe.layout.lay_out(encoded)
        nbytes = int(stored.rows(TEXT_NBYTES, chosen).view("<u8").sum())
        tallies = tally(encoded, laid_out, nbytes, self.recipe.unknown)
        tallies.update(self.recipe.carried if first else ())
        keys = stored.ragged("key", chosen)
        arrays = dict(laid_out.arrays)
        arrays["key"] = _of_samples(keys, laid_out)
        if stored.has("metadata"):
            arrays["metadata"] = _of_samples(stored.ragged("metadata", chosen), laid_out)
        return Rows(
            count=laid_out.count, arrays=arrays, skipped=_skipped(laid_out, keys), tallies=tallies
        )

    def _encoded(self, chosen: NDArray[np.int64]) -> Encoded:
        ids, counts = self.documents.ragged("tokens", chosen)
        pair_ids = pair_counts = bits = bit_counts = None
        if self.documents.has(PAIR_TOKENS):
            pair_ids, pair_counts = self.documents.ragged(PAIR_TOKENS, chosen)
        if self.documents.has("loss_mask"):
            bits, bit_counts = self.documents.ragged("loss_mask", chosen)
        return Encoded(
            ids=ids,
            counts=counts,
            pair_ids=pair_ids,
            pair_counts=pair_counts,
            bits=bits,
            bit_counts=bit_counts,
        )


def _skipped(laid_out: LaidOut, keys: Ragged) -> tuple[SampleError, ...]:
    starts = starts_of(keys.counts)
    return tuple(
        SampleError(
            keys.values[starts[i] : starts[i + 1]].tobytes().decode(errors="surrogateescape"), why
        )
        for i, why in laid_out.refused.items()
    )


def _of_samples(lines: Ragged, laid_out: LaidOut) -> Ragged:
    """Return the lines of each sample's documents."""
    alone = laid_out.count == len(lines.counts) and bool((laid_out.document_counts == 1).all())
    if alone and np.array_equal(laid_out.documents, np.arange(laid_out.count)):
        return lines
    bounds = starts_of(lines.counts).tolist()
    data = lines.values.tobytes()
    cut = [data[bounds[i] : bounds[i + 1]] for i in range(len(lines.counts))]
    return join_lines(cut, laid_out)
