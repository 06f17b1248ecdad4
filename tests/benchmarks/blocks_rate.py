"""Windows of tokens for a language model through `loaders.Loader`, against nanoGPT's and LitData.

nanoGPT's loop maps one file of uint16 with `np.memmap`, anew for each batch, draws random starts,
casts each window to int64 with `astype`, and stacks x and y with `torch.stack`. The limit is a copy
of the same windows, as uint16, from the same map into one buffer that nobody keeps.

LitData runs in a Python of its own: the same tokens, written by its `optimize` as uint16 (our size)
and as int64 (four times that, and nothing left to cast), read with and without workers; uint16 also
left as it is, against ours shown as stored. Its windows do not overlap and it drops the end of each
of its files, so its seconds are scaled to as many windows as ours. What it imports, and its first
epoch, are outside the timing.

Source:
    nanoGPT, train.py, get_batch (the way of working; the code here is written from that).

Run: python -m tests.benchmarks.blocks_rate [--litdata-python PYTHON]
"""

import argparse
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.benchmarks.rounds import Runs, alternate, paired_ratios, report, show
from tests.token_stores import stream_fields, text, write_store

VOCABULARY = 50_257
DOCUMENT = 4_096
"""Tokens in a document: of no effect on windows over the stream."""
OURS = "loaders.Loader"
OURS_STORED = "loaders.Loader, uint16"
LITDATA = "LitData"
STORED = ", as stored"

# Arguments of both: file of uint16, LitData's folder, type of its ids, windows' tokens, batch size,
# workers, whether ids are widened. The first writes; the second prints the seconds of its second
# epoch, and its batches.
LITDATA_WRITE = """
import json, sys
from pathlib import Path
import numpy as np, torch
from litdata import TokensLoader, optimize
file, out, width, block, batch, workers, widened = sys.argv[1:]
def tokens_of(part):
    ids = np.memmap(file, np.uint16, "r")[part[0] : part[1]]
    yield torch.from_numpy(ids.astype(width))
if __name__ == "__main__":
    count = Path(file).stat().st_size // 2
    step = 1 << 20
    parts = [(start, min(start + step, count)) for start in range(0, count, step)]
    optimize(tokens_of, parts, out, chunk_bytes="64MB", num_workers=2, verbose=False,
             item_loader=TokensLoader(int(block)))
    index = json.loads(Path(out, "index.json").read_text())
    written = sum(chunk["dim"] for chunk in index["chunks"])
    if written != count:
        sys.exit(f"wrote {written} of {count} tokens")
"""
LITDATA_READ = """
import sys, time
import torch
from litdata import StreamingDataLoader, StreamingDataset, TokensLoader
file, out, width, block, batch, workers, widened = sys.argv[1:]
if __name__ == "__main__":
    data = StreamingDataset(out, item_loader=TokensLoader(int(block)), shuffle=True, drop_last=True)
    kept = {"persistent_workers": True} if int(workers) else {}
    loader = StreamingDataLoader(data, batch_size=int(batch), drop_last=True,
                                 num_workers=int(workers), **kept)
    for epoch in range(2):
        begin, batches = time.perf_counter(), 0
        for ids in loader:
            x, y = ids[:, :-1], ids[:, 1:]
            if int(widened):
                x, y = x.long(), y.long()
            batches += 1
        seconds = time.perf_counter() - begin
    wanted = torch.int64 if int(widened) else torch.uint16
    if x.shape != (int(batch), int(block) - 1) or y.dtype != wanted:
        sys.exit(f"gave {x.shape} and {y.dtype}")
    print(seconds, batches)
"""


def prepare(scratch: Path, tokens: int, shards: int) -> tuple[Path, Path]:
    """Write random tokens as a dataset of several shards, and as one flat file of uint16."""
    rng = np.random.default_rng(0)
    flat = rng.integers(0, VOCABULARY, tokens, dtype=np.uint16)
    written: list[dict[str, list[Any]]] = []
    for part in np.array_split(flat, shards):
        documents = np.split(part, range(DOCUMENT, len(part), DOCUMENT))
        written.append({"tokens": documents, "key": [text("key")] * len(documents)})
    single = scratch / "train.bin"
    single.write_bytes(flat.tobytes())
    return write_store(scratch / "store", stream_fields(), written), single


def _one_epoch(loader: Any, block_size: int, dtype: torch.dtype) -> None:
    last = None
    for batch in loader:
        last = batch
    if last is None or last["x"].shape[1] != block_size or last["x"].dtype != dtype:
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


