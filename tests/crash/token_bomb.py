"""Run by the crash tests in a process of its own: a run in two passes that ends at one exact call.

    python -m tests.crash.token_bomb STRIDE TOKENIZER SOURCE WORK [overwrite]

As `tests.crash.bomb`, for documents that are shuffled and whose duplicates are left out: whatever
call the run ends at, the same command must leave the bytes of a run that nobody stopped, and
nothing beside them. With "overwrite", each run overwrites a dataset of another order.
"""

import sys
from functools import partial
from pathlib import Path

from preprocess.plan import RunOptions
from preprocess.tokens.options import TokenOptions
from preprocess.tokens.prepare import tokens_to_shards
from preprocess.tokens.reorder import first_folder
from tests.crash.bomb import stop_at_each


def prepare(tokenizer: str, source: Path, out: Path, *, overwrite: bool, seed: int) -> None:
    options = TokenOptions(
        tokenizer=tokenizer,
        engine="transformers",
        layout="packed",
        length=32,
        shuffle_documents=seed,
        dedup="exact",
        validation=0.3,
    )
    run_options = RunOptions(shard_nbytes=900, workers=1, overwrite=overwrite)
    tokens_to_shards(source, out, options, run_options)


if __name__ == "__main__":
    every, tokenizer, source, work, *rest = sys.argv[1:]
    run = partial(prepare, tokenizer, Path(source))
    stop_at_each(int(every), Path(work), run, first_folder, overwrite=rest == ["overwrite"])
