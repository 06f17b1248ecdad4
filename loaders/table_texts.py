"""The column of texts of a table: its tokens in a batch, filled up to the longest of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from loaders.errors import SelectionError
from loaders.format.spec import Manifest
from loaders.format.table_schema import ColumnSpec
from loaders.token_rows import Padded, Width
from loaders.token_store import LENGTH, TOKENS, TokenStore
from loaders.token_views import Labels, widen
from loaders.views import Part, Take


@dataclass(frozen=True, slots=True)
class TableTexts:
    """Adds what a batch of a table has of its texts.

    Attributes:
        padded: Their tokens; None where the table has no column of texts.
    """

    padded: Padded | None

    @property
    def stored_nbytes(self) -> int:
        """Bytes of their files."""
        return 0 if self.padded is None else self.padded.store.stored_nbytes

    def maps(self) -> Iterator[NDArray[Any]]:
        """Open these."""
        return iter(()) if self.padded is None else self.padded.store.maps()

    def parts(self) -> tuple[Part, ...]:
        """Return the arrays of a batch."""
        return () if self.padded is None else self.padded.parts()

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Fill them."""
        if self.padded is not None:
            self.padded.gather_into(indices, buffers)

    def stretches(self, indices: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
        """Yield the parts of maps in which they lie, of ascending stored indices [B]."""
        if self.padded is not None:
            yield from self.padded.stretches(indices)

    def show(self, rows: Mapping[str, Tensor], take: Take) -> dict[str, Tensor]:
        """Return "tokens", [B, L] int64, and "length", [B] int64, in memory of their own."""
        if self.padded is None:
            return {}
        return {TOKENS: widen(rows[TOKENS], take), LENGTH: rows[LENGTH].clone()}


def open_texts(
    path: Path, split: str, manifest: Manifest, vectors: Sequence[ColumnSpec], *, verify: bool
) -> TableTexts:
    """Open the texts of a split.

    Args:
        path: The dataset's folder.
        split: One of its splits.
        manifest: Its description.
        vectors: Columns that are entries of their own.
        verify: Compare checksums when shards are first touched.

    Raises:
        SelectionError: One of these has the name of an entry.
        FormatError: The tokens are not what they should be.
    """
    if TOKENS not in {field.name for field in manifest.splits[split].fields}:
        return TableTexts(None)
    if {TOKENS, LENGTH} & {spec.name for spec in vectors}:
        raise SelectionError(
            f"{path}: a list column is called {TOKENS!r} or {LENGTH!r}, as entries of batches are: "
            "give it another name and prepare the table again"
        )
    store = TokenStore(path, split, verify=verify)
    ids = (store.tokenizer_id("pad_id"), store.tokenizer_id("eos_id"), 0)
    fill = next(number for number in ids if number is not None)
    return TableTexts(Padded(store, Width(None, 1), fill, Labels(store)))
