from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loaders import FormatError, Loader, SelectionError, open_tokens
from loaders.format.fields import FieldSpec
from tests.token_stores import write_chat, write_fixed, write_store, write_stream

DOCUMENTS = [[[4, 5, 6]], [[7], [], [8, 9, 10, 11, 12]]]


def rows(batch: dict[str, Any], name: str = "input_ids") -> list[list[int]]:
    mask = batch["attention_mask"]
    assert mask.dtype == torch.bool
    assert mask.shape == batch[name].shape
    assert batch[name].dtype == torch.int64
    return [row[real].tolist() for row, real in zip(batch[name], mask, strict=True)]


def test_stored_rows_are_served_whole_with_a_mask_of_the_real_tokens(tmp_path: Path) -> None:
    padded = open_tokens(write_fixed(tmp_path, DOCUMENTS, 6)).padded()
    batch = padded.__getitems__([3, 0, 2])
    assert batch["input_ids"].tolist() == [[8, 9, 10, 11, 12, 1], [4, 5, 6, 1, 1, 1], [1] * 6]
    assert rows(batch) == [[8, 9, 10, 11, 12], [4, 5, 6], []]
    assert padded[1]["attention_mask"].tolist() == [True] + [False] * 5


def test_stored_rows_may_be_cut_but_not_lengthened(tmp_path: Path) -> None:
    ds = open_tokens(write_fixed(tmp_path, DOCUMENTS, 6))
    assert rows(ds.padded(2).__getitems__([3, 1])) == [[8, 9], [7]]
    assert ds.padded(multiple=2).__getitems__([0, 1])["input_ids"].shape == (2, 4)
    assert ds.padded(multiple=4).__getitems__([3])["input_ids"].shape == (1, 6)
    with pytest.raises(SelectionError, match="length=7, rows of 6 ids are stored"):
        ds.padded(7)
    with pytest.raises(SelectionError, match="has its padding stored"):
        ds.padded(pad_id=0)


def test_a_stored_length_above_the_row_is_refused(tmp_path: Path) -> None:
    path = write_fixed(tmp_path, DOCUMENTS, 6)
    file = path / "train" / "00001.length.npy"
    file.write_bytes(file.read_bytes()[:-2] + np.array([7], "<u2").tobytes())
    padded = open_tokens(path).padded()
    assert rows(padded.__getitems__([0, 1])) == [[4, 5, 6], [7]]
    with pytest.raises(FormatError, match=r"00001\.length\.npy: sample 2: 7 tokens in a row of 6"):
        padded.__getitems__([0, 3])


def test_pairs_of_texts_say_which_tokens_are_of_the_second(tmp_path: Path) -> None:
    tokens = FieldSpec(name="tokens", dtype="uint16", shape=(5,), role="tokens")
    names = ("length", "pair_start")
    lengths = [FieldSpec(name=name, dtype="uint32", shape=(), role="length") for name in names]
    shard = {
        "tokens": [np.array([4, 5, 6, 7, 1]), np.array([4, 5, 1, 1, 1])],
        "length": [np.uint32(4), np.uint32(2)],
        "pair_start": [np.uint32(2), np.uint32(2)],
    }
    ds = open_tokens(write_store(tmp_path, (tokens, *lengths), [shard]))
    batch = ds.padded().__getitems__([1, 0])
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 0, 0], [0, 0, 1, 1, 0]]
    assert batch["token_type_ids"].dtype == torch.int64
    assert ds.padded(3)[0]["token_type_ids"].tolist() == [0, 0, 1]


def test_documents_are_padded_to_the_longest_of_their_batch(tmp_path: Path) -> None:
    padded = open_tokens(write_stream(tmp_path, DOCUMENTS)).padded()
    batch = padded.__getitems__([0, 1])
    assert batch["input_ids"].tolist() == [[4, 5, 6], [7, 1, 1]]
    assert rows(padded.__getitems__([2, 3])) == [[], [8, 9, 10, 11, 12]]
    assert batch["key"] == ["é.txt:0", "é.txt:1"]
    assert padded[1]["input_ids"].tolist() == [7]


