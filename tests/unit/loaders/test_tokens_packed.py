import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention.flex_attention import create_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from loaders import FormatError, Loader, document_mask, open_tokens
from loaders.format.fields import FieldSpec
from tests.token_stores import stream_fields, text, write_packed, write_store

ROWS = [[[[4, 5], [], [6]], [[7, 8, 9, 10, 11]]], [[[12, 13, 14]], [[]]]]


@pytest.fixture
def packed(tmp_path: Path) -> Any:
    return open_tokens(write_packed(tmp_path, ROWS, 5)).packed()


def test_positions_begin_anew_in_each_document_and_padding_is_a_segment(packed: Any) -> None:
    batch = packed.__getitems__([2, 0, 1, 3])
    assert batch["tokens"].tolist() == [
        [12, 13, 14, 1, 1],
        [4, 5, 6, 1, 1],
        [7, 8, 9, 10, 11],
        [1, 1, 1, 1, 1],
    ]
    assert batch["position_ids"].tolist() == [
        [0, 1, 2, 0, 1],
        [0, 1, 0, 0, 1],
        [0, 1, 2, 3, 4],
        [0, 1, 2, 3, 4],
    ]
    assert batch["document_ids"].tolist() == [
        [0, 0, 0, -1, -1],
        [0, 0, 2, -1, -1],  # document 1 is empty: it keeps its number and is no segment
        [0, 0, 0, 0, 0],
        [-1, -1, -1, -1, -1],
    ]
    assert batch["cu_seqlens"].tolist() == [0, 3, 5, 7, 8, 10, 15, 20]
    assert batch["max_seqlen"] == 5
    for name in ("tokens", "position_ids", "document_ids"):
        assert batch[name].dtype == torch.int64
        assert batch[name].is_contiguous()
    assert batch["cu_seqlens"].dtype == torch.int32


def test_a_sample_is_a_row_of_its_own(packed: Any) -> None:
    sample = packed[0]
    assert sample["tokens"].tolist() == [4, 5, 6, 1, 1]
    assert sample["position_ids"].tolist() == [0, 1, 0, 0, 1]
    assert sample["cu_seqlens"].tolist() == [0, 2, 3, 5]
    assert sample["max_seqlen"] == 2


def test_segments_cut_the_flat_batch_into_the_documents(packed: Any) -> None:
    for batch in Loader(packed, 2, shuffle=False):
        flat, bounds = batch["tokens"].view(-1), batch["cu_seqlens"].tolist()
        ids, positions = batch["document_ids"].view(-1), batch["position_ids"].view(-1)
        assert bounds[-1] == len(flat)
        assert batch["max_seqlen"] == max(np.diff(bounds))
        for start, stop in pairwise(bounds):
            assert len(set(ids[start:stop].tolist())) == 1
            assert positions[start:stop].tolist() == list(range(stop - start))


def test_a_row_has_the_key_and_the_metadata_of_each_of_its_documents(tmp_path: Path) -> None:
    fields = (
        FieldSpec(name="tokens", dtype="uint16", shape=(4,), role="tokens"),
        FieldSpec(name="document_lengths", dtype="uint32", shape=(), role="length", ragged=True),
        *stream_fields(metadata=True)[1:],
    )
    shard = {
        "tokens": [np.array([3, 4, 5, 6]), np.array([7, 8, 9, 1])],
        "document_lengths": [np.array([1, 3]), np.array([3])],
        "key": [text("a\n.txt:1\0é.txt:9"), text("b.txt:2")],
        "metadata": [text('{"n":1}\0{"n":9}'), text('{"n":2}')],
    }
    packed = open_tokens(write_store(tmp_path, fields, [shard])).packed()
    batch = packed.__getitems__([1, 0])
    assert batch["key"] == [["b.txt:2"], ["a\n.txt:1", "é.txt:9"]]
    assert batch["metadata"] == [[{"n": 2}], [{"n": 1}, {"n": 9}]]
    assert packed[0]["key"] == ["a\n.txt:1", "é.txt:9"]


def test_an_empty_batch_of_rows_is_empty(packed: Any) -> None:
    batch = packed.__getitems__([])
    assert batch["tokens"].shape == batch["position_ids"].shape == (0, 5)
    assert batch["cu_seqlens"].tolist() == [0]
    assert batch["max_seqlen"] == 0


def test_documents_longer_than_their_row_are_refused(tmp_path: Path) -> None:
    path = write_packed(tmp_path, ROWS, 5)
    file = path / "train" / "00001.document_lengths.npy"
    data = file.read_bytes()
    file.write_bytes(data[:-8] + np.array([6, 0], "<u4").tobytes())
    packed = open_tokens(path).packed()
    assert packed[1]["max_seqlen"] == 5
    with pytest.raises(FormatError, match=r"document_lengths\.npy: sample 0: .*\[6\] tokens in a"):
        packed.__getitems__([0, 2])


def test_the_mask_is_true_exactly_for_earlier_tokens_of_the_same_document(packed: Any) -> None:
    ids = packed.__getitems__([0, 2])["document_ids"]
    grid = torch.meshgrid(*(torch.arange(side) for side in (2, 3, 5, 5)), indexing="ij")
    seen = document_mask(ids)(*grid)
    assert seen.dtype == torch.bool
    for b in range(2):
        for h in range(3):
            for q in range(5):
                for k in range(5):
                    assert seen[b, h, q, k] == (ids[b, q] == ids[b, k] and q >= k)
    # Of [0, 0, 2, -1, -1], row by row.
    assert seen[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1],
    ]


def test_attention_under_the_mask_is_attention_of_each_document_alone(packed: Any) -> None:
    batch = packed.__getitems__([0, 1, 2])
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 3, 2, 5, 8)  # [B, heads, L, size] each
    mask_mod = document_mask(batch["document_ids"])
    dense = create_mask(mask_mod, 3, 1, 5, 5, device="cpu")
    together = scaled_dot_product_attention(query, key, value, attn_mask=dense)
    assert together.isfinite().all()
    bounds = batch["cu_seqlens"].tolist()
    for start, stop in pairwise(bounds):
        row, first, last = start // 5, start % 5, start % 5 + stop - start
        part = (slice(row, row + 1), slice(None), slice(first, last))
        alone = scaled_dot_product_attention(query[part], key[part], value[part], is_causal=True)
        torch.testing.assert_close(together[part], alone)


def test_flex_attention_agrees_with_the_dense_mask(packed: Any) -> None:
    from torch.nn.attention.flex_attention import create_block_mask

    ids = packed.__getitems__([0, 1, 2])["document_ids"]
    torch.manual_seed(1)
    query, key, value = torch.randn(3, 3, 2, 5, 8)
    mask_mod = document_mask(ids)
    with warnings.catch_warnings():
        # Uncompiled, it warns that it is slow.
        warnings.simplefilter("ignore")
        blocks = create_block_mask(mask_mod, 3, None, 5, 5, device="cpu")
        found = flex_attention(query, key, value, block_mask=blocks)
    dense = create_mask(mask_mod, 3, 1, 5, 5, device="cpu")
    expected = scaled_dot_product_attention(query, key, value, attn_mask=dense)
    torch.testing.assert_close(found, expected)
