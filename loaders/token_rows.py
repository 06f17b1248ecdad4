"""One row a sample, filled up to a common length: for encoders and for chat."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.errors import SelectionError
from loaders.stretches import Stretches
from loaders.token_blocks import IGNORED
from loaders.token_store import LENGTH, LOSS_MASK, PAIR_START, TOKENS, TokenStore
from loaders.token_views import Labels, TokenPart, count_of, first_of, widen
from loaders.views import Part, Take

_MASK: Final = "attention_mask"


@dataclass(frozen=True, slots=True)
class Width:
    """How long the rows of a batch are: all alike, or as the longest sample needs.

    Attributes:
        length: Of every row; longer samples are cut. None: of the longest in the batch.
        multiple: The longest is rounded up to a multiple of it.
    """

    length: int | None
    multiple: int

    def of(self, lengths: NDArray[np.int64], most: int | None = None) -> int:
        """Return the length of the rows of a batch; at most `most` if it is not fixed."""
        if self.length is not None:
            return self.length
        longest = int(lengths.max(initial=0))
        wide = -(-longest // self.multiple) * self.multiple
        return wide if most is None else min(wide, most)


def checked_width(store: TokenStore, length: int | None, multiple: int | None) -> Width:
    """Return the chosen width of rows.

    Raises:
        SelectionError: The options are out of range, exclude each other, or ask for longer rows
            than are stored.
    """
    for name, value in (("length", length), ("multiple", multiple)):
        if value is not None and (type(value) is not int or value < 1):
            raise SelectionError(f"{name}={value!r}: expected an integer of at least 1")
    if length is not None and multiple is not None:
        raise SelectionError(
            f"length={length} fixes every row, multiple={multiple} follows the longest of a batch: "
            "give one of them"
        )
    if store.layout != "fixed":
        return Width(length, multiple or 1)
    if length is not None and length > store.width:
        raise SelectionError(
            f"{store.path}: length={length}, rows of {store.width} ids are stored: use a smaller "
            "length, or prepare the text again with --layout fixed --length"
        )
    chosen = length or (None if multiple else store.width)
    return Width(chosen, multiple or 1)


@dataclass(frozen=True, slots=True)
class Padded:
    """Rows of ids and a mask of the real ones; see `TokenDataset.padded`.

    Attributes:
        store: Where the tokens lie, layout stream, chat or fixed.
        width: Of the rows.
        fill: Stands after a sample's last token, where the row has none stored.
        labels: What names the samples.
    """

    store: TokenStore
    width: Width
    fill: int
    labels: Labels

    @property
    def count(self) -> int:
        """Rows."""
        return len(self.store)

    def parts(self) -> tuple[Part, ...]:
        """Return the rows of ids, the lengths, and what names the samples."""
        fixed = self.width.length is not None
        rows = TokenPart(TOKENS, self.store.dtype, self.shape, fixed=fixed)
        lengths = TokenPart(LENGTH, np.dtype(np.int64), count_of, fixed=fixed)
        if not self._paired:
            return (rows, lengths, *self.labels.parts())
        pairs = TokenPart(PAIR_START, np.dtype(np.int64), count_of, fixed=fixed)
        return (rows, lengths, pairs, *self.labels.parts())

    @property
    def _paired(self) -> bool:
        return PAIR_START in self.store.fields

    def shape(self, indices: NDArray[np.int64]) -> tuple[int, ...]:
        """Return the shape of the rows of a batch."""
        if self.width.length is not None:  # without a look at the samples
            return len(indices), self.width.length
        most = self.store.width if self.store.layout == "fixed" else None
        return len(indices), self.width.of(self._lengths(indices), most)

    def _lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.store.layout != "fixed":
            return self.store.columns.lengths(TOKENS, indices)
        lengths = self._numbers(LENGTH, indices)
        if lengths.max(initial=0) > self.store.width:
            bad = int(np.argmax(lengths))
            what = f"{lengths[bad]} tokens in a row of {self.store.width}"
            raise self.store.columns.broken(LENGTH, int(indices[bad]), what)
        return lengths

    def _numbers(self, name: str, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number that is stored of each sample."""
        found = np.empty(len(indices), self.store.fields[name].numpy_dtype)
        self.store.columns.rows_into(name, indices, found)
        return found.astype(np.int64)

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy the samples out of the maps, each to the start of its row."""
        rows, columns = buffers[TOKENS], self.store.columns
        wide = rows.shape[1]
        if self.store.layout != "fixed":
            rows.fill(self.fill)
            lengths = columns.lists_into(TOKENS, indices, rows)
        else:
            lengths = self._lengths(indices)
            whole = rows
            if wide < self.store.width:
                whole = np.empty((len(rows), self.store.width), rows.dtype)
            columns.rows_into(TOKENS, indices, whole)
            if whole is not rows:
                rows[...] = whole[:, :wide]
        np.minimum(lengths, wide, out=buffers[LENGTH])
        if self._paired:
            buffers[PAIR_START][:] = self._numbers(PAIR_START, indices)
        self.labels.gather_into(indices, buffers)

    def stretches(self, indices: NDArray[np.int64] | None) -> Iterator[Stretches]:
        """Yield the parts of maps in which the samples, ascending, lie."""
        numbers = (name for name in (LENGTH, PAIR_START) if name in self.store.fields)
        return self.store.columns.stretches((TOKENS, *numbers, *self.labels.names), indices)

    @property
    def made_nbytes(self) -> int:
        """Return 0: it differs from sample to sample."""
        return 0

    def show(self, rows: Mapping[str, Tensor], take: Take) -> dict[str, Any]:
        """Return ids [B, L] int64, the mask of the real ones [B, L] bool, and what names them."""
        ids = widen(rows[TOKENS], take)
        places = torch.arange(ids.shape[1], device=ids.device)
        mask = places < rows[LENGTH][:, None]
        shown = {"input_ids": ids, _MASK: mask}
        if self._paired:
            second = mask & (places >= rows[PAIR_START][:, None])
            shown["token_type_ids"] = second.to(torch.int64)
        return {**shown, **self.labels.show(rows)}

    def sample(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the only sample of a batch of one."""
        return first_of(batch)


