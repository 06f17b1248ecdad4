"""Run by the crash tests in a process of its own: a run in two passes that ends at one exact call.

    python -m tests.crash.token_bomb STRIDE TOKENIZER SOURCE WORK [overwrite]

As `tests.crash.bomb`, for documents that are shuffled and whose duplicates are left out: whatever
call the run ends at, the same command must leave the bytes of a run that nobody stopped, and
nothing beside them. With "overwrite", each run overwrites a dataset of another order.
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


def prepare(
    tokenizer: str, source: Path, out: Path, *, overwrite: bool = False, seed: int = 3
) -> None:
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


def main(stride: int, tokenizer: str, source: Path, work: Path, *, overwrite: bool) -> None:
    whole, out, before = work / "whole", work / "out", work / "before"
    # Not in a child: what is loaded here need not be loaded in every one.
    prepare(tokenizer, source, whole)
    expected = read_tree(whole)
    if overwrite:
        prepare(tokenizer, source, before, seed=4)
    finish = partial(prepare, tokenizer, source, out, overwrite=overwrite)
    reached = True
    fatal = 1 - stride
    while reached:
        fatal += stride
        if overwrite:
            shutil.copytree(before, out)
        reached = stop_and_finish(fatal, out, expected, finish, finish)
        if first_folder(out).exists():
            raise RuntimeError(f"stopped at call {fatal}: {first_folder(out)} is left")
        shutil.rmtree(out)
    sys.stdout.write(f"{fatal}\n")


if __name__ == "__main__":
    every, tokenizer, source, work, *rest = sys.argv[1:]
    main(int(every), tokenizer, Path(source), Path(work), overwrite=rest == ["overwrite"])
