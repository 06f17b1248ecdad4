"""Flat ids of some documents -> what is stored of them, layout by layout."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loaders.format.fields import FieldSpec
from preprocess.recipe import Ragged
from preprocess.tokens.fixed_rows import FixedRows, RowFrame, fixed_pair_rows, fixed_rows
from preprocess.tokens.options import Packer
from preprocess.tokens.packing import pack, packed_rows, split_long
from preprocess.tokens.runs import check_ids, starts_of

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """Some documents as ids, without special tokens.

    Attributes:
        ids: [T] documents back to back.
        counts: [N] tokens of each.
        pair_ids: [U] ids of the second texts, with pairs.
        pair_counts: [N] tokens of each second text.
        bits: [sum of ceil(count / 8)] the loss mask, with chats: 8 tokens to a byte, the first is
            the lowest; each document begins a byte.
        bit_counts: [N] bytes of each.
    """

    ids: NDArray[Any]
    counts: Counts
    pair_ids: NDArray[Any] | None = None
    pair_counts: Counts | None = None
    bits: NDArray[np.uint8] | None = None
    bit_counts: Counts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOut:
    """Samples of some documents.

    Attributes:
        count: N samples.
        arrays: Field name -> rows.
        documents: [M] int64: the documents in the samples, in order.
        document_counts: [N] int64: how many each sample has.
        refused: Documents without a sample -> why.
        cut: Documents whose end is left out, and the tokens that are.
    """

    count: int
    arrays: dict[str, NDArray[Any] | Ragged]
    documents: Counts
    document_counts: Counts
    refused: dict[int, str]
    cut: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLayout:
    """Documents of any length, one sample each, with BOS and EOS inside."""

    dtype: str
    bos: tuple[int, ...] = ()
    eos: tuple[int, ...] = ()
    masked: bool = False

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return what a sample holds."""
        tokens = FieldSpec(name="tokens", dtype=self.dtype, shape=(), role="tokens", ragged=True)
        mask = FieldSpec(name="loss_mask", dtype="uint8", shape=(), role="mask", ragged=True)
        return (tokens, mask) if self.masked else (tokens,)

    def expected_tokens(self, documents: float, tokens: float) -> float:
        """Return about the ids that are stored of so many documents of so many tokens."""
        return tokens + documents * (len(self.bos) + len(self.eos))

    def lay_out(self, encoded: Encoded) -> LaidOut:
        """Put BOS and EOS around each document."""
        ids, counts = framed(encoded, self.bos, self.eos, self.dtype)
        count = len(counts)
        arrays: dict[str, NDArray[Any] | Ragged] = {"tokens": Ragged(ids, counts)}
        if self.masked and encoded.bits is not None and encoded.bit_counts is not None:
            arrays["loss_mask"] = Ragged(encoded.bits, encoded.bit_counts)
        every = np.arange(count, dtype=np.int64)
        ones = np.ones(count, np.int64)
        return LaidOut(
            count=count, arrays=arrays, documents=every, document_counts=ones, refused={}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedLayout:
    """Rows of one length for encoders, special tokens and padding inside."""

    frame: RowFrame
    pairs: bool

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return what a sample holds."""
        dtype = self.frame.dtype.name
        tokens = FieldSpec(name="tokens", dtype=dtype, shape=(self.frame.length,), role="tokens")
        names = ["length", "pair_start"] if self.pairs else ["length"]
        lengths = [FieldSpec(name=n, dtype="uint32", shape=(), role="length") for n in names]
        return (tokens, *lengths)

    def expected_tokens(self, documents: float, tokens: float) -> float:
        """Return about the ids that are stored of so many documents of so many tokens."""
        frame = self.frame
        if not documents:
            return tokens
        step = None if frame.stride is None else max(1, frame.length - frame.stride)
        return frame.length * (documents + (0 if step is None else tokens / step))

    def lay_out(self, encoded: Encoded) -> LaidOut:
        """Cut, frame and pad each document."""
        if encoded.pair_ids is not None and encoded.pair_counts is not None:
            found = fixed_pair_rows(
                encoded.ids, encoded.counts, encoded.pair_ids, encoded.pair_counts, self.frame
            )
        else:
            found = fixed_rows(encoded.ids, encoded.counts, self.frame)
        arrays: dict[str, NDArray[Any] | Ragged] = {
            "tokens": found.rows,
            "length": found.lengths.astype("<u4"),
        }
        if found.pair_starts is not None:
            arrays["pair_start"] = found.pair_starts.astype("<u4")
        reason = "its first text leaves no room for the second one"
        return LaidOut(
            count=len(found.rows),
            arrays=arrays,
            documents=found.documents,
            document_counts=np.ones(len(found.rows), np.int64),
            refused=dict.fromkeys(found.refused.tolist(), reason),
            cut=self._cut(encoded, found),
        )

    def _cut(self, encoded: Encoded, found: FixedRows) -> tuple[int, int]:
        """Count the documents whose end has no row, and the tokens that are left out."""
        if self.frame.stride is not None:
            return 0, 0
        around = len(self.frame.prefix_ids) + len(self.frame.suffix_ids)
        whole = encoded.counts
        if encoded.pair_counts is not None:
            around += len(self.frame.separator_ids)
            whole = whole + encoded.pair_counts
        left_out = whole[found.documents] - (found.lengths - around)
        return int((left_out > 0).sum()), int(left_out.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLayout:
    """Rows of one length that whole documents share; longer documents are cut."""

    dtype: str
    length: int
    packing: Packer
    pad_id: int
    bos: tuple[int, ...] = ()
    eos: tuple[int, ...] = ()

    def fields(self) -> tuple[FieldSpec, ...]:
        """Return what a sample holds."""
        return (
            FieldSpec(name="tokens", dtype=self.dtype, shape=(self.length,), role="tokens"),
            FieldSpec(
                name="document_lengths", dtype="uint32", shape=(), role="length", ragged=True
            ),
        )

    def expected_tokens(self, documents: float, tokens: float) -> float:
        """Return the same: hardly any of a row stays empty."""
        return tokens + documents * (len(self.bos) + len(self.eos))

    def lay_out(self, encoded: Encoded) -> LaidOut:
        """Choose the row of each document and put it there."""
        ids, counts = framed(encoded, self.bos, self.eos, self.dtype)
        lengths, documents = split_long(counts, self.length)
        packing = pack(lengths, self.length, self.packing)
        dtype = np.dtype(self.dtype).newbyteorder("<")
        found = packed_rows(ids, lengths, packing, self.length, self.pad_id, dtype)
        return LaidOut(
            count=packing.rows,
            arrays={
                "tokens": found.rows,
                "document_lengths": Ragged(
                    found.document_lengths.astype("<u4"), found.document_counts
                ),
            },
            documents=documents[packing.order],
            document_counts=found.document_counts,
            refused={},
        )


AnyLayout = StreamLayout | FixedLayout | PackedLayout


def framed(
    encoded: Encoded, bos: Sequence[int], eos: Sequence[int], dtype: str
) -> tuple[NDArray[Any], Counts]:
    """Return the ids with BOS and EOS around each document, in the stored dtype.

    Raises:
        ValueError: An id does not fit the dtype.
    """
    stored = np.dtype(dtype).newbyteorder("<")
    check_ids(encoded.ids, stored, "tokens")
    if not bos and not eos:
        return encoded.ids.astype(stored), encoded.counts
    counts = encoded.counts + len(bos) + len(eos)
    starts = starts_of(counts)
    out = np.empty(int(starts[-1]), stored)
    plain = np.ones(len(out), np.bool_)
    for place, number in enumerate(bos):
        out[starts[:-1] + place], plain[starts[:-1] + place] = number, False
    for place, number in enumerate(reversed(eos), start=1):
        out[starts[1:] - place], plain[starts[1:] - place] = number, False
    out[plain] = encoded.ids
    return out, counts
