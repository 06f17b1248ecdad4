"""Rows that several documents share, and the masks that keep them apart."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.stretches import Stretches
from loaders.token_store import DOCUMENT_LENGTHS, TOKENS, TokenStore
from loaders.token_views import Labels, TokenPart, widen
from loaders.views import Part, Take

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

PADDING: Final = -1
"""Document id of the padding at the end of a row."""

_ENDS: Final = "cu_seqlens"
_NUMBERS: Final = "numbers"
_LONGEST: Final = "max_seqlen"


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed rows as stored; see `TokenDataset.packed`."""

    store: TokenStore
    labels: Labels

    @property
    def count(self) -> int:
        """Rows."""
        return len(self.store)

    def parts(self) -> tuple[Part, ...]:
        """Return the rows, the segments in them, and the length of the longest."""
        int32 = np.dtype(np.int32)
        return (
            TokenPart(TOKENS, self.store.dtype, lambda i: (len(i), self.store.width)),
            TokenPart(_ENDS, int32, lambda i: (len(self._segments(i)[0]) + 1,)),
            TokenPart(_NUMBERS, int32, lambda i: (len(self._segments(i)[1]),)),
            TokenPart(_LONGEST, np.dtype(np.int64), lambda _: (1,), on_device=False),
            *self.labels.parts(),
        )

    def _segments(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return lengths and numbers of all segments of a batch, row after row.

        A document's number counts from 0 in its row. What is left of a row is a segment too, so
        the lengths of a row add up to its width. Documents without tokens are no segment.
        """
        columns = self.store.columns
        counts = columns.lengths(DOCUMENT_LENGTHS, indices)  # [B]
        stored = np.empty(int(counts.sum()), self.store.fields[DOCUMENT_LENGTHS].numpy_dtype)
        columns.values_into(DOCUMENT_LENGTHS, indices, stored)
        lengths = stored.astype(np.int64)
        row_ends = np.cumsum(counts)
        sums = np.concatenate(([0], np.cumsum(lengths)))
        left = self.store.width - np.diff(sums[row_ends], prepend=0)  # [B]
        if left.min(initial=0) < 0:
            bad = int(np.argmin(left))
            wrong = lengths[row_ends[bad] - counts[bad] : row_ends[bad]].tolist()
            what = f"documents of {wrong} tokens in a row of {self.store.width}"
            raise columns.broken(DOCUMENT_LENGTHS, int(indices[bad]), what)
        numbers = np.arange(len(lengths)) - np.repeat(row_ends - counts, counts)
        lengths = np.insert(lengths, row_ends, left)
        numbers = np.insert(numbers, row_ends, PADDING)
        return lengths[lengths > 0], numbers[lengths > 0]

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy the rows out of the maps and say where their documents end."""
        self.store.columns.rows_into(TOKENS, indices, buffers[TOKENS])
        lengths, numbers = self._segments(indices)
        buffers[_ENDS][0] = 0
        np.cumsum(lengths, out=buffers[_ENDS][1:])
        buffers[_NUMBERS][:] = numbers
        buffers[_LONGEST][0] = lengths.max(initial=0)
        self.labels.gather_into(indices, buffers)

    def stretches(self, indices: NDArray[np.int64] | None) -> Iterator[Stretches]:
        """Yield the parts of maps in which the rows, ascending, lie."""
        names = (TOKENS, DOCUMENT_LENGTHS, *self.labels.names)
        return self.store.columns.stretches(names, indices)

    @property
    def made_nbytes(self) -> int:
        """Bytes of a row's tokens, and of their places and documents."""
        return 3 * 8 * self.store.width

    def show(self, rows: Mapping[str, Tensor], take: Take) -> dict[str, Any]:
        """Return the rows, each token's place in its document, and the documents' bounds."""
        tokens = rows[TOKENS]
        ends = rows[_ENDS]
        shape, size = tokens.shape, tokens.numel()
        # [B * L]; with the size given, no device has to be waited for.
        segment = torch.repeat_interleave(ends.diff(), output_size=size)
        places = torch.arange(size, device=tokens.device)
        return {
            TOKENS: widen(tokens, take),
            "position_ids": (places - ends[segment]).view(shape),
            "document_ids": rows[_NUMBERS][segment].to(torch.int64).view(shape),
            _ENDS: ends,
            _LONGEST: int(rows[_LONGEST][0]),
            **self.labels.show(rows),
        }

    def sample(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the only sample of a batch of one."""
        whole = {_ENDS, _LONGEST}
        return {name: value if name in whole else value[0] for name, value in batch.items()}


def document_mask(document_ids: Tensor) -> MaskFunction:
    """Return a mask for `torch.nn.attention.flex_attention`: causal, within one document.

    Padding attends to padding only, causally, so that no row of the attention is empty.

    Args:
        document_ids: [B, L] integers on the device of the attention, from `.packed()`.

    Returns:
        A `mask_mod`: (batch, head, query, key) -> whether the query sees the key.
    """

    def mask(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
        same = document_ids[batch, query] == document_ids[batch, key]
        return same & (query >= key)

    return mask