def test_documents_are_padded_to_a_multiple_or_to_one_length(tmp_path: Path) -> None:
    ds = open_tokens(write_stream(tmp_path, DOCUMENTS))
    assert ds.padded(multiple=4).__getitems__([0, 3])["input_ids"].shape == (2, 8)
    fixed = ds.padded(4, pad_id=0)
    assert fixed.__getitems__([3, 0])["input_ids"].tolist() == [[8, 9, 10, 11], [4, 5, 6, 0]]
    shapes = [batch["input_ids"].shape for batch in Loader(fixed, 2, shuffle=False)]
    assert shapes == [(2, 4), (2, 4)]


def test_the_end_of_text_fills_rows_where_there_is_no_padding(tmp_path: Path) -> None:
    ds = open_tokens(write_stream(tmp_path / "a", DOCUMENTS, tokenizer={"eos_id": 2}))
    assert ds.padded().__getitems__([0, 1])["input_ids"].tolist()[1] == [7, 2, 2]
    bare = open_tokens(write_stream(tmp_path / "b", DOCUMENTS, tokenizer={}))
    with pytest.raises(SelectionError, match=r"no padding and no end-of-text.*give pad_id="):
        bare.padded()
    assert len(bare.padded(pad_id=0)) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length=0: expected an integer of at least 1"),
        ({"multiple": 1.5}, r"multiple=1\.5: expected an integer"),
        ({"length": 4, "multiple": 2}, "give one of them"),
        ({"pad_id": -1}, "pad_id=-1: expected an id that uint16 can hold"),
        ({"pad_id": 65_536}, "pad_id=65536: expected an id that uint16 can hold"),
        ({"pad_id": False}, "pad_id=False: expected an id"),
    ],
)
def test_options_out_of_range_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    ds = open_tokens(write_stream(tmp_path / "stream", DOCUMENTS))
    with pytest.raises(SelectionError, match=message):
        ds.padded(**options)
    chats = open_tokens(write_chat(tmp_path / "chat", CHATS))
    with pytest.raises(SelectionError, match=message):
        chats.chat(**options)


CHATS = [
    [([4, 5, 6], [0, 1, 1]), ([], [])],
    [(list(range(20, 31)), [1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0])],
]


def test_labels_are_the_tokens_to_be_learned_and_are_ignored_elsewhere(tmp_path: Path) -> None:
    chat = open_tokens(write_chat(tmp_path, CHATS)).chat()
    batch = chat.__getitems__([2, 0, 1])
    assert rows(batch, "tokens") == [list(range(20, 31)), [4, 5, 6], []]
    assert batch["tokens"][1, 3:].tolist() == [1] * 8
    assert batch["labels"].tolist() == [
        [20, *[-100] * 8, 29, -100],
        [-100, 5, 6, *[-100] * 8],
        [-100] * 11,
    ]
    assert batch["key"] == ["chat:0", "chat:0", "chat:1"]
    assert chat[0]["labels"].tolist() == [-100, 5, 6]


def test_conversations_may_be_cut_or_rounded_up(tmp_path: Path) -> None:
    ds = open_tokens(write_chat(tmp_path, CHATS))
    batch = ds.chat(length=2).__getitems__([2, 0])
    assert batch["labels"].tolist() == [[20, -100], [-100, 5]]
    assert ds.chat(multiple=8).__getitems__([2])["tokens"].shape == (1, 16)
    (batch,) = Loader(ds.chat(), 3, shuffle=False)
    assert batch["labels"][2, 9] == 29


def test_a_loss_mask_of_another_length_than_the_tokens_is_refused(tmp_path: Path) -> None:
    path = write_chat(tmp_path, CHATS)
    file = path / "train" / "00000.loss_mask_offsets.npy"
    file.write_bytes(file.read_bytes()[:-24] + np.array([0, 0, 1], "<u8").tobytes())
    with pytest.raises(
        FormatError, match=r"loss_mask\.npy: sample 0: 0 bytes of loss mask for 3 tokens"
    ):
        open_tokens(path).chat()[0]
