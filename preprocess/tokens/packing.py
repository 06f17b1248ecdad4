"""Whole documents packed into rows of one length, with as little padding as can be.

`best_fit` is best-fit-decreasing: documents from long to short, each into the fullest row that has
room; of rows that are equally full, into the one that was changed last. `first_fit` takes the
documents as they come, each into the first row that has room, which keeps neighbours together.
Both are exact, and the result depends on nothing but the lengths.

Source: D. S. Johnson, "Near-optimal bin packing algorithms", MIT, 1973.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from preprocess.tokens.runs import check_ids, copy_runs, starts_of

Method = Literal["best_fit", "first_fit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Which documents share a row.

    Attributes:
        order: [N] int64 document indices, row after row, each exactly once.
        bounds: [R + 1] int64: row r holds `order[bounds[r]:bounds[r + 1]]`.
    """

    order: NDArray[np.int64]
    bounds: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.bounds) - 1

    def fill(self, counts: NDArray[np.int64], capacity: int) -> float:
        """Return the part of the rows that holds tokens, 0 to 1; 1 without rows."""
        return int(counts.sum()) / (self.rows * capacity) if self.rows else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRows:
    """Rows of packed documents.

    Attributes:
        rows: [R, capacity] ids; what follows the last document of a row is padding.
        document_lengths: [N] uint32 lengths of the documents, row after row.
        document_counts: [R] int64 documents in each row.
    """

    rows: NDArray[Any]
    document_lengths: NDArray[np.uint32]
    document_counts: NDArray[np.int64]


