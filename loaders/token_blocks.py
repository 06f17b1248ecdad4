"""Windows of one length over the flat stream of a split, and the same shifted by one token."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loaders.format.ragged import ranges
from loaders.stretches import Stretches
from loaders.token_store import TOKENS, TokenStore
from loaders.token_views import TokenPart, count_of, first_of, widen
from loaders.views import Part, Take

Tail = Literal["drop", "pad"]
Shown = Literal["int64", "stored"]

IGNORED: Final = -100
"""Label that torch's cross entropy leaves out: its `ignore_index`."""

_BLOCK: Final = "block"
_KNOWN: Final = "known"


@dataclass(frozen=True, slots=True)
class Blocks:
    """Windows of `block_size + 1` tokens every `stride` tokens; see `TokenDataset.blocks`.

    Attributes:
        store: Where the tokens lie, layout stream.
        block_size: Tokens in x.
        stride: From the start of one window to the next.
        tail: What becomes of the tokens after the last whole window.
        fill: Stands in x after the last token.
        shown: How x and y are.
    """

    store: TokenStore
    block_size: int
    stride: int
    tail: Tail
    fill: int
    shown: Shown

    @property
    def count(self) -> int:
        """Windows."""
        total = int(self.store.ends[-1]) if len(self.store.ends) else 0
        targets = total - 1  # tokens that have a next one
        if self.tail == "drop":
            return max(0, (targets - self.block_size) // self.stride + 1)
        if targets < 1:
            return 0
        return 1 + max(0, -(-(targets - self.block_size) // self.stride))

    def parts(self) -> tuple[Part, ...]:
        """Return the array of windows, and for padded ones how many tokens each holds."""
        block = TokenPart(
            _BLOCK, self.store.dtype, lambda i: (len(i), self.block_size + 1), fixed=True
        )
        if self.tail == "drop":
            return (block,)
        return block, TokenPart(_KNOWN, np.dtype(np.int64), count_of, fixed=True)

    def gather_into(self, indices: NDArray[np.int64], buffers: Mapping[str, NDArray[Any]]) -> None:
        """Copy the windows out of the maps."""
        size, ends = self.block_size + 1, self.store.ends
        starts = indices * self.stride
        shards = np.searchsorted(ends, starts, side="right")
        firsts = starts - np.concatenate(([0], ends))[shards]
        within = list(zip(shards.tolist(), firsts.tolist(), strict=True))
        maps = {shard: self.store.columns.map(TOKENS, shard) for shard in set(shards.tolist())}
        pieces = [maps[shard][first : first + size] for shard, first in within]
        if (starts + size > ends[shards]).any():  # some go on in the next shard, or in none
            pieces = [
                piece
                for (shard, _), own in zip(within, pieces, strict=True)
                for piece in (own, *self._following(shard + 1, size - len(own)))
            ]
        # One call for all: slower alternatives were an index into a view of all windows, shard by
        # shard (1.3 times for four shards), and a loop of assignments (1.1 times).
        if pieces:  # NumPy wants at least one
            np.concatenate(pieces, out=buffers[_BLOCK].reshape(-1))
        if self.tail == "pad":
            total = int(self.store.ends[-1]) if len(self.store.ends) else 0
            np.minimum(total - starts, size, out=buffers[_KNOWN])

    def _following(self, shard: int, missing: int) -> list[NDArray[Any]]:
        """Return what a window takes from the shards after its own, and then of fill."""
        pieces = []
        while missing and shard < len(self.store.ends):
            piece = self.store.columns.map(TOKENS, shard)[:missing]
            pieces.append(piece)
            missing -= len(piece)
            shard += 1
        return [*pieces, np.full(missing, self.fill, self.store.dtype)]

    def stretches(self, indices: NDArray[np.int64] | None) -> Iterator[Stretches]:
        """Yield the parts of maps in which windows, ascending, lie; None for all."""
        column, ends = self.store.columns.column(TOKENS), self.store.ends
        if indices is None or not len(indices):
            yield from () if indices is not None else column.all_stretches()
            return
        starts = indices * self.stride
        stops = np.minimum(starts + self.block_size + 1, ends[-1])
        first, last = (np.searchsorted(ends, at, side="right") for at in (starts, stops - 1))
        for shard in np.unique(ranges(first, last - first + 1)).tolist():
            begin, end = (int(ends[shard - 1]) if shard else 0), int(ends[shard])
            own = slice(np.searchsorted(stops, begin, side="right"), np.searchsorted(starts, end))
            found = (starts[own].clip(begin) - begin, stops[own].clip(max=end) - begin)
            yield column.stretches(shard, *found)

    @property
    def made_nbytes(self) -> int:
        """Bytes of x and y, where these are not the window itself."""
        return 2 * 8 * self.block_size if self.shown == "int64" else 0

    def show(self, rows: Mapping[str, Tensor], take: Take) -> dict[str, Any]:
        """Return x and y, [B, block_size]: int64, contiguous; or as stored, over one memory."""
        block = rows[_BLOCK]
        if self.shown == "stored":
            return {"x": block[:, :-1], "y": block[:, 1:]}
        # Not views of one widened block: models flatten targets with .view(-1).
        x, y = widen(block[:, :-1], take), widen(block[:, 1:], take)
        if self.tail == "pad":
            places = torch.arange(1, self.block_size + 1, device=block.device)
            y.masked_fill_(places >= rows[_KNOWN][:, None], IGNORED)
        return {"x": x, "y": y}

    def sample(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the only sample of a batch of one."""
        return first_of(batch)