def _run_script(python: Path, script: str, *arguments: object) -> str:
    """Run one of LitData's scripts to its end, in an own process; give what it printed."""
    single, out, *_ = arguments
    path = Path(f"{out}.py")  # a file, not "-c": its workers start from it
    path.write_text(script)
    command = [str(python), "-W", "ignore", str(path), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{single}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _litdata_epoch(python: Path, batches: int, *arguments: object) -> float:
    """Give the seconds that LitData takes for as many batches as ours."""
    seconds, theirs = _run_script(python, LITDATA_READ, *arguments).split()[-2:]
    return float(seconds) * batches / int(theirs)


def litdata_contenders(
    python: Path, single: Path, batches: int, *, batch_size: int, block_size: int
) -> dict[str, Callable[[], float]]:
    """Write the tokens of a flat file for LitData; give an epoch of it in each of its settings."""
    contenders: dict[str, Callable[[], float]] = {}
    for width in ("uint16", "int64"):
        out = single.parent / f"litdata_{width}"
        sizes = (single, out, width, block_size + 1, batch_size)
        _run_script(python, LITDATA_WRITE, *sizes, 0, 1)
        for workers in (0, 2):
            name = f"{LITDATA}, {width}, {workers} workers"
            contenders[name] = partial(_litdata_epoch, python, batches, *sizes, workers, 1)
            if width == "uint16":
                name += STORED
                contenders[name] = partial(_litdata_epoch, python, batches, *sizes, workers, 0)
    return contenders


def best_of_litdata(runs: Runs) -> list[str]:
    """Say which of LitData's settings was fastest, and how many times that ours is; or nothing."""
    lines = []
    for ours, stored in ((OURS, False), (OURS_STORED, True)):
        names = [n for n in runs if n.startswith(LITDATA) and n.endswith(STORED) == stored]
        if names:
            best = min(names, key=lambda name: statistics.median(runs[name]))
            ratios = paired_ratios(runs, best, ours)
            times = (
                f"{statistics.median(ratios):.1f} times ({min(ratios):.1f} to {max(ratios):.1f})"
            )
            lines.append(f"  {ours} has {times} the rate of LitData's best: {best}")
    return lines


def measure(
    store: Path,
    single: Path,
    *,
    batch_size: int,
    block_size: int,
    rounds: int,
    litdata_python: Path | None = None,
) -> tuple[Runs, int]:
    """Time one epoch's batches in turns, everything in the page cache; give runs and tokens."""
    from loaders import Loader, open_tokens

    blocks = open_tokens(store).blocks(block_size)
    loader = Loader(blocks, batch_size, seed=0)
    narrow = Loader(open_tokens(store).blocks(block_size, shown="stored"), batch_size, seed=0)
    batches = len(loader)
    contenders: dict[str, Callable[[], float | None]] = {
        OURS: partial(_one_epoch, loader, block_size, torch.int64),
        OURS_STORED: partial(_one_epoch, narrow, block_size, torch.uint16),
        "nanoGPT's way": partial(_as_nanogpt, single, batches, batch_size, block_size),
        "gather, uint16 for a device": partial(_gather, blocks, batches, batch_size),
        "copy of the same windows": partial(_copy, single, batches, batch_size, block_size),
    }
    alternate(contenders, 1)  # the maps come into the page cache
    if litdata_python is not None:
        sizes = {"batch_size": batch_size, "block_size": block_size}
        contenders |= litdata_contenders(litdata_python, single, batches, **sizes)
    return alternate(contenders, rounds), batches * batch_size * block_size


def main() -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=100_000_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--block-size", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--litdata-python", type=Path, help="has litdata")
    chosen = parser.parse_args()
    sizes = {"batch_size": chosen.batch_size, "block_size": chosen.block_size}
    with tempfile.TemporaryDirectory() as scratch:
        store, single = prepare(Path(scratch), chosen.tokens, chosen.shards)
        runs, tokens = measure(
            store, single, **sizes, rounds=chosen.rounds, litdata_python=chosen.litdata_python
        )
    title = f"{tokens} tokens in windows of {chosen.block_size}, batch {chosen.batch_size}"
    show(report(title, runs, count=tokens, unit="tokens", reference=OURS))
    show(best_of_litdata(runs))


if __name__ == "__main__":
    main()
