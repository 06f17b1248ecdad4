"""Run by the crash tests in a process of its own: a run whose files may not pass a size.

python -m tests.crash.limited STORED SOURCE OUT NBYTES [NBYTES ...]

Runs once for each size (RLIMIT_FSIZE: the write that would pass it is cut short, the next one
fails, as on a full disk), into OUT with the size appended. Prints one line of JSON for each.
"""

import json
import os
import sys
from pathlib import Path

from preprocess.errors import OutputError
from preprocess.plan import RunOptions
from preprocess.run import run
from tests.file_limit import limit_files
from tests.recipes import STORED, DigestRecipe, plan_digests, row_nbytes


def main(stored: str, source: Path, out: Path, nbytes: int) -> None:
    """Run with the limit set, and say what came of it."""
    container, encoding = STORED[stored]
    recipe = DigestRecipe(side=60, encoding=encoding)
    options = RunOptions(
        container=container,
        shard_nbytes=4 * row_nbytes(recipe),
        workers=1,
    )
    plan = plan_digests(source, out, options, recipe)
    limit_files(nbytes)
    message = ""
    try:
        run(plan, options)
    except OutputError as error:
        message = str(error)
    left = sorted(path.name for path in (out / ".prep").glob("*"))
    # Bytes to a pipe: no file, no limit.
    os.write(1, json.dumps({"nbytes": nbytes, "message": message, "left": left}).encode() + b"\n")


if __name__ == "__main__":
    kind, source, out, *sizes = sys.argv[1:]
    for size in sizes:
        child = os.fork()
        if child == 0:
            main(kind, Path(source), Path(out + size), int(size))
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            sys.exit(1)
