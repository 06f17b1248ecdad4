"""Run by the crash tests in a process of its own: a run over a table that ends at one exact call.

    python -m tests.crash.table_bomb STRIDE SOURCE WORK [overwrite]

As `tests.crash.bomb`, for rows that are parsed, split and shuffled: whatever call the run ends at,
the same command must leave the bytes of a run that nobody stopped, and nothing beside them. With
"overwrite", each run overwrites a dataset of another order.
"""

import shutil
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from preprocess.plan import RunOptions
from preprocess.table_options import TableOptions
from preprocess.table_work import work_folder
from preprocess.tables import table_to_shards
from tests.crash.bomb import stop_and_finish
from tests.recipes import read_tree


def prepare(source: Path, out: Path, *, overwrite: bool = False, seed: int = 3) -> None:
    options = TableOptions(target="y", validation=0.3, shuffle=seed)
    run_options = RunOptions(shard_nbytes=120, workers=1, overwrite=overwrite)
    table_to_shards(source, out, options, run_options)


def main(stride: int, source: Path, work: Path, *, overwrite: bool) -> None:
    import_module("joblib")
    import_module("pyarrow.csv")
    whole, out, before = work / "whole", work / "out", work / "before"
    # In this process: threads of Arrow's that begin here are none of the children's.
    prepare(source, whole)
    expected = read_tree(whole)
    if overwrite:
        prepare(source, before, seed=4)
    finish = partial(prepare, source, out, overwrite=overwrite)
    reached = True
    fatal = 1 - stride
    while reached:
        fatal += stride
        if overwrite:
            shutil.copytree(before, out)
        reached = stop_and_finish(fatal, out, expected, finish, finish)
        if work_folder(out).exists():
            raise RuntimeError(f"stopped at call {fatal}: {work_folder(out)} is left")
        shutil.rmtree(out)
    sys.stdout.write(f"{fatal}\n")


if __name__ == "__main__":
    every, source, work, *rest = sys.argv[1:]
    main(int(every), Path(source), Path(work), overwrite=rest == ["overwrite"])
