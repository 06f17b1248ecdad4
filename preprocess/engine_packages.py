"""The packages behind the fast engines: each made to take Arrow strings and to give flat arrays.

None of them adds special tokens; all read the text of a special token as that token.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Encoded = tuple[NDArray[np.uint32], NDArray[np.int64]]

Encoder = Callable[["pa.LargeStringArray"], "Encoded"]
"""[N] texts -> ids of all back to back [T] uint32, and how many each has [N] int64."""


def _gigatoken(cleaned: str) -> Encoder:
    import awkward as ak  # type: ignore[import-untyped]
    import gigatoken

    # One tokenizer of this package encodes for one thread at a time; the others would wait.
    idle = deque([gigatoken.Tokenizer.from_json(cleaned).backend])
    contents, index = ak.contents, ak.index

    def encode(texts: "pa.LargeStringArray") -> "Encoded":
        # The package takes awkward arrays; these are views of the Arrow buffers, nothing is copied.
        _, offsets, data = texts.buffers()
        first = texts.offset
        starts = np.frombuffer(offsets, np.int64)[first : first + len(texts) + 1]
        letters = np.frombuffer(data if data is not None else b"", np.uint8)
        strings = contents.ListOffsetArray(
            index.Index64(starts),
            contents.NumpyArray(letters, parameters={"__array__": "char"}),
            parameters={"__array__": "string"},
        )
        try:
            backend = idle.pop()
        except IndexError:
            backend = gigatoken.Tokenizer.from_json(cleaned).backend
        layout = backend.encode_batch(ak.Array(strings), parallel=False).layout
        idle.append(backend)  # not after an error: it may be in any state
        bounds = np.asarray(layout.offsets.data)
        ids = np.asarray(layout.content.data)[bounds[0] : bounds[-1]]
        return ids, np.diff(bounds)

    return encode


def _fastokens(cleaned: str) -> Encoder:
    import fastokens

    encode_batch_flat = fastokens.Tokenizer.from_json_str(cleaned).encode_batch_flat

    def encode(texts: "pa.LargeStringArray") -> "Encoded":
        ids, bounds = encode_batch_flat(texts.to_pylist())
        # Offsets fit in int64 as well, whose differences are int64.
        starts = np.frombuffer(bounds, np.int64)
        return np.frombuffer(ids, np.uint32), starts[1:] - starts[:-1]

    return encode


def _nanotoken(cleaned: str) -> Encoder:
    import nanotoken

    encode_batch = nanotoken.WordPieceTokenizer.from_json(cleaned).encode_batch

    def encode(texts: "pa.LargeStringArray") -> "Encoded":
        ids, bounds = encode_batch(texts.to_pylist(), add_special_tokens=False, parallel=False)
        counts: NDArray[np.int64] = np.diff(bounds)
        return ids, counts

    return encode


LOADERS: Final[Mapping[str, Callable[[str], Encoder]]] = {
    "gigatoken": _gigatoken,
    "fastokens": _fastokens,
    "nanotoken": _nanotoken,
}
"""Name of a package -> what loads it with a tokenizer's JSON."""
