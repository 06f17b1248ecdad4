"""The columns of texts of a table: their tokens in a batch, filled up to the longest of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from loaders.errors import FormatError, SelectionError
from loaders.format.spec import Manifest
from loaders.format.strict import Place
from loaders.format.table_schema import ColumnSpec
from loaders.stretches import Stretches
from loaders.token_rows import Padded, Width
from loaders.token_store import LENGTH, TOKENS, TokenStore
from loaders.token_views import Labels, TokenPart, widen
from loaders.views import Part, Take

_TEXT: Final = "text"
"""Key of the recipe: the columns whose tokens are stored, in the order of their fields."""


@dataclass(frozen=True, slots=True)
class TextEntry:
    """One column of texts.

    Attributes:
        padded: Its tokens.
        names: Called "tokens" and "length" by these, what a batch, and its arrays, call them.
    """

    padded: Padded
    names: Mapping[str, str]

    def parts(self) -> Iterator[Part]:
        """Yield its arrays of a batch."""
        for part in self.padded.parts():
            yield replace(part, name=self.names[part.name]) if isinstance(part, TokenPart) else part

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Fill them."""
        named = {own: buffers[name] for own, name in self.names.items()}
        self.padded.gather_into(indices, named)


@dataclass(frozen=True, slots=True)
class TableTexts:
    """Adds what a batch of a table has of its texts.

    Attributes:
        entries: One a column.
    """

    entries: tuple[TextEntry, ...]

    @property
    def length_names(self) -> tuple[str, ...]:
        """Entries of a batch that say how many tokens there are."""
        return tuple(entry.names[LENGTH] for entry in self.entries)

    def parts(self) -> tuple[Part, ...]:
        """Return the arrays of a batch."""
        return tuple(part for entry in self.entries for part in entry.parts())

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Fill them."""
        for entry in self.entries:
            entry.gather_into(indices, buffers)

    def stretches(self, indices: NDArray[np.int64] | None) -> Iterator[Stretches]:
        """Yield the parts of maps in which they lie, of ascending stored indices [B]."""
        for entry in self.entries:
            yield from entry.padded.stretches(indices)

    def show(self, rows: Mapping[str, Tensor], take: Take) -> dict[str, Tensor]:
        """Return the tokens, [B, L] int64, and counts, [B] int64, in memory of their own."""
        shown: dict[str, Tensor] = {}
        for entry in self.entries:
            tokens, length = entry.names[TOKENS], entry.names[LENGTH]
            shown |= {tokens: widen(rows[tokens], take), length: rows[length].clone()}
        return shown


def text_entries(names: Sequence[str]) -> list[dict[str, str]]:
    """Return what a batch calls "tokens" and "length" of each column of texts: of one as they are.

    Args:
        names: Of the columns.
    """
    if len(names) == 1:
        return [{TOKENS: TOKENS, LENGTH: LENGTH}]
    return [{own: f"{name}_{own}" for own in (TOKENS, LENGTH)} for name in names]


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
    fields = [field.name for field in manifest.splits[split].fields if field.role == TOKENS]
    columns = Place(f"{path}: recipe").at(_TEXT).texts(manifest.recipe.get(_TEXT, []))
    names = text_entries(columns)
    if len(names) != len(fields):
        raise FormatError(f"{path}: {len(names)} columns of texts, and the fields {fields}")
    taken = {spec.name for spec in vectors}
    found = []
    for field, entry in zip(sorted(fields), names, strict=True):
        if taken & {*entry.values()}:
            raise SelectionError(
                f"{path}: a list column is called {entry[TOKENS]!r} or {entry[LENGTH]!r}, as "
                "entries of batches are: give it another name and prepare the table again"
            )
        store = TokenStore(path, split, name=field, verify=verify)
        ids = (store.tokenizer_id("pad_id"), store.tokenizer_id("eos_id"), 0)
        fill = next(number for number in ids if number is not None)
        found.append(TextEntry(Padded(store, Width(None, 1), fill, Labels(store)), entry))
    return TableTexts(tuple(found))
