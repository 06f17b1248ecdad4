"""Some rows of a table as a file holds them: what a reader gives, and a thread parses."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from preprocess.tables.from_csv import NO_GUESS, Guess

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class RawBlock:
    """Some rows of one file, not parsed.

    Attributes:
        key: The file.
        kind: "csv", "json" or "table".
        first: The line of the first record of CSV and JSON lines, the first row of others; from 1.
        after: CSV: the line that what follows the records begins in.
        data: Whole records of CSV, whole lines of JSON.
        table: Rows that Arrow has read.
        texts: Columns of it that are dictionaries, and plain text by their type in the file.
        names: CSV: the columns.
        unnamed: CSV: those that the header gives no name.
        delimiter: CSV: what stands between fields.
        guess: CSV: what the columns seemed to be at the beginning of the file, which makes parsing
            faster.
        guessed: JSON: columns at the beginning of the file, and whether they seemed to be strings:
            another guess.
        partitions: Columns that the names of the folders above give, with their values.
        too_long: JSON: bytes of a line that is left out for its length; then there are no data.
    """

    key: str
    kind: str
    first: int = 1
    after: int = 1
    data: bytes = b""
    table: "pa.Table | None" = None
    texts: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()
    unnamed: frozenset[str] = frozenset()
    delimiter: str = ","
    guess: Guess = NO_GUESS
    guessed: tuple[tuple[str, bool], ...] = ()
    partitions: tuple[tuple[str, str | None], ...] = ()
    too_long: int = 0
