"""The packages behind the fast engines: each made to take Arrow strings and to give flat arrays.

None of them adds special tokens; all read the text of a special token as that token.
"""

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Encoded = tuple[NDArray[np.uint32], NDArray[np.int64]]

_REMEMBERED_NBYTES: Final = 112 << 20
"""What the process may grow by for each tokenizer that remembers words. To make one anew costs 0.1
s and the words that it knew: where that came 16 times in 1 GB of ordinary text, a third of the
time."""

Encoder = Callable[["pa.LargeStringArray"], "Encoded"]
"""[N] texts -> ids of all back to back [T] uint32, and how many each has [N] int64."""


class _Backends:
    """Tokenizers of gigatoken, one for each thread that is at work: each encodes for one at a time.

    Each remembers all words that it has met: 190 MB after 1 GB of ordinary text, ten times the text
    where no word comes twice. When the process has grown by too much, all are made anew.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._idle = [make()]
        self._count = 1
        self._generation = 0
        self._first_base = self._base = own_nbytes()

    def encode(self, texts: Any) -> Any:
        """Encode an awkward array of strings."""
        with self._lock:
            generation = self._generation
            backend = self._idle.pop() if self._idle else None
            self._count += backend is None
        if backend is None:
            backend = self._make()
        found = backend.encode_batch(texts, parallel=False)
        with self._lock:
            if generation != self._generation:
                return found  # the others were given up meanwhile, and this one is too
            room = self._count * _REMEMBERED_NBYTES
            if own_nbytes() <= self._base + room:
                self._idle.append(backend)
                return found
            self._generation += 1
            self._count = 0
            self._idle.clear()
            del backend
            _give_back()
            # What else the process holds by now must not leave the next ones without room.
            self._base = max(self._first_base, own_nbytes() - room * 3 // 4)
        return found


def _give_back() -> None:
    """Return memory that is free to the system: glibc keeps it for itself otherwise.

    Source:
        malloc_trim(3), a call that other C libraries do not have.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def own_nbytes() -> int:
    """Return the memory that this process holds for itself: its peak where no current one is told.

    Source:
        proc_pid_statm(5), getrusage(2).
    """
    try:
        pages = Path("/proc/self/statm").read_bytes().split()
    except FileNotFoundError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


def _gigatoken(cleaned: str) -> Encoder:
    import awkward as ak  # type: ignore[import-untyped]
    import gigatoken

    backends = _Backends(lambda: gigatoken.Tokenizer.from_json(cleaned).backend)
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
        layout = backends.encode(ak.Array(strings)).layout
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
