"""Whole documents, back to back: batches for attention kernels of variable length."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.errors import SelectionError
from loaders.stretches import Stretches
from loaders.token_store import TOKENS, TokenStore
from loaders.token_views import Labels, TokenPart, count_of, widen
from loaders.views import Part, Take

_LENGTHS: Final = "lengths"
_MOST: Final = (1 << 31) - 1
"""Tokens in a batch: kernels want positions as int32."""


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents as stored; see `TokenDataset.documents`."""

    store: TokenStore
    labels: Labels

    @property
    def count(self) -> int:
        """Documents."""
        return len(self.store)

    def parts(self) -> tuple[Part, ...]:
        """Return the tokens, the lengths, and what names the documents."""
        tokens = TokenPart(TOKENS, self.store.dtype, self._total)
        lengths = TokenPart(_LENGTHS, np.dtype(np.int64), count_of)
        return (tokens, lengths, *self.labels.parts())

    def _total(self, indices: NDArray[np.int64]) -> tuple[int, ...]:
        total = int(self.store.columns.lengths(TOKENS, indices).sum())
        if total > _MOST:
            raise SelectionError(
                f"{self.store.path}: {total} tokens in a batch of {len(indices)} documents, "
                f"up to {_MOST} can be: use a smaller batch"
            )
        return (total,)

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy the documents out of the maps."""
        columns = self.store.columns
        buffers[_LENGTHS][:] = columns.values_into(TOKENS, indices, buffers[TOKENS])
        self.labels.gather_into(indices, buffers)

    def stretches(self, indices: NDArray[np.int64] | None) -> Iterator[Stretches]:
        """Yield the parts of maps in which the documents, ascending, lie."""
        return self.store.columns.stretches((TOKENS, *self.labels.names), indices)

    @property
    def made_nbytes(self) -> int:
        """Return 0: it differs from sample to sample."""
        return 0

    def show(self, rows: Mapping[str, Tensor], take: Take) -> dict[str, Any]:
        """Return flat tokens, lengths, and where each document begins and ends."""
        lengths = rows[_LENGTHS]
        ends = lengths.cumsum(0, dtype=torch.int32)
        return {
            TOKENS: widen(rows[TOKENS], take),
            _LENGTHS: lengths,
            "cu_seqlens": torch.nn.functional.pad(ends, (1, 0)),
            **self.labels.show(rows),
        }

    def sample(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the only sample of a batch of one."""
        named = {name: batch[name][0] for name in self.labels.names}
        return {TOKENS: batch[TOKENS], **named}
