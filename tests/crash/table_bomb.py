"""Run by the crash tests in a process of its own: a run over a table that ends at one exact call.

    python -m tests.crash.table_bomb STRIDE SOURCE WORK [overwrite]

As `tests.crash.bomb`, for rows that are parsed, split and shuffled: whatever call the run ends at,
the same command must leave the bytes of a run that nobody stopped, and nothing beside them. With
"overwrite", each run overwrites a dataset of another order. STRIDE 0 stands for the first and the
last call of each place in the code.
"""

import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from preprocess.plan import RunOptions
from preprocess.tables.options import TableOptions
from preprocess.tables.prepare import table_to_shards
from preprocess.tables.work import work_folder
from tests.crash.bomb import stop_at_each


def prepare(source: Path, out: Path, *, overwrite: bool, seed: int) -> None:
    options = TableOptions(target="y", validation=0.3, shuffle=seed)
    run_options = RunOptions(shard_nbytes=120, workers=1, overwrite=overwrite)
    table_to_shards(source, out, options, run_options)


if __name__ == "__main__":
    every, source, work, *rest = sys.argv[1:]
    import_module("joblib")
    import_module("pyarrow.csv")
    run = partial(prepare, Path(source))
    stop_at_each(int(every), Path(work), run, work_folder, overwrite=rest == ["overwrite"])
