"""Run by the crash tests in a process of its own: a table with a file that ends who reads it.

python -m tests.crash.table_fatal HOW NBYTES SOURCE OUT

The file is known by its size, which is compared with the most that files may have.
"""

import sys
from pathlib import Path

from preprocess.plan import RunOptions
from preprocess.report import Report
from preprocess.tables.options import TableOptions
from preprocess.tables.prepare import table_to_shards
from tests.recipes import die


class Deadly(int):
    """A size; who compares that of some file with it dies, or waits for ever.

    Attributes:
        how: As `tests.recipes.die`; "" for not at all.
        nbytes: Of the file.
        mark: As well.
    """

    how: str
    nbytes: int
    mark: Path

    def __ge__(self, nbytes: int) -> bool:
        if self.how and nbytes == self.nbytes:
            die(self.how, self.mark)
        return int(self) >= nbytes


def deadly(how: str, nbytes: int, mark: Path) -> Deadly:
    """Return such a size."""
    found = Deadly(1 << 40)
    found.how, found.nbytes, found.mark = how, nbytes, mark
    return found


def prepare(
    how: str,
    nbytes: int,
    source: Path,
    out: Path,
    *,
    workers: int = 2,
    timeout: float | None = None,
) -> Report:
    """Prepare a table."""
    limit = deadly(how, nbytes, out.parent / "mark")
    options = TableOptions(target="y", max_item_nbytes=limit)
    run_options = RunOptions(shard_nbytes=100, workers=workers, item_timeout=timeout)
    return table_to_shards(source, out, options, run_options)


if __name__ == "__main__":
    word, size, *folders = sys.argv[1:]
    prepare(word, int(size), *map(Path, folders))
