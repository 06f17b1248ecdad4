"""Windows of tokens for a language model through `loaders.Loader`, against nanoGPT's way.

nanoGPT's loop maps one file of uint16 with `np.memmap`, anew for each batch, draws random starts,
casts each window to int64 with `astype`, and stacks x and y with `torch.stack`. The limit is a copy
of the same windows, as uint16, from the same map into one buffer that nobody keeps.

Source:
    nanoGPT, train.py, get_batch (the way of working; the code here is written from that).

Run: python -m tests.benchmarks.blocks_rate
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.benchmarks.rounds import Runs, alternate, report, show
from tests.token_stores import stream_fields, text, write_store

VOCABULARY = 50_257
DOCUMENT = 4_096
"""Tokens in a document: of no effect on windows over the stream."""


def prepare(scratch: Path, tokens: int, shards: int) -> tuple[Path, Path]:
    """Write random tokens as a dataset of several shards, and as one flat file of uint16."""
    rng = np.random.default_rng(0)
    flat = rng.integers(0, VOCABULARY, tokens, dtype=np.uint16)
    written = []
    for part in np.array_split(flat, shards):
        documents = np.split(part, range(DOCUMENT, len(part), DOCUMENT))
        written.append({"tokens": documents, "key": [text("key")] * len(documents)})
    single = scratch / "train.bin"
    single.write_bytes(flat.tobytes())
    return write_store(scratch / "store", stream_fields(), written), single


def _one_epoch(loader: Any, block_size: int) -> None:
    last = None
    for batch in loader:
        last = batch
    if last is None or last["x"].shape[1] != block_size or last["x"].dtype != torch.int64:
        raise RuntimeError(f"the loader gave {last}, expected windows of {block_size}")


def _as_nanogpt(file: Path, batches: int, batch_size: int, block_size: int) -> None:
    for _ in range(batches):
        data = np.memmap(file, dtype=np.uint16, mode="r")
        starts = torch.randint(len(data) - block_size, (batch_size,))  # used as they are
        torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in starts])
        torch.stack(
            [torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in starts]
        )


def _gather(blocks: Any, batches: int, batch_size: int) -> None:
    """Fill one buffer as `Loader` does for a device: what the host has to do for a GPU."""
    order = np.random.default_rng(0).permutation(len(blocks))
    (part,) = blocks.views
    buffer = np.empty(*part.layout(order[:batch_size]))
    for start in range(0, batches * batch_size, batch_size):
        blocks.gather_into(order[start : start + batch_size], {part.name: buffer})


def _copy(file: Path, batches: int, batch_size: int, block_size: int) -> None:
    data = np.asarray(np.memmap(file, dtype=np.uint16, mode="r"))
    order = np.random.default_rng(0).permutation((len(data) - 1) // block_size)
    starts = (order[: batches * batch_size] * block_size).tolist()
    buffer = np.empty((batch_size, block_size + 1), np.uint16)
    for first in range(0, len(starts), batch_size):
        for place, start in enumerate(starts[first : first + batch_size]):
            buffer[place] = data[start : start + block_size + 1]


def measure(
    store: Path, single: Path, *, batch_size: int, block_size: int, rounds: int
) -> tuple[Runs, int]:
    """Time one epoch's batches in turns, everything in the page cache; give runs and tokens."""
    from loaders import Loader, open_tokens

    blocks = open_tokens(store).blocks(block_size)
    loader = Loader(blocks, batch_size, seed=0)
    batches = len(loader)
    contenders = {
        "loaders.Loader": partial(_one_epoch, loader, block_size),
        "nanoGPT's way": partial(_as_nanogpt, single, batches, batch_size, block_size),
        "gather, uint16 for a device": partial(_gather, blocks, batches, batch_size),
        "copy of the same windows": partial(_copy, single, batches, batch_size, block_size),
    }
    alternate(contenders, 1)  # the maps come into the page cache
    return alternate(contenders, rounds), batches * batch_size * block_size


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=100_000_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--block-size", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    sizes = {"batch_size": chosen.batch_size, "block_size": chosen.block_size}
    with tempfile.TemporaryDirectory() as scratch:
        store, single = prepare(Path(scratch), chosen.tokens, chosen.shards)
        runs, tokens = measure(store, single, **sizes, rounds=chosen.rounds)
    title = f"{tokens} tokens in windows of {chosen.block_size}, batch {chosen.batch_size}"
    show(report(title, runs, count=tokens, unit="tokens", reference="loaders.Loader"))


if __name__ == "__main__":
    main()
