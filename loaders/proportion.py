"""Which of several sources each draw of an endless sequence takes, in proportion to weights."""

import heapq
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loaders.errors import SelectionError

_BITS: Final = 40
_ONE: Final = 1 << _BITS
_HALF: Final = _ONE >> 1
_LOW: Final = 20
"""Bits of a draw's number that are multiplied apart, so that no product exceeds 63 bits."""

DRAWS: Final = 1 << 42
"""Draws that can be numbered, for the same reason."""


class Proportion:
    """Chooses a source for each draw, evenly spread, as a pure function of the draw's number.

    Sources are the leaves of a binary tree. At each node, of the first c draws that reach it
    `round(c * fraction)` go left: two sources take turns as the pixels of a straight line do.
    Leaves lie as in a Huffman tree, where an error of an upper node shrinks on its way down. So
    among any first n draws a source of weight w has n * w, less or more by below 2; with up to
    three sources by at most 1.

    Attributes:
        shares: Weight of each source in units of 2**-40 of them all.

    Source:
        Bresenham, "Algorithm for computer control of a digital plotter", 1965, for the two
        branches of a node; Huffman, "A Method for the Construction of Minimum-Redundancy Codes",
        1952, for the tree.

    Raises:
        SelectionError: A weight is too small beside the others.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        exact = [Fraction(weight) for weight in weights]
        self.shares = [round(weight * _ONE / sum(exact)) for weight in exact]
        # Nodes by number; ~s stands for the leaf of source s.
        self._lefts: list[int] = []
        self._rights: list[int] = []
        self._fractions: list[int] = []
        heap = [(weight, source, ~source) for source, weight in enumerate(exact)]
        heapq.heapify(heap)
        while len(heap) > 1:
            (low, _, right), (high, _, left) = heapq.heappop(heap), heapq.heappop(heap)
            fraction = round(high * _ONE / (low + high))
            if fraction == _ONE:
                raise SelectionError(
                    f"weights {[*weights]}: the smallest is too small beside the others"
                )
            node = len(self._fractions)
            self._lefts.append(left)
            self._rights.append(right)
            self._fractions.append(fraction)
            heapq.heappush(heap, (low + high, len(exact) + node, node))
        self._root = heap[0][2]
        self._tables = [
            np.array(table, np.int64) for table in (self._lefts, self._rights, self._fractions)
        ]

    def draws(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which source some draws take, and how many earlier draws took the same.

        Args:
            numbers: [B] integers in 0..DRAWS-1.

        Returns:
            [B] sources and [B] counts, int64.
        """
        nodes = np.full(len(numbers), self._root, np.int64)
        before = numbers.copy()
        active = np.arange(len(numbers) if self._root >= 0 else 0)
        while active.size:
            here, count = nodes[active], before[active]
            lefts, rights, fractions = (table[here] for table in self._tables)
            left = _rounded(count, fractions)
            goes_left = _rounded(count + 1, fractions) > left
            nodes[active] = np.where(goes_left, lefts, rights)
            before[active] = np.where(goes_left, left, count - left)
            active = active[nodes[active] >= 0]
        return ~nodes, before

    def counts(self, draws: int) -> list[int]:
        """Return how many of the first draws take each source."""
        found = [0] * len(self.shares)
        waiting = [(self._root, draws)]
        while waiting:
            node, count = waiting.pop()
            if node < 0:
                found[~node] = count
                continue
            left = (count * self._fractions[node] + _HALF) >> _BITS
            waiting += [(self._lefts[node], left), (self._rights[node], count - left)]
        return found


def _rounded(counts: NDArray[np.int64], fractions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `(counts * fractions + _HALF) >> _BITS`, without overflow."""
    high = (counts >> _LOW) * fractions
    low = (counts & ((1 << _LOW) - 1)) * fractions
    carried = (high & ((1 << _LOW) - 1)) << _LOW
    return (high >> _LOW) + ((carried + low + _HALF) >> _BITS)
