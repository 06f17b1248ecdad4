"""Run by the crash tests in a process of its own: runs over texts that end where they are told to.

    python -m tests.crash.token_run kill TOKENIZER SOURCE WORK LAYOUT:CONTAINER:STRIDE ...

As `tests.crash.bomb`: for every STRIDE-th call that changes names, a run that ends there as kill -9
would end it, and the same command after it. Prints the first call that a run does not reach.

    python -m tests.crash.token_run limit TOKENIZER SOURCE OUT LAYOUT CONTAINER NBYTES [NBYTES ...]

As `tests.crash.limited`: one run for each size that no file may pass, into OUT with the size
appended. Prints one line of JSON for each.
"""

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

from loaders.format.files import WORK
from preprocess.errors import OutputError
from preprocess.plan import RunOptions
from preprocess.tokens.options import TokenOptions
from preprocess.tokens.prepare import tokens_to_shards
from tests.crash.bomb import stop_and_finish
from tests.file_limit import limit_files
from tests.recipes import read_tree


def prepare(layout: Any, container: Any, tokenizer: str, source: Path, out: Path) -> None:
    options = TokenOptions(
        tokenizer=tokenizer,
        engine="transformers",
        layout=layout,
        length=None if layout == "stream" else 32,
        validation=0.3,
    )
    run_options = RunOptions(container=container, shard_nbytes=900, workers=1)
    tokens_to_shards(source, out, options, run_options)


def kill(case: str, tokenizer: str, source: Path, work: Path) -> int:
    layout, container, stride = case.split(":")
    # Not in a child: what is loaded here need not be loaded in every one.
    prepare(layout, container, tokenizer, source, work / case)
    expected = read_tree(work / case)
    out = work / "out"
    again = partial(prepare, layout, container, tokenizer, source, out)
    fatal = 1
    while stop_and_finish(fatal, out, expected, again, again):
        shutil.rmtree(out)
        fatal += int(stride)
    shutil.rmtree(out)
    return fatal


def limit(
    layout: str, container: str, tokenizer: str, source: Path, out: Path, nbytes: int
) -> None:
    limit_files(nbytes)
    message = ""
    try:
        prepare(layout, container, tokenizer, source, out)
    except OutputError as error:
        message = str(error)
    left = sorted(path.name for path in (out / WORK).glob("*"))
    # Bytes to a pipe: no file, no limit.
    os.write(1, json.dumps({"nbytes": nbytes, "message": message, "left": left}).encode() + b"\n")


if __name__ == "__main__":
    mode, tokenizer, source, out, *rest = sys.argv[1:]
    if mode == "kill":
        for case in rest:
            sys.stdout.write(f"{kill(case, tokenizer, Path(source), Path(out))}\n")
    else:
        layout, container, *sizes = rest
        prepare(layout, container, tokenizer, Path(source), Path(out))
        for size in map(int, sizes):
            child = os.fork()
            if child == 0:
                limit(layout, container, tokenizer, Path(source), Path(f"{out}{size}"), size)
                os._exit(0)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
                sys.exit(1)
