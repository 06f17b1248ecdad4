"""The texts of a column in chosen rows of a parsed table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from preprocess.errors import SourceError
from preprocess.tables.block import Block
from preprocess.tables.values import column_array, texts_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts of some rows.

    Attributes:
        values: [n] strings; empty where one is missing.
        missing: [n] bool.
    """

    values: "pa.LargeStringArray"
    missing: NDArray[np.bool_]

    def part(self, start: int, stop: int) -> "Texts":
        """Return the texts of some of the rows, copied: they keep no others in memory."""
        import pyarrow as pa

        values = pa.concat_arrays([self.values.slice(start, stop - start)])
        return Texts(values, self.missing[start:stop])


def texts_in(block: Block, name: str, chosen: slice | NDArray[np.int64]) -> Texts:
    """Return the texts of a column in some rows of a block.

    Raises:
        SourceError: The column holds no texts.
    """
    import pyarrow as pa

    array = column_array(block.table, name)
    kind = array.type
    if not (pa.types.is_dictionary(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise SourceError(f"{block.key}: column {name!r}: holds {kind}, and --text asks for texts")
    texts = texts_of(array)
    index = texts.index[chosen]
    missing = index == len(texts.values)
    taken = texts.values.take(pa.array(index, pa.int64(), mask=missing)).fill_null("")
    return Texts(taken, missing)


def join_texts(parts: Sequence[Texts], places: NDArray[np.int64]) -> Texts:
    """Return texts of several parts, one after the other, in another order: [n] int64 places."""
    import pyarrow as pa

    together = pa.concat_arrays([pa.array([], pa.large_string()), *(p.values for p in parts)])
    missing = np.concatenate([np.empty(0, np.bool_), *(part.missing for part in parts)])
    return Texts(together.take(pa.array(places, pa.int64())), missing[places])
