"""Engines: the packages that turn texts into ids. Each gives exactly the ids of the reference.

The reference, `transformers`, is always there and slow; the others are optional, fast, and used
only after `engine_check` has compared them with it. All take Arrow strings and give flat arrays.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from preprocess.errors import SourceError
from preprocess.texts.arrays import chosen_texts
from preprocess.tokens.engine_packages import LOADERS
from preprocess.tokens.engine_specials import contains_any
from preprocess.tokens.tokenizer import TextTokenizer

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Encoded = tuple[NDArray[np.uint32], NDArray[np.int64]]


_SLICE_NBYTES: Final = 1 << 17
"""Text that the reference encodes at a time."""


class EngineError(SourceError):
    """An engine is not installed, cannot represent this tokenizer, or failed on some texts."""


class Engine(Protocol):
    """What encodes texts; safe to be used by several threads at once.

    Attributes:
        name: The key in `ENGINES`.
        version: Of the package behind it.
    """

    name: str
    version: str

    def encode(self, texts: "pa.LargeStringArray") -> "Encoded":
        """Encode texts, adding no special tokens.

        Args:
            texts: [N] strings without nulls.

        Returns:
            Ids of all texts back to back [T] uint32, and how many each text has [N] int64.
        """


class ReferenceEngine:
    """The tokenizer as transformers runs it: what every other engine is compared with."""

    name = "transformers"

    def __init__(self, tokenizer: TextTokenizer) -> None:
        import tokenizers

        self.version: str = tokenizers.__version__
        self._backend = tokenizer.backend

    def encode(self, texts: "pa.LargeStringArray") -> "Encoded":
        """Encode texts; see `Engine.encode`."""
        if not len(texts):
            return np.empty(0, np.uint32), np.empty(0, np.int64)
        parts = [self._encode(part) for part in _slices(texts)]
        ids, counts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return ids, counts

    def _encode(self, texts: "pa.LargeStringArray") -> "Encoded":
        encodings = self._backend.encode_batch_fast(texts.to_pylist(), add_special_tokens=False)
        lists = [one.ids for one in encodings]
        counts = np.fromiter(map(len, lists), np.int64, len(lists))
        ids = np.fromiter(chain.from_iterable(lists), np.uint32, int(counts.sum()))
        return ids, counts


class FastEngine:
    """A fast package; texts that hold special tokens go to the reference when they are not parsed.

    The package always reads special tokens as such, so the ids themselves say which texts hold one:
    a scan of the ids costs a fraction of a scan of the texts, and it sees what the tokenizer sees.
    """

    def __init__(self, name: str, tokenizer: TextTokenizer) -> None:
        self.name = name
        with _failures(name):
            self.version = version(name)
            self._encode = LOADERS[name](tokenizer.cleaned)
        self._reference = ReferenceEngine(tokenizer)
        self._plain = tokenizer.specials != "parse"
        self._late = tokenizer.late
        self._unknown = None
        special = set(tokenizer.special_ids.values())
        if tokenizer.unknown is not None and tokenizer.unknown[1] in special:
            # Its id comes from any unknown word as well as from its own text.
            self._unknown = tokenizer.unknown
            special.discard(tokenizer.unknown[1])
        self._ranges = _ranges(special)

    def encode(self, texts: "pa.LargeStringArray") -> "Encoded":
        """Encode texts; see `Engine.encode`.

        Raises:
            EngineError: The package failed or lost documents.
        """
        if not len(texts):
            return np.empty(0, np.uint32), np.empty(0, np.int64)
        with _failures(self.name):
            ids, counts = self._encode(texts)
        if len(counts) != len(texts) or int(counts.sum()) != len(ids):
            raise EngineError(f"{self.name}: {len(counts)} results for {len(texts)} documents")
        if self._plain:
            hits = self._hits(texts, ids, counts)
            if hits.any():
                return self._mended(texts, ids, counts, hits)
        return ids, counts

    def _hits(
        self, texts: "pa.LargeStringArray", ids: "NDArray[np.uint32]", counts: "NDArray[np.int64]"
    ) -> "NDArray[np.bool_]":
        hits = np.zeros(len(counts), np.bool_)
        lowest = min([first for first, _ in self._ranges], default=None)
        if self._unknown is None and (lowest is None or int(ids.max(initial=0)) < lowest):
            return hits  # special tokens have the highest ids in most vocabularies
        ends = np.cumsum(counts)
        for first, last in self._ranges:
            # uint32 wraps below `first`, so that one comparison asks for both ends.
            found = np.flatnonzero(ids - np.uint32(first) <= np.uint32(last - first))
            hits[np.searchsorted(ends, found, side="right")] = True
        if self._unknown is not None:
            text, number = self._unknown
            found = np.flatnonzero(ids == np.uint32(number))
            known = np.unique(np.searchsorted(ends, found, side="right"))
            if len(known) and not self._late:
                known = known[contains_any(chosen_texts(texts, known), (text,))]
            hits[known] = True
        return hits

    def _mended(
        self,
        texts: "pa.LargeStringArray",
        ids: "NDArray[np.uint32]",
        counts: "NDArray[np.int64]",
        hits: "NDArray[np.bool_]",
    ) -> "Encoded":
        which = np.flatnonzero(hits)
        ends = np.cumsum(counts)
        others, lengths = self._reference.encode(chosen_texts(texts, which))
        mended = np.split(others, np.cumsum(lengths)[:-1])
        parts, kept = [], 0
        for number, again in zip(which.tolist(), mended, strict=True):
            parts += [ids[kept : ends[number] - counts[number]], again]
            kept = ends[number]
        counts = counts.copy()
        counts[which] = lengths
        return np.concatenate([*parts, ids[kept:]]), counts


def _slices(texts: "pa.LargeStringArray") -> "Iterator[pa.LargeStringArray]":
    """Yield the texts some at a time: an encoding takes 50 times the bytes of its text."""
    bounds = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
    first = 0
    while first < len(texts):
        limit = bounds[first] + _SLICE_NBYTES
        last = max(first + 1, int(np.searchsorted(bounds, limit, side="right")) - 1)
        yield texts.slice(first, last - first)
        first = last


def _ranges(numbers: set[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def _open_fast(name: str) -> Callable[[TextTokenizer], Engine]:
    return lambda tokenizer: FastEngine(name, tokenizer)


# The order is that of trying: the fastest first, the reference last.
ENGINES: Final[Mapping[str, Callable[[TextTokenizer], Engine]]] = {
    "gigatoken": _open_fast("gigatoken"),
    "fastokens": _open_fast("fastokens"),
    "nanotoken": _open_fast("nanotoken"),
    "transformers": ReferenceEngine,
}


@lru_cache(maxsize=2)
def open_engine(name: str, tokenizer: TextTokenizer) -> Engine:
    """Open one engine on a tokenizer, in the tokenizer's way with special tokens.

    The last ones are kept: a run takes those that its plan has compared.

    Args:
        name: A key of `ENGINES`.
        tokenizer: What it shall represent.

    Returns:
        The engine, not yet compared with the reference: see `engine_check.choose_engine`.

    Raises:
        EngineError: No such engine, not installed, or not able to represent this tokenizer.
    """
    if name not in ENGINES:
        raise EngineError(f"engine {name!r}: choose one of {', '.join(ENGINES)}")
    return ENGINES[name](tokenizer)


@contextmanager
def _failures(name: str) -> Iterator[None]:
    """Name the engine in whatever its package raises."""
    try:
        yield
    except ImportError as error:
        raise EngineError(
            f"{name} is not installed; pip install 'prepshards[engines]', or use --engine auto"
        ) from error
    except MemoryError:
        raise
    except Exception as error:
        raise EngineError(f"{name}: {_first_line(error)}") from error
    except BaseException as error:
        # A panic of a Rust package is a BaseException of a class that cannot be imported; all
        # others (the interrupt of the user among them) pass.
        if type(error).__name__ != "PanicException":
            raise
        raise EngineError(f"{name} broke down: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
