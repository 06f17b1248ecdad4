"""Packing whole documents into rows: cutting, laying out, and what is refused."""

import numpy as np
import pytest

from preprocess.tokens import runs as token_runs
from preprocess.tokens.packing import Packing, pack, packed_rows, split_long

UINT16 = np.dtype("uint16")


def counts_of(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def test_long_documents_become_full_pieces_and_a_rest() -> None:
    lengths, documents = split_long(counts_of(3, 0, 9, 4, 8), 4)
    assert lengths.tolist() == [3, 0, 4, 4, 1, 4, 4, 4]
    assert documents.tolist() == [0, 1, 2, 2, 2, 3, 4, 4]


def test_best_fit_takes_long_documents_first_and_the_fullest_row() -> None:
    packing = pack(counts_of(3, 7, 2, 8, 5), 10, "best_fit")
    assert packing.bounds.tolist() == [0, 2, 4, 5]
    assert packing.order.tolist() == [3, 2, 1, 0, 4]


def test_first_fit_takes_documents_as_they_come() -> None:
    packing = pack(counts_of(3, 7, 2, 8, 5), 10, "first_fit")
    assert packing.bounds.tolist() == [0, 2, 4, 5]
    assert packing.order.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("method", ["best_fit", "first_fit"])
def test_empty_documents_share_one_row_even_alone(method: str) -> None:
    packing = pack(counts_of(0, 0, 0), 4, method)
    assert packing.rows == 1
    assert packing.order.tolist() == [0, 1, 2]
    mixed = pack(counts_of(0, 4, 0), 4, method)
    assert mixed.rows == 1
    assert sorted(mixed.order.tolist()) == [0, 1, 2]


@pytest.mark.parametrize("method", ["best_fit", "first_fit"])
def test_no_documents_give_no_rows(method: str) -> None:
    packing = pack(counts_of(), 4, method)
    assert packing.rows == 0
    assert packing.bounds.tolist() == [0]
    assert packing.fill(counts_of(), 4) == 1.0
    made = packed_rows(np.zeros(0, np.uint32), counts_of(), packing, 4, 0, UINT16)
    assert made.rows.shape == (0, 4)


@pytest.mark.parametrize("counts", [(1, 5), (-1, 2)])
def test_documents_that_fit_no_row_are_named(counts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"document \d has -?\d tokens, expected 0 to 4"):
        pack(counts_of(*counts), 4, "best_fit")


def test_a_row_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity 0"):
        pack(counts_of(1), 0, "first_fit")
    with pytest.raises(ValueError, match="capacity 0"):
        split_long(counts_of(1), 0)


def test_rows_hold_the_documents_in_order_and_then_padding() -> None:
    counts = counts_of(3, 0, 2, 4)
    packing = pack(counts, 5, "best_fit")
    made = packed_rows(np.arange(1, 10, dtype=np.uint32), counts, packing, 5, 0, UINT16)
    assert made.rows.dtype == UINT16
    assert made.rows.tolist() == [[6, 7, 8, 9, 0], [1, 2, 3, 4, 5]]
    assert made.document_lengths.tolist() == [4, 3, 2, 0]
    assert made.document_counts.tolist() == [1, 3]
    assert made.document_lengths.dtype == np.uint32


def test_rows_do_not_depend_on_how_the_tokens_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.random.default_rng(0).integers(0, 400, 150)
    packing = pack(counts, 512, "first_fit")
    ids = np.arange(int(counts.sum()), dtype=np.uint32)
    whole = packed_rows(ids, counts, packing, 512, 7, UINT16).rows
    monkeypatch.setattr(token_runs, "_MOVED", 50)
    monkeypatch.setattr(token_runs, "_LONG", 1000)
    assert np.array_equal(packed_rows(ids, counts, packing, 512, 7, UINT16).rows, whole)


def test_ids_that_the_dtype_cannot_hold_are_named() -> None:
    packing = pack(counts_of(1), 4, "best_fit")
    with pytest.raises(ValueError, match="tokens: id 65536 does not fit uint16"):
        packed_rows(np.array([65_536], np.uint32), counts_of(1), packing, 4, 0, UINT16)
    with pytest.raises(ValueError, match="pad_id: id -1 does not fit uint16"):
        packed_rows(np.array([1], np.uint32), counts_of(1), packing, 4, -1, UINT16)


def test_a_packing_of_other_documents_is_refused() -> None:
    packing = pack(counts_of(1, 1), 4, "best_fit")
    with pytest.raises(ValueError, match="3 ids, counts of 3 for 1 documents, a packing of 2"):
        packed_rows(np.arange(3), counts_of(3), packing, 4, 0, UINT16)
    with pytest.raises(ValueError, match="rows of more than 4 tokens"):
        packed_rows(np.arange(6), counts_of(3, 3), packing, 4, 0, UINT16)


def test_a_row_index_counts_its_documents() -> None:
    packing = Packing(order=counts_of(0, 1), bounds=counts_of(0, 1, 2))
    assert packing.rows == 2
    assert packing.fill(counts_of(4, 2), 4) == 0.75