def split_long(
    counts: NDArray[np.int64], capacity: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut documents that are longer than a row.

    A long document becomes full pieces of `capacity` tokens and one piece of what is left, in
    order, so the flat ids stay as they are. An empty document stays one empty piece.

    Args:
        counts: [N] tokens of each document.
        capacity: Tokens in a row.

    Returns:
        [P] int64 tokens of each piece, and [P] int64 the document that each comes from.
    """
    _check_capacity(capacity)
    pieces = np.maximum(1, -(-counts // capacity))
    documents = np.repeat(np.arange(len(counts), dtype=np.int64), pieces)
    lengths = np.full(len(documents), capacity, np.int64)
    lengths[np.cumsum(pieces) - 1] = counts - (pieces - 1) * capacity
    return lengths, documents


def pack(lengths: NDArray[np.int64], capacity: int, method: Method) -> Packing:
    """Choose the row of every document.

    Args:
        lengths: [N] tokens of each document, 0 to `capacity`; `split_long` cuts longer ones.
            Empty documents take no room and share a row with others.
        capacity: Tokens in a row.
        method: `best_fit` or `first_fit`, as described above.

    Returns:
        The rows, numbered as they were opened; inside a row, documents in the order of placing
        (`best_fit`: from long to short, equal ones in input order; `first_fit`: input order).

    Raises:
        ValueError: A length does not lie in 0..capacity.
    """
    _check_capacity(capacity)
    if len(lengths) and not 0 <= int(lengths.min()) <= int(lengths.max()) <= capacity:
        wrong = int(np.flatnonzero((lengths < 0) | (lengths > capacity))[0])
        raise ValueError(
            f"document {wrong} has {int(lengths[wrong])} tokens, expected 0 to {capacity}; "
            "cut long documents with split_long"
        )
    if method == "best_fit":
        placed = np.argsort(-lengths, kind="stable")
        row_of = _best_fit(lengths[placed], capacity)
    else:
        placed = np.arange(len(lengths), dtype=np.int64)
        row_of = _first_fit(lengths, capacity)
    by_row = np.argsort(row_of, kind="stable")
    rows = int(row_of.max()) + 1 if len(row_of) else 0
    return Packing(
        order=placed[by_row], bounds=starts_of(np.bincount(row_of, minlength=rows)[:rows])
    )


def packed_rows(
    ids: NDArray[Any],
    counts: NDArray[np.int64],
    packing: Packing,
    capacity: int,
    pad_id: int,
    dtype: np.dtype[Any],
) -> PackedRows:
    """Lay the ids of packed documents into rows.

    Args:
        ids: [T] integer ids, documents back to back.
        counts: [N] tokens of each document.
        packing: From `pack`, for these counts.
        capacity: Tokens in a row.
        pad_id: Fills the rest of a row.
        dtype: Of the rows.

    Raises:
        ValueError: An id does not fit `dtype`, or the packing is not one of these documents.
    """
    if int(counts.sum()) != len(ids) or len(packing.order) != len(counts):
        raise ValueError(
            f"{len(ids)} ids, counts of {int(counts.sum())} for {len(counts)} documents, "
            f"a packing of {len(packing.order)}"
        )
    check_ids(ids, dtype, "tokens")
    check_ids(np.array([pad_id]), dtype, "pad_id")
    document_counts = np.diff(packing.bounds)
    lengths = counts[packing.order]
    ends = starts_of(lengths)
    row = np.repeat(np.arange(packing.rows, dtype=np.int64), document_counts)
    # A document's place: its row, and what lies before it in that row.
    places = row * capacity + ends[:-1] - ends[packing.bounds[:-1]][row]
    if len(places) and int((places - row * capacity + lengths).max()) > capacity:
        raise ValueError(f"the packing has rows of more than {capacity} tokens")
    rows = np.full((packing.rows, capacity), pad_id, dtype)
    copy_runs(rows.reshape(-1), places, ids, starts_of(counts)[packing.order], lengths)
    return PackedRows(
        rows=rows,
        document_lengths=lengths.astype(np.uint32),
        document_counts=document_counts,
    )


def _check_capacity(capacity: int) -> None:
    """Refuse a row without room."""
    if capacity < 1:
        raise ValueError(f"capacity {capacity}: expected at least 1 token in a row")


def _best_fit(lengths: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    """Place lengths that do not rise; all documents of one length are placed together.

    Rows are kept by their free room, and rows with equal room are interchangeable. A row that
    takes a document and has room for one more of that length is then the fullest that fits, so
    each row that is opened or chosen takes as many of them as it can before the next one is.
    """
    row_of = np.empty(len(lengths), np.int64)
    by_room: list[list[int]] = [[] for _ in range(capacity + 1)]  # rows, the last changed last
    rooms = 0  # bit f is set where a row has f tokens free: finds the next fullest at once
    opened = 0
    changes = np.flatnonzero(np.diff(lengths, prepend=-1, append=-1)).tolist()
    for begin, end in pairwise(changes):
        length = int(lengths[begin])
        place = begin
        while place < end:
            fitting = rooms >> length
            room = length + (fitting & -fitting).bit_length() - 1 if fitting else capacity
            each = room // length if length else end - place  # empty documents: all in one row
            needed = -(-(end - place) // each)
            if fitting:
                chosen = by_room[room][: -needed - 1 : -1]
                del by_room[room][-len(chosen) :]
                if not by_room[room]:
                    rooms ^= 1 << room
            else:
                chosen = list(range(opened, opened + needed))
                opened += needed
            taken = min(end - place, each * len(chosen))
            row_of[place : place + taken] = np.repeat(chosen, each)[:taken]
            place += taken
            # The last row may have taken fewer.
            last_room = room - (taken - each * (len(chosen) - 1)) * length
            for rows, left in ((chosen[:-1], room - each * length), (chosen[-1:], last_room)):
                if rows:
                    by_room[left] += rows
                    rooms |= 1 << left
    return row_of


def _first_fit(lengths: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    """Place lengths in order by a tree of the largest free room among the rows below each node.

    Rows that are not open yet are leaves of full room, to the right of all open ones. Two rows
    together always hold more than one row's worth, which bounds their number.
    """
    leaves = 1 << (2 * int(lengths.sum()) // capacity + 1).bit_length()
    tree = [capacity] * (2 * leaves)
    row_of = []
    for length in lengths.tolist():
        node = 1
        while node < leaves:
            node *= 2
            if tree[node] < length:
                node += 1
        row_of.append(node - leaves)
        room = tree[node] - length
        tree[node] = room
        while node > 1:
            other = tree[node ^ 1]
            if other > room:
                room = other
            node >>= 1
            if tree[node] == room:
                break
            tree[node] = room
    return np.array(row_of, np.int64)
