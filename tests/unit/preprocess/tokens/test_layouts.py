"""Layouts on ids that are chosen by hand: where everything goes, and what is refused."""

from typing import Any

import numpy as np
import pytest

from preprocess.recipe import Ragged
from preprocess.tokens.fixed_rows import RowFrame
from preprocess.tokens.layouts import Encoded, FixedLayout, PackedLayout, StreamLayout, framed


def encoded(*documents: list[int], **more: Any) -> Encoded:
    ids = np.array([number for ids in documents for number in ids], np.uint32)
    return Encoded(ids=ids, counts=np.array([len(ids) for ids in documents], np.int64), **more)


def lists(ragged: Any) -> list[list[int]]:
    assert isinstance(ragged, Ragged)
    ends = np.cumsum(ragged.counts)
    assert int(ragged.counts.sum()) == len(ragged.values)
    return [ragged.values[e - c : e].tolist() for e, c in zip(ends, ragged.counts, strict=True)]


DOCUMENTS = [[5, 6], [], [7], [8, 9, 10]]


@pytest.mark.parametrize("bos", [(), (1,), (1, 2)])
@pytest.mark.parametrize("eos", [(), (3,), (3, 4)])
@pytest.mark.parametrize("documents", [DOCUMENTS, [[]], [], [[1]]])
def test_every_document_has_its_frame_the_empty_ones_too(
    bos: tuple[int, ...], eos: tuple[int, ...], documents: list[list[int]]
) -> None:
    laid_out = StreamLayout(dtype="uint16", bos=bos, eos=eos).lay_out(encoded(*documents))
    assert lists(laid_out.arrays["tokens"]) == [[*bos, *ids, *eos] for ids in documents]
    assert laid_out.count == len(documents)
    assert laid_out.documents.tolist() == list(range(len(documents)))
    assert laid_out.document_counts.tolist() == [1] * len(documents)
    assert laid_out.refused == {}


@pytest.mark.parametrize("eos", [(), (3,)])
def test_an_id_that_does_not_fit_is_named_and_never_wraps(eos: tuple[int, ...]) -> None:
    ids, _ = framed(encoded([65_535]), (), eos, "uint16")
    assert ids[0] == 65_535
    with pytest.raises(ValueError, match="id 65536 does not fit uint16"):
        framed(encoded([1], [65_536]), (), eos, "uint16")
    ids, _ = framed(encoded([65_536]), (), eos, "uint32")
    assert (ids.dtype, ids[0]) == (np.dtype("<u4"), 65_536)


def test_packed_rows_hold_whole_documents_and_say_which() -> None:
    layout = PackedLayout(dtype="uint16", length=4, packing="best_fit", pad_id=0, eos=(3,))
    laid_out = layout.lay_out(encoded(*DOCUMENTS))
    rows, lengths = laid_out.arrays["tokens"], lists(laid_out.arrays["document_lengths"])
    assert isinstance(rows, np.ndarray)
    assert rows.shape == (laid_out.count, 4)
    found: dict[int, list[int]] = {}
    order = iter(laid_out.documents.tolist())
    for row, parts in zip(rows.tolist(), lengths, strict=True):
        at = 0
        for length in parts:
            found[next(order)] = row[at : at + length]
            at += length
        assert row[at:] == [0] * (4 - at)
    assert found == {index: [*ids, 3] for index, ids in enumerate(DOCUMENTS)}
    assert laid_out.document_counts.tolist() == [len(parts) for parts in lengths]


def test_a_document_longer_than_a_row_is_cut_into_several() -> None:
    layout = PackedLayout(dtype="uint16", length=4, packing="first_fit", pad_id=0)
    laid_out = layout.lay_out(encoded([*range(1, 11)], [20]))
    parts = [
        (document, length)
        for document, length in zip(
            laid_out.documents.tolist(),
            (n for part in lists(laid_out.arrays["document_lengths"]) for n in part),
            strict=True,
        )
    ]
    assert sorted(parts) == [(0, 2), (0, 4), (0, 4), (1, 1)]


def frame(**changes: Any) -> RowFrame:
    values = {"length": 5, "pad_id": 0, "dtype": np.dtype("<u2"), "prefix_ids": (1,)}
    return RowFrame(**{**values, "suffix_ids": (2,), **changes})


def test_fixed_rows_are_framed_cut_and_padded() -> None:
    laid_out = FixedLayout(frame=frame(), pairs=False).lay_out(encoded([5], [], [6, 7, 8, 9]))
    assert laid_out.arrays["tokens"].tolist() == [[1, 5, 2, 0, 0], [1, 2, 0, 0, 0], [1, 6, 7, 8, 2]]  # type: ignore[union-attr]
    assert laid_out.arrays["length"].tolist() == [3, 2, 5]  # type: ignore[union-attr]
    assert "pair_start" not in laid_out.arrays


def test_overlapping_rows_name_the_document_that_each_is_of() -> None:
    layout = FixedLayout(frame=frame(stride=1), pairs=False)
    laid_out = layout.lay_out(encoded([5], [6, 7, 8, 9]))
    assert laid_out.documents.tolist() == [0, 1, 1]
    assert laid_out.arrays["tokens"].tolist()[2] == [1, 8, 9, 2, 0]  # type: ignore[union-attr]


def test_pairs_have_what_stands_between_them_and_say_where_the_second_begins() -> None:
    layout = FixedLayout(frame=frame(length=7, separator_ids=(2,)), pairs=True)
    pairs = encoded([8], [], [9, 9])
    laid_out = layout.lay_out(encoded([5], [6], [], pair_ids=pairs.ids, pair_counts=pairs.counts))
    rows = [[1, 5, 2, 8, 2, 0, 0], [1, 6, 2, 2, 0, 0, 0], [1, 2, 9, 9, 2, 0, 0]]
    assert laid_out.arrays["tokens"].tolist() == rows  # type: ignore[union-attr]
    assert laid_out.arrays["pair_start"].tolist() == [3, 3, 2]  # type: ignore[union-attr]


def test_fields_say_what_a_sample_holds() -> None:
    names = {
        "stream": StreamLayout(dtype="uint32"),
        "masked": StreamLayout(dtype="uint16", masked=True),
        "fixed": FixedLayout(frame=frame(), pairs=False),
        "pairs": FixedLayout(frame=frame(), pairs=True),
        "packed": PackedLayout(dtype="uint16", length=4, packing="best_fit", pad_id=0),
    }
    found = {
        name: [(field.name, field.dtype, field.shape, field.ragged) for field in layout.fields()]
        for name, layout in names.items()
    }
    assert found == {
        "stream": [("tokens", "uint32", (), True)],
        "masked": [("tokens", "uint16", (), True), ("loss_mask", "uint8", (), True)],
        "fixed": [("tokens", "uint16", (5,), False), ("length", "uint32", (), False)],
        "pairs": [
            ("tokens", "uint16", (5,), False),
            ("length", "uint32", (), False),
            ("pair_start", "uint32", (), False),
        ],
        "packed": [("tokens", "uint16", (4,), False), ("document_lengths", "uint32", (), True)],
    }
