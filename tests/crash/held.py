"""Run by the crash tests in a process of its own: one run, held where an item waits on a FIFO.

python -m tests.crash.held BACKEND SOURCE OUT FIFO
"""

import sys
from pathlib import Path

from preprocess.plan import RunOptions
from preprocess.run import run
from tests.recipes import DigestRecipe, plan_digests, row_nbytes

if __name__ == "__main__":
    backend, source, out, fifo = sys.argv[1:]
    recipe = DigestRecipe(block=fifo)
    options = RunOptions(shard_nbytes=2 * row_nbytes(recipe), workers=2, backend=backend)
    run(plan_digests(Path(source), Path(out), options, recipe), options)
