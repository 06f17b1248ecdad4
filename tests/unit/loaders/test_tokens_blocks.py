import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from loaders import Loader, SelectionError, open_tokens
from loaders.tokens import TokenDataset
from tests.token_stores import write_stream


def stream(root: Path, *, count: int = 10, tokenizer: dict[str, Any] | None = None) -> TokenDataset:
    """Tokens 10, 11, ... in documents of three over shards of two documents."""
    tokens = list(range(10, 10 + count))
    documents = [tokens[start : start + 3] for start in range(0, count, 3)]
    shards = [documents[start : start + 2] for start in range(0, len(documents), 2)]
    return open_tokens(write_stream(root, shards, tokenizer=tokenizer))


def xs_and_ys(view: Any) -> list[tuple[list[int], list[int]]]:
    return [(sample["x"].tolist(), sample["y"].tolist()) for sample in view]


def test_windows_go_on_across_documents_and_shards_and_y_is_shifted_by_one(tmp_path: Path) -> None:
    assert xs_and_ys(stream(tmp_path).blocks(4)) == [
        ([10, 11, 12, 13], [11, 12, 13, 14]),
        ([14, 15, 16, 17], [15, 16, 17, 18]),
    ]


def test_a_last_window_needs_one_token_more_than_it_shows(tmp_path: Path) -> None:
    assert len(stream(tmp_path / "8", count=8).blocks(4)) == 1
    assert len(stream(tmp_path / "9", count=9).blocks(4)) == 2


def test_a_padded_tail_holds_what_is_left_and_labels_that_are_ignored(tmp_path: Path) -> None:
    assert xs_and_ys(stream(tmp_path / "10").blocks(4, tail="pad"))[2:] == [
        ([18, 19, 1, 1], [19, -100, -100, -100])
    ]
    # The last token has no next one, so it alone makes no window.
    assert len(stream(tmp_path / "9", count=9).blocks(4, tail="pad")) == 2
    short = stream(tmp_path / "2", count=2).blocks(4, tail="pad")
    assert xs_and_ys(short) == [([10, 11, 1, 1], [11, -100, -100, -100])]


def test_a_tail_is_padded_with_the_end_of_text_where_there_is_no_padding(tmp_path: Path) -> None:
    blocks = stream(tmp_path / "a", tokenizer={"eos_id": 2}).blocks(4, tail="pad")
    assert blocks[2]["x"].tolist() == [18, 19, 2, 2]
    with pytest.raises(SelectionError, match=r"no padding and no end-of-text token.*drop"):
        stream(tmp_path / "b", tokenizer={}).blocks(4, tail="pad")
    assert len(stream(tmp_path / "c", tokenizer={}).blocks(4)) == 2


def test_a_stride_below_the_block_size_makes_windows_overlap(tmp_path: Path) -> None:
    blocks = stream(tmp_path).blocks(4, stride=3)
    assert xs_and_ys(blocks) == [
        ([10, 11, 12, 13], [11, 12, 13, 14]),
        ([13, 14, 15, 16], [14, 15, 16, 17]),
    ]


def test_batches_are_contiguous_int64_as_models_flatten_them(tmp_path: Path) -> None:
    for tail in ("drop", "pad"):
        blocks = stream(tmp_path / tail).blocks(3, tail=tail)  # type: ignore[arg-type]
        for batch in [blocks.__getitems__([0, 2]), next(iter(Loader(blocks, 2)))]:
            assert batch["x"].dtype == batch["y"].dtype == torch.int64
            assert batch["x"].shape == batch["y"].shape == (2, 3)
            assert batch["y"].view(-1).shape == batch["x"].view(-1).shape == (6,)


def test_blocks_shown_as_stored_are_the_same_numbers_and_one_memory(tmp_path: Path) -> None:
    whole, stored = stream(tmp_path).blocks(3), stream(tmp_path).blocks(3, shown="stored")
    assert [sample["x"].dtype for sample in stored] == [torch.uint16] * 3
    for batch in [stored.__getitems__([0, 2]), *Loader(stored, 2, shuffle=True)]:
        assert batch["x"].dtype == batch["y"].dtype == torch.uint16
        assert batch["x"].long().view(-1).shape == batch["y"].long().view(-1).shape == (6,)
        assert batch["y"].data_ptr() - batch["x"].data_ptr() == 2
    pairs = zip(Loader(whole, 2, seed=3), Loader(stored, 2, seed=3), strict=True)
    for one, other in pairs:
        assert torch.equal(one["x"], other["x"].long())
        assert torch.equal(one["y"], other["y"].long())


def test_what_travels_to_a_device_is_as_small_as_what_is_stored(tmp_path: Path) -> None:
    (part,) = stream(tmp_path).blocks(4).views
    shape, dtype = part.layout(torch.arange(2).numpy())
    assert (shape, dtype, part.on_device) == ((2, 5), "uint16", True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_size": 0}, "block_size=0: expected an integer of at least 1"),
        ({"block_size": 2.0}, r"block_size=2\.0: expected an integer"),
        ({"block_size": True}, "block_size=True: expected an integer"),
        ({"block_size": 4, "stride": 5}, "stride=5: expected an integer from 1 to block_size=4"),
        ({"block_size": 4, "stride": 0}, "stride=0: expected"),
        ({"block_size": 4, "tail": "wrap"}, 'tail=\'wrap\': expected "drop" or "pad"'),
        ({"block_size": 4, "shown": "int32"}, 'shown=\'int32\': expected "int64" or "stored"'),
        ({"block_size": 4, "shown": "stored", "tail": "pad"}, r'uint16 has no -100.*shown="int64"'),
        ({"block_size": 10}, 'needs 11 tokens, train has 10: use a smaller .* or tail="pad"'),
    ],
)
def test_options_out_of_range_are_refused(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SelectionError, match=message):
        stream(tmp_path).blocks(**options)


def test_windows_that_are_kept_are_never_overwritten_and_memory_goes_round(tmp_path: Path) -> None:
    size, count = 1 << 13, 100  # 64 KiB of x: pooled; many more than are in work at a time
    tokens = [number % 900 for number in range(size * count + 1)]
    view = open_tokens(write_stream(tmp_path, [[tokens]])).blocks(size)
    loader = Loader(view, 1, shuffle=False)
    for start, batch in enumerate(list(loader)):
        first = start * size
        assert batch["x"][0].tolist() == tokens[first : first + size]
        assert batch["y"][0].tolist() == tokens[first + 1 : first + size + 1]
    places = [batch["x"].data_ptr() for batch in loader]
    assert len(set(places)) < count


def test_a_batch_that_was_handed_out_is_held_by_nobody_but_the_loop(tmp_path: Path) -> None:
    data = open_tokens(write_stream(tmp_path, [[list(range(400))]])).blocks(4)
    batches = iter(Loader(data, 4, shuffle=False))
    first = next(batches)
    following = [next(batches) for _ in range(3)]  # all of them were gathered in one go
    held = weakref.ref(first["x"])
    del first
    assert held() is None
    assert len(following) == 3
