"""Packing is what the textbook methods give, row by row, and loses nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.tokens.packing import Packing, pack, packed_rows, split_long


@st.composite
def documents(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Lengths of 0 to the capacity, and the capacity; few different ones, or many."""
    capacity = draw(st.integers(1, 60))
    most = draw(st.integers(0, capacity))
    lengths = draw(st.lists(st.integers(0, most), max_size=60))
    return np.array(lengths, np.int64), capacity


def naive_best_fit(lengths: np.ndarray, capacity: int) -> list[list[int]]:
    """Long to short, each into the fullest row with room; of equally full ones the last changed."""
    rows: list[list[int]] = []
    changed: list[int] = []
    rooms: list[int] = []
    for step, document in enumerate(sorted(range(len(lengths)), key=lambda d: -lengths[d])):
        length = int(lengths[document])
        fitting = [row for row in range(len(rows)) if rooms[row] >= length]
        if fitting:
            row = min(fitting, key=lambda row: (rooms[row], -changed[row]))
        else:
            row = len(rows)
            rows.append([])
            rooms.append(capacity)
            changed.append(step)
        rows[row].append(document)
        rooms[row] -= length
        changed[row] = step
    return rows


def naive_first_fit(lengths: np.ndarray, capacity: int) -> list[list[int]]:
    """In order, each into the first row with room."""
    rows: list[list[int]] = []
    for document, length in enumerate(lengths.tolist()):
        for row in rows:
            if sum(int(lengths[d]) for d in row) + length <= capacity:
                row.append(document)
                break
        else:
            rows.append([document])
    return rows


def rows_of(packing: Packing) -> list[list[int]]:
    return [part.tolist() for part in np.split(packing.order, packing.bounds[1:-1])]


@settings(max_examples=300, deadline=None)
@given(documents())
def test_best_fit_gives_the_rows_of_the_plain_method(given_: tuple[np.ndarray, int]) -> None:
    lengths, capacity = given_
    expected = naive_best_fit(lengths, capacity)
    packing = pack(lengths, capacity, "best_fit")
    assert packing.rows == len(expected)
    assert (rows_of(packing) if expected else []) == expected


@settings(max_examples=300, deadline=None)
@given(documents())
def test_first_fit_gives_the_rows_of_the_plain_method(given_: tuple[np.ndarray, int]) -> None:
    lengths, capacity = given_
    expected = naive_first_fit(lengths, capacity)
    packing = pack(lengths, capacity, "first_fit")
    assert packing.rows == len(expected)
    assert (rows_of(packing) if expected else []) == expected


@pytest.mark.parametrize("method", ["best_fit", "first_fit"])
@settings(max_examples=100, deadline=None)
@given(documents())
def test_every_document_lies_whole_in_one_row(method: str, given_: tuple[np.ndarray, int]) -> None:
    lengths, capacity = given_
    packing = pack(lengths, capacity, method)
    assert sorted(packing.order.tolist()) == list(range(len(lengths)))
    ids = np.arange(1, int(lengths.sum()) + 1, dtype=np.uint32)
    made = packed_rows(ids, lengths, packing, capacity, 0, np.dtype("uint32"))
    texts = np.split(ids, np.cumsum(lengths)[:-1]) if len(lengths) else []
    place = 0
    for row, contents in zip(made.rows, rows_of(packing) if packing.rows else [], strict=True):
        expected = [number for document in contents for number in texts[document].tolist()]
        assert row.tolist() == expected + [0] * (capacity - len(expected))
        found = made.document_lengths[place : place + len(contents)]
        assert found.tolist() == lengths[contents].tolist()
        place += len(contents)
    assert made.document_counts.tolist() == [len(row) for row in rows_of(packing) if row]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=20), st.integers(1, 12))
def test_pieces_of_long_documents_add_up_to_them(counts: list[int], capacity: int) -> None:
    pieces, documents_ = split_long(np.array(counts, np.int64), capacity)
    assert ((pieces >= 0) & (pieces <= capacity)).all()
    sums = np.bincount(documents_, weights=pieces, minlength=len(counts)).astype(int)
    assert sums.tolist() == counts
    fewest = [max(1, -(-count // capacity)) for count in counts]
    assert np.bincount(documents_, minlength=len(counts)).tolist() == fewest
