"""Are the ids that `prep tokens` stores those of transformers? Every document is compared.

The reference encodes each text by itself with the `tokenizers` library, special texts as text, and
the stored documents are read with NumPy alone. The run fails if any document differs.

Run: python -m tests.benchmarks.token_exactness TEXT.jsonl TOKENIZER [TOKENIZER ...]
"""

import argparse
import json
import tempfile
import time
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.rounds import show


def stored_documents(out: Path) -> Any:
    """Yield the ids of every document, in order."""
    for path in sorted((out / "train").glob("*.tokens.npy")):
        values = np.load(path, mmap_mode="r")
        ends = np.load(path.with_name(path.name.replace(".tokens.", ".tokens_offsets."))).tolist()
        for first, end in pairwise(ends):
            yield values[first:end]


def compare(text: Path, tokenizer: Path, out: Path) -> tuple[int, int, str]:
    """Prepare a corpus and compare it; give documents, differing ones, and the engine."""
    from preprocess import RunOptions, TokenOptions, tokens_to_shards
    from preprocess.tokens.tokenizer import TextTokenizer
    from preprocess.tokens.tokenizer_source import find_tokenizer

    options = TokenOptions(tokenizer=str(tokenizer), eos="")
    tokens_to_shards(text, out, options, RunOptions(shard_nbytes=16_000_000))
    manifest = json.loads((out / "manifest.json").read_bytes())
    reference = TextTokenizer(find_tokenizer(str(tokenizer))).backend
    stored = stored_documents(out)
    differing = count = 0
    with text.open("rb") as lines:
        while batch := [json.loads(line)["text"] for line in islice(lines, 500)]:
            for expected in reference.encode_batch_fast(batch, add_special_tokens=False):
                found = next(stored, None)
                differing += found is None or not np.array_equal(found, expected.ids)
                count += 1
    differing += sum(1 for _ in stored)
    return count, differing, str(manifest["recipe"]["engine"]["engine"])


def main() -> None:
    """Compare from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, help="JSON lines with the key text")
    parser.add_argument("tokenizers", type=Path, nargs="+")
    chosen = parser.parse_args()
    total = 0
    for tokenizer in chosen.tokenizers:
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as scratch:
            count, differing, engine = compare(chosen.text, tokenizer, Path(scratch, "out"))
        seconds = time.perf_counter() - begin
        show([f"{tokenizer.name}: {engine}, {differing} of {count:,} differ ({seconds:.0f} s)"])
        total += differing
    if total:
        raise SystemExit(f"{total} documents differ")


if __name__ == "__main__":
    main()