@dataclass(frozen=True, slots=True)
class Chat:
    """Padded conversations and their labels; see `TokenDataset.chat`."""

    padded: Padded

    @property
    def store(self) -> TokenStore:
        """Where the tokens lie."""
        return self.padded.store

    @property
    def count(self) -> int:
        """Conversations."""
        return self.padded.count

    def parts(self) -> tuple[Part, ...]:
        """Return the padded rows, and one byte a token that says whether it is learned."""
        fixed = self.padded.width.length is not None
        learned = TokenPart(LOSS_MASK, np.dtype(np.uint8), self.padded.shape, fixed=fixed)
        return (*self.padded.parts(), learned)

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy tokens, and unpack the bits of the loss mask."""
        self.padded.gather_into(indices, buffers)
        columns = self.store.columns
        lengths = columns.lengths(TOKENS, indices).tolist()
        learned = buffers[LOSS_MASK]
        learned.fill(0)
        wide = learned.shape[1]
        packed = columns.slices(LOSS_MASK, indices)
        for place, (bits, length) in enumerate(zip(packed, lengths, strict=True)):
            if len(bits) != -(-length // 8):
                what = f"{len(bits)} bytes of loss mask for {length} tokens"
                raise columns.broken(LOSS_MASK, int(indices[place]), what)
            kept = min(length, wide)
            learned[place, :kept] = np.unpackbits(bits, count=kept, bitorder="little")

    def stretches(self, indices: NDArray[np.int64] | None) -> Iterator[Stretches]:
        """Yield the parts of maps in which the conversations, ascending, lie."""
        yield from self.padded.stretches(indices)
        yield from self.store.columns.stretches((LOSS_MASK,), indices)

    @property
    def made_nbytes(self) -> int:
        """Return 0: it differs from sample to sample."""
        return 0

    def show(self, rows: Mapping[str, Tensor], take: Take) -> dict[str, Any]:
        """Return tokens, labels and the mask of the real tokens, each [B, L]."""
        shown = self.padded.show(rows, take)
        tokens = shown.pop("input_ids")
        labels = tokens.masked_fill(rows[LOSS_MASK] == 0, IGNORED)
        return {TOKENS: tokens, "labels": labels, **shown}

    def sample(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the only sample of a batch of one."""
        return self.padded.sample(batch)
