"""Documents: what text sources give, and what tokenizers take."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from preprocess.errors import SampleError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class LineNumbers:
    """At which lines documents of a block stand.

    Attributes:
        first: Gives the number of the block's first line, from 1. Where that is not known it is
            counted, which reads the file up to there: call it only for what is to be named.
        after: [N] int64: how many lines of the block are before each document's.
    """

    first: Callable[[], int]
    after: "NDArray[np.int64]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """Some documents of one file, in order.

    Attributes:
        texts: [N] strings, valid UTF-8, no nulls. With chat they are the JSON of the messages.
        places: [N] int64: where each is in the file: the byte at which its record begins (of the
            text, if the file is compressed) in JSON lines and lines of text, else its row from 1;
            0 where the file is one document.
        pairs: [N] second texts, where the options name a key for them.
        metadata: [N] JSON objects of the keys that are kept, where the options name some.
        lines: Of JSON lines and lines of text: at which they stand; None where places are no bytes.
        errors: Records among these that could not be read.
    """

    texts: "pa.LargeStringArray"
    places: "NDArray[np.int64]"
    pairs: "pa.LargeStringArray | None" = None
    metadata: "pa.LargeStringArray | None" = None
    lines: LineNumbers | None = None
    errors: tuple[SampleError, ...] = ()

    def __post_init__(self) -> None:
        """Refuse columns of different lengths."""
        after = None if self.lines is None else self.lines.after
        columns: list[Any] = [self.places, after, self.pairs, self.metadata]
        if any(column is not None and len(column) != len(self.texts) for column in columns):
            raise ValueError("columns of different lengths")

    def name(self, file: str, index: int) -> str:
        """Return what a user finds a document by: "path:line", "path:row", or the path alone."""
        if self.lines is not None:
            return f"{file}:{self.lines.first() + int(self.lines.after[index])}"
        row = int(self.places[index])
        return f"{file}:{row}" if row else file
