"""Run by the crash tests in a process of its own: a run in two passes that ends at one exact call.

    python -m tests.crash.token_bomb STRIDE TOKENIZER SOURCE WORK

As `tests.crash.bomb`, for documents that are shuffled and whose duplicates are left out: whatever
call the run ends at, the same command must leave the bytes of a run that nobody stopped, and
nothing beside them.
"""

import shutil
import sys
from functools import partial
from pathlib import Path

from preprocess.plan import RunOptions
from preprocess.token_options import TokenOptions
from preprocess.token_reorder import first_folder
from preprocess.tokens import tokens_to_shards
from tests.crash.bomb import stop_and_finish
from tests.recipes import read_tree


def prepare(tokenizer: str, source: Path, out: Path, *, overwrite: bool = False) -> None:
    options = TokenOptions(
        tokenizer=tokenizer,
        engine="transformers",
        layout="packed",
        length=32,
        shuffle_documents=3,
        dedup="exact",
        validation=0.3,
    )
    run_options = RunOptions(shard_nbytes=900, workers=1, overwrite=overwrite)
    tokens_to_shards(source, out, options, run_options)


def main(stride: int, tokenizer: str, source: Path, work: Path) -> None:
    whole, out = work / "whole", work / "out"
    # Not in a child: what is loaded here need not be loaded in every one.
    prepare(tokenizer, source, whole)
    expected = read_tree(whole)
    finish = partial(prepare, tokenizer, source, out)
    reached = True
    fatal = 1 - stride
    while reached:
        fatal += stride
        reached = stop_and_finish(fatal, out, expected, finish, finish)
        if first_folder(out).exists():
            raise RuntimeError(f"stopped at call {fatal}: {first_folder(out)} is left")
        shutil.rmtree(out)
    sys.stdout.write(f"{fatal}\n")


if __name__ == "__main__":
    every, tokenizer, source, work = sys.argv[1:]
    main(int(every), tokenizer, Path(source), Path(work))
