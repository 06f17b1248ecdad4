"""Documents in rows of one length for encoder models, as transformers' fast tokenizers lay them.

A row is `prefix A suffix`, or with pairs `prefix A separator B suffix`, then padding up to its
length. What does not fit is cut off, or goes on in further rows that overlap (`stride`).
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from preprocess.tokens.runs import check_ids, copy_runs, starts_of

_Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFrame:
    """What surrounds the tokens of a document in a row, and what becomes of those without room.

    Attributes:
        length: Ids in a row, special tokens and padding included.
        pad_id: Fills a row up; None if the tokenizer has no such token, which is refused.
        dtype: Of the rows.
        prefix_ids: Before the text, such as [CLS].
        separator_ids: Between the two texts of a pair.
        suffix_ids: After the text, or after the second one.
        stride: None keeps one row a document; a number gives further rows, each of which repeats
            so many tokens of the one before.
        truncation: With pairs, which text gives way: the longer one, or always the second.
        truncation_side: `right` keeps the beginning of a text. `left` keeps the end; further rows
            then go backwards.
    """

    length: int
    pad_id: int | None
    dtype: np.dtype[Any]
    prefix_ids: tuple[int, ...] = ()
    separator_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    stride: int | None = None
    truncation: Literal["longest_first", "only_second"] = "longest_first"
    truncation_side: Literal["right", "left"] = "right"

    def __post_init__(self) -> None:
        """Refuse a frame that no row can have."""
        if self.pad_id is None:
            raise ValueError(
                "pad_id: the tokenizer names no pad token, and rows of one length need one; "
                "name one of its tokens"
            )
        if self.stride is not None and self.stride < 0:
            raise ValueError(f"stride {self.stride}: expected 0 or more tokens, or None")
        special = (*self.prefix_ids, *self.separator_ids, *self.suffix_ids, self.pad_id)
        check_ids(np.array(special), self.dtype, "special tokens")

    def room(self, *, pairs: bool) -> int:
        """Return how many tokens of text a row has room for.

        Raises:
            ValueError: Too few for any text, or for rows that overlap by `stride`.
        """
        special = len(self.prefix_ids) + len(self.suffix_ids)
        special += len(self.separator_ids) if pairs else 0
        room = self.length - special
        least = 2 if pairs else 1
        if room < least:
            raise ValueError(
                f"length {self.length} is too small: {special} special tokens and "
                f"{least} of text need at least {special + least}"
            )
        # The text that is cut keeps at least this many tokens; a second text can keep one.
        kept = room // 2 if pairs and self.truncation == "longest_first" else room
        if self.stride is not None and self.stride >= kept:
            raise ValueError(
                f"stride {self.stride} with length {self.length}: a row holds {kept} tokens of a "
                f"text that is cut, and must repeat fewer than that"
            )
        return room


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedRows:
    """Rows of one length.

    Attributes:
        rows: [R, L] ids.
        lengths: [R] int64 ids before the padding, special tokens included.
        documents: [R] int64 the document that each row comes from, rising.
        pair_starts: [R] int64 where the second text begins in a row: BERT's token type is 1 from
            there to `lengths`, else 0. None without pairs.
        refused: [K] int64 documents without a row: the first text of a pair leaves no room for the
            second one and `only_second` may not cut it.
    """

    rows: NDArray[Any]
    lengths: _Counts
    documents: _Counts
    pair_starts: _Counts | None = None
    refused: _Counts = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class _Pieces:
    """How texts are cut: each into pieces of at most `rooms` tokens, or only the first of them."""

    counts: _Counts
    rooms: _Counts
    frame: RowFrame

    def numbers(self) -> _Counts:
        """Return [N] pieces of each text, at least 1."""
        if self.frame.stride is None:
            return np.ones(len(self.counts), np.int64)
        over = np.maximum(0, self.counts - self.rooms)
        step = np.maximum(1, self.rooms - self.frame.stride)
        return np.asarray(1 - -over // step, np.int64)

    def bounds(self, text: _Counts, piece: _Counts) -> tuple[_Counts, _Counts]:
        """Return where the pieces with these numbers begin in their texts, and their lengths."""
        counts, rooms = self.counts[text], self.rooms[text]
        moved = piece * (rooms - (self.frame.stride or 0))
        if self.frame.truncation_side == "left":
            begins = np.maximum(0, counts - moved - rooms)
            return begins, counts - moved - begins
        return moved, np.minimum(counts - moved, rooms)


def fixed_rows(ids: NDArray[Any], counts: _Counts, frame: RowFrame) -> FixedRows:
    """Lay single texts into rows.

    Args:
        ids: [T] integer ids without special tokens, documents back to back.
        counts: [N] tokens of each document; an empty one has a row of special tokens.
        frame: The row.

    Raises:
        ValueError: The frame has no room for text, or an id does not fit its dtype.
    """
    room = frame.room(pairs=False)
    pieces = _Pieces(counts, np.full(len(counts), room, np.int64), frame)
    numbers = pieces.numbers()
    documents = np.repeat(np.arange(len(counts), dtype=np.int64), numbers)
    begins, lengths = pieces.bounds(documents, _numbered(numbers))
    layout = _Layout(frame, len(documents))
    layout.put(frame.prefix_ids)
    layout.copy(ids, starts_of(counts)[documents] + begins, lengths)
    layout.put(frame.suffix_ids)
    return FixedRows(rows=layout.rows, lengths=layout.filled, documents=documents)


def fixed_pair_rows(
    ids: NDArray[Any],
    counts: _Counts,
    pair_ids: NDArray[Any],
    pair_counts: _Counts,
    frame: RowFrame,
) -> FixedRows:
    """Lay pairs of texts into rows.

    Where both texts of a pair are cut and `stride` is given, every piece of one meets every piece
    of the other, in the order in which transformers gives them: the first pieces together; each
    further piece of A with all of B; the first of A with the further ones of B.

    Args:
        ids: [T] ids of the first texts.
        counts: [N] tokens of each.
        pair_ids: [U] ids of the second texts.
        pair_counts: [N] tokens of each.
        frame: The row.

    Raises:
        ValueError: The frame has no room for text, or an id does not fit its dtype.
    """
    if len(counts) != len(pair_counts):
        raise ValueError(f"{len(counts)} first texts and {len(pair_counts)} second texts")
    room = frame.room(pairs=True)
    refused = np.zeros(len(counts), np.bool_)
    if frame.truncation == "only_second":
        rooms, pair_rooms = counts, room - counts
        refused = (counts + pair_counts > room) & (pair_rooms <= (frame.stride or 0))
    else:
        rooms, pair_rooms = _shared_rooms(counts, pair_counts, room)
    first, second = _Pieces(counts, rooms, frame), _Pieces(pair_counts, pair_rooms, frame)
    first_numbers, second_numbers = first.numbers(), second.numbers()
    numbers = np.where(refused, 0, first_numbers * second_numbers)
    documents = np.repeat(np.arange(len(counts), dtype=np.int64), numbers)
    row = _numbered(numbers)
    of_second = second_numbers[documents]
    others = (first_numbers[documents] - 1) * of_second  # rows of the further pieces of A
    inner, tail = (row >= 1) & (row <= others), row > others
    piece = np.where(inner, 1 + (row - 1) // of_second, 0)
    pair_piece = np.where(inner, (row - 1) % of_second, np.where(tail, row - others, 0))
    layout = _Layout(frame, len(documents))
    layout.put(frame.prefix_ids)
    begins, lengths = first.bounds(documents, piece)
    layout.copy(ids, starts_of(counts)[documents] + begins, lengths)
    layout.put(frame.separator_ids)
    pair_starts = layout.filled.copy()
    begins, lengths = second.bounds(documents, pair_piece)
    layout.copy(pair_ids, starts_of(pair_counts)[documents] + begins, lengths)
    layout.put(frame.suffix_ids)
    return FixedRows(
        rows=layout.rows,
        lengths=layout.filled,
        documents=documents,
        pair_starts=pair_starts,
        refused=np.flatnonzero(refused).astype(np.int64),
    )


def _numbered(numbers: _Counts) -> _Counts:
    """Return 0, 1, ... n - 1 for every n, back to back."""
    starts = starts_of(numbers)
    return np.arange(starts[-1], dtype=np.int64) - np.repeat(starts[:-1], numbers)


def _shared_rooms(first: _Counts, second: _Counts, room: int) -> tuple[_Counts, _Counts]:
    """Return how many tokens each text of a pair keeps when the longer one gives way.

    The shorter text keeps all it has if that leaves the longer one at least as much; else they get
    half each. An odd token goes to the longer text, or to the second of equal ones.
    """
    shorter, longer = np.minimum(first, second), np.maximum(first, second)
    fits = shorter + np.maximum(shorter, room - shorter) <= room
    short_room = np.where(fits, shorter, room // 2)
    long_room = np.where(first + second <= room, longer, room - short_room)
    swapped = first > second
    return np.where(swapped, long_room, short_room), np.where(swapped, short_room, long_room)


class _Layout:
    """Rows that are filled from left to right, all at the same time.

    Attributes:
        rows: [R, L] ids so far, padding elsewhere.
        filled: [R] int64 ids so far in each row.
    """

    def __init__(self, frame: RowFrame, count: int) -> None:
        self._dtype = frame.dtype
        self.rows = np.full((count, frame.length), frame.pad_id, frame.dtype)
        self.filled = np.zeros(count, np.int64)
        self._begins = np.arange(count, dtype=np.int64) * frame.length

    def put(self, ids: tuple[int, ...]) -> None:
        """Append these ids to every row."""
        flat = self.rows.reshape(-1)
        for value in ids:
            flat[self._begins + self.filled] = value
            self.filled += 1

    def copy(self, ids: NDArray[Any], starts: _Counts, lengths: _Counts) -> None:
        """Append a run of ids to every row."""
        check_ids(ids, self._dtype, "tokens")
        copy_runs(self.rows.reshape(-1), self._begins + self.filled, ids, starts, lengths)
        self.filled += lengths
