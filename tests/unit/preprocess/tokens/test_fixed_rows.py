"""Rows of one length are those that transformers' fast tokenizers give, id for id."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.tokens.fixed_rows import FixedRows, RowFrame, fixed_pair_rows, fixed_rows

UINT16 = np.dtype("uint16")
WORDS = ("ab", "c", "d", "ef", "unknown")
KINDS = ("bert", "template", "roberta", "plain")
TEXTS = st.lists(st.sampled_from(WORDS), max_size=24).map(" ".join)


@cache
def tokenizer_of(kind: str) -> Any:
    """A fast tokenizer of a few words, with the special tokens of one family of models."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = {
        "bert": ("[CLS]", "[SEP]"),
        "template": ("[CLS]", "[SEP]"),
        "roberta": ("<s>", "</s>"),
    }
    first, last = special.get(kind, ("[CLS]", "[SEP]"))
    names = ["[PAD]", "[UNK]", first, last, "a", "##b", "c", "d", "e", "##f", "ab"]
    vocabulary = {name: number for number, name in enumerate(names)}
    if kind == "plain":
        words = {"<pad>": 0, "a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "Ġ": 7, "ab": 8}
        words |= {letter: 9 + place for place, letter in enumerate("unkow")}
        made = Tokenizer(models.BPE(words, [("a", "b")]))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>")
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = ((last, vocabulary[last]), (first, vocabulary[first]))
    if kind == "bert":
        made.post_processor = processors.BertProcessing(*ends)
    elif kind == "roberta":
        made.post_processor = processors.RobertaProcessing(*ends)
    else:
        made.post_processor = processors.TemplateProcessing(
            single=f"{first} $A {last}",
            pair=f"{first} $A {last} $B:1 {last}:1",
            special_tokens=[(first, 2), (last, 3)],
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token=first, sep_token=last
    )


def frame_of(kind: str, **options: Any) -> RowFrame:
    ids: dict[str, tuple[int, ...]] = {}
    if kind != "plain":
        ids = {
            "prefix_ids": (2,),
            "separator_ids": (3, 3) if kind == "roberta" else (3,),
            "suffix_ids": (3,),
        }
    return RowFrame(**{"pad_id": 0, "dtype": UINT16, **ids, **options})


def flat_ids(tokenizer: Any, texts: list[str]) -> tuple[Any, Any]:
    ids = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    flat = np.array([number for each in ids for number in each], np.uint32)
    return flat, np.array([len(each) for each in ids], np.int64)


def check_equal(made: FixedRows, expected: Any) -> None:
    assert made.rows.dtype == UINT16
    assert made.rows.tolist() == expected["input_ids"]
    assert made.lengths.tolist() == [sum(mask) for mask in expected["attention_mask"]]
    if "overflow_to_sample_mapping" in expected:
        assert made.documents.tolist() == list(expected["overflow_to_sample_mapping"])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=6),
    length=st.integers(3, 12),
    stride=st.none() | st.integers(0, 8),
    side=st.sampled_from(["right", "left"]),
)
def test_single_texts_are_laid_as_transformers_lays_them(
    kind: str, texts: list[str], length: int, stride: int | None, side: str
) -> None:
    tokenizer = tokenizer_of(kind)
    room = length - (0 if kind == "plain" else 2)
    stride = None if stride is None else min(stride, room - 1)
    tokenizer.truncation_side = side
    expected = tokenizer(
        texts,
        truncation=True,
        max_length=length,
        padding="max_length",
        stride=stride or 0,
        return_overflowing_tokens=stride is not None,
    )
    frame = frame_of(kind, length=length, stride=stride, truncation_side=side)
    check_equal(fixed_rows(*flat_ids(tokenizer, texts), frame), expected)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=80, deadline=None)
