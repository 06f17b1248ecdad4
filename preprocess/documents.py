"""Documents: what text sources give, and what tokenizers take."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from preprocess.errors import SampleError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


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
        bytewise: Whether places are bytes.
        errors: Records among these that could not be read.
    """

    texts: "pa.LargeStringArray"
    places: "NDArray[np.int64]"
    pairs: "pa.LargeStringArray | None" = None
    metadata: "pa.LargeStringArray | None" = None
    bytewise: bool = False
    errors: tuple[SampleError, ...] = ()

    def __post_init__(self) -> None:
        """Refuse columns of different lengths."""
        columns: list[Any] = [self.places, self.pairs, self.metadata]
        if any(column is not None and len(column) != len(self.texts) for column in columns):
            raise ValueError("columns of different lengths")
