"""Windows over a stream, against the stream itself."""

import tempfile
from itertools import pairwise
from pathlib import Path

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders import Loader, SelectionError, open_tokens
from tests.token_stores import write_stream

FILL = 1


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[list[int]]], int, int, str]:
    """Draw shards of documents whose tokens all differ, a block size, a stride and a tail."""
    sizes = draw(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=5))
    number = iter(range(100, 10_000))
    shards = [[[next(number) for _ in range(n)] for n in documents] for documents in sizes]
    block_size = draw(st.integers(1, 12))
    stride = draw(st.integers(1, block_size) | st.just(block_size))
    return shards, block_size, stride, draw(st.sampled_from(["drop", "pad"]))


def expected_windows(
    stream: list[int], block_size: int, stride: int, tail: str
) -> list[tuple[list[int], list[int]]]:
    """Cut the windows one by one, as the documentation says it."""
    windows = []
    start, reached = 0, 0
    while reached < len(stream) - 1:
        x = stream[start : start + block_size]
        y = stream[start + 1 : start + 1 + block_size]
        if len(y) < block_size and tail == "drop":
            break
        windows.append(
            (
                x + [FILL] * (block_size - len(x)),
                y + [-100] * (block_size - len(y)),
            )
        )
        reached = start + block_size
        start += stride
    return windows


@settings(deadline=None, max_examples=150)
@given(cases())
def test_windows_are_those_of_the_stream(
    case: tuple[list[list[list[int]]], int, int, str],
) -> None:
    shards, block_size, stride, tail = case
    stream = [token for documents in shards for document in documents for token in document]
    expected = expected_windows(stream, block_size, stride, tail)
    with tempfile.TemporaryDirectory() as folder:
        ds = open_tokens(write_stream(Path(folder), shards))
        try:
            blocks = ds.blocks(block_size, stride=stride, tail=tail)
        except SelectionError:
            assert not expected
            return
        assert len(blocks) == len(expected)
        found = [(sample["x"].tolist(), sample["y"].tolist()) for sample in blocks]
        assert found == expected
        whole = blocks.__getitems__(range(len(blocks)))
        stacked = {name: torch.stack([sample[name] for sample in blocks]) for name in ("x", "y")}
        assert torch.equal(whole["x"], stacked["x"])
        assert torch.equal(whole["y"], stacked["y"])


@settings(deadline=None, max_examples=60)
@given(cases(), st.integers(1, 4), st.integers(0, 3))
def test_an_epoch_trains_on_every_token_once(
    case: tuple[list[list[list[int]]], int, int, str], batch_size: int, epoch: int
) -> None:
    shards, block_size, _, tail = case
    stream = [token for documents in shards for document in documents for token in document]
    with tempfile.TemporaryDirectory() as folder:
        ds = open_tokens(write_stream(Path(folder), shards))
        try:
            blocks = ds.blocks(block_size, tail=tail)
        except SelectionError:
            assert len(stream) <= (block_size if tail == "drop" else 1)
            return
        loader = Loader(blocks, batch_size, seed=7, drop_last=False)
        loader.set_epoch(epoch)
        batches = list(loader)
    x = torch.cat([batch["x"].view(-1) for batch in batches])
    y = torch.cat([batch["y"].view(-1) for batch in batches])
    learned = y != -100
    pairs = sorted(zip(x[learned].tolist(), y[learned].tolist(), strict=True))
    assert pairs == list(pairwise(stream))[: len(pairs)]
    left = len(stream) - 1 - len(pairs)
    assert left == 0 if tail == "pad" else left < block_size