@given(
    pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4),
    length=st.integers(8, 16),
    stride=st.none() | st.integers(0, 8),
    side=st.sampled_from(["right", "left"]),
)
def test_pairs_are_laid_as_transformers_lays_them_when_the_longest_gives_way(
    kind: str, pairs: list[tuple[str, str]], length: int, stride: int | None, side: str
) -> None:
    tokenizer = tokenizer_of(kind)
    special = {"plain": 0, "roberta": 4}.get(kind, 3)
    stride = None if stride is None else min(stride, (length - special) // 2 - 1)
    tokenizer.truncation_side = side
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    expected = tokenizer(
        first,
        second,
        truncation="longest_first",
        max_length=length,
        padding="max_length",
        stride=stride or 0,
        return_overflowing_tokens=stride is not None,
        return_token_type_ids=True,
    )
    frame = frame_of(kind, length=length, stride=stride, truncation_side=side)
    made = fixed_pair_rows(*flat_ids(tokenizer, first), *flat_ids(tokenizer, second), frame)
    check_equal(made, expected)
    if kind in {"bert", "template"}:
        check_types(made, expected)


def check_types(made: FixedRows, expected: Any) -> None:
    columns = np.arange(made.rows.shape[1])
    assert made.pair_starts is not None
    types = (columns >= made.pair_starts[:, None]) & (columns < made.lengths[:, None])
    assert types.astype(int).tolist() == expected["token_type_ids"]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4),
    length=st.integers(8, 16),
    stride=st.none() | st.integers(0, 3),
)
def test_pairs_whose_second_text_gives_way_are_those_of_transformers_or_refused_as_there(
    kind: str, pairs: list[tuple[str, str]], length: int, stride: int | None
) -> None:
    tokenizer = tokenizer_of(kind)
    tokenizer.truncation_side = "right"
    frame = frame_of(kind, length=length, stride=stride, truncation="only_second")
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    made = fixed_pair_rows(*flat_ids(tokenizer, first), *flat_ids(tokenizer, second), frame)
    kept = [number for number in range(len(pairs)) if number not in made.refused]
    for number in made.refused.tolist():
        room = frame.room(pairs=True)
        used = len(tokenizer.encode(first[number], add_special_tokens=False))
        assert room - used <= (stride or 0)
    rows = []
    for number in kept:
        expected = tokenizer(
            [first[number]],
            [second[number]],
            truncation="only_second",
            max_length=length,
            padding="max_length",
            stride=stride or 0,
            return_overflowing_tokens=stride is not None,
        )
        rows += [(number, row) for row in expected["input_ids"]]
    assert made.documents.tolist() == [number for number, _ in rows]
    assert made.rows.tolist() == [row for _, row in rows]


def test_no_documents_give_no_rows() -> None:
    empty = np.zeros(0, np.int64)
    made = fixed_rows(np.zeros(0, np.uint32), empty, frame_of("bert", length=5))
    assert made.rows.shape == (0, 5)
    pairs = fixed_pair_rows(
        np.zeros(0, np.uint32), empty, np.zeros(0, np.uint32), empty, frame_of("bert", length=5)
    )
    assert pairs.rows.shape == (0, 5)


def test_a_length_without_room_for_text_is_refused_with_its_numbers() -> None:
    with pytest.raises(ValueError, match=r"length 2 is too small: 2 special tokens .* at least 3"):
        frame_of("bert", length=2).room(pairs=False)
    with pytest.raises(ValueError, match=r"length 4 is too small: 3 special tokens .* at least 5"):
        frame_of("bert", length=4).room(pairs=True)


def test_a_stride_that_never_advances_is_refused_with_its_numbers() -> None:
    with pytest.raises(ValueError, match="stride 6 with length 8: a row holds 6"):
        frame_of("bert", length=8, stride=6).room(pairs=False)
    with pytest.raises(ValueError, match="stride -1"):
        frame_of("bert", length=8, stride=-1)


def test_a_tokenizer_without_a_pad_token_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="pad_id: the tokenizer names no pad token"):
        frame_of("bert", length=8, pad_id=None)


def test_an_id_that_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="tokens: id 70000 does not fit uint16"):
        fixed_rows(np.array([70_000], np.uint32), np.array([1]), frame_of("bert", length=8))
    with pytest.raises(ValueError, match="special tokens: id 65536 does not fit uint16"):
        frame_of("bert", length=8, pad_id=65_536)


def test_first_and_second_texts_of_different_numbers_are_refused() -> None:
    ids, one, two = np.ones(2, np.uint32), np.array([2]), np.array([1, 1])
    with pytest.raises(ValueError, match="1 first texts and 2 second texts"):
        fixed_pair_rows(ids, one, ids, two, frame_of("bert", length=8))
