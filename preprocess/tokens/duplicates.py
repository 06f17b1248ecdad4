"""Which documents are duplicates of others: the same text, or nearly."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from preprocess.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

PERMUTATIONS: Final = 128
"""Of a signature: the share of equal values is within 0.04 of the likeness, mostly."""

_SHINGLE_WORDS: Final = 5
_TOGETHER: Final = 4096
"""Shingles that are hashed at a time: 2 MiB of values, however long the document is."""

_FOUND: Final = 0.99
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)

_SCHEME: Final = "affine32"
_WORD: Final = re.compile(rb"\S+")


def first_of_each(digests: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return which rows differ from all rows before them.

    Args:
        digests: [N, 16] uint8, C-contiguous.

    Returns:
        [N] bool: True for the first row of its value.
    """
    halves = digests.view("<u8")  # [N, 2]
    order = np.lexsort((halves[:, 0], halves[:, 1]))  # stable: of equal rows the first stays first
    ordered = halves[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    kept = np.zeros(len(order), np.bool_)
    kept[order[first]] = True
    return kept


def signatures(
    texts: "pa.LargeStringArray", pairs: "pa.LargeStringArray | None" = None
) -> NDArray[np.uint32]:
    """Return MinHash signatures of the sets of five words that stand together in each text.

    Words are what ASCII whitespace parts, as they stand; a text of fewer words is one set of all
    of them. With pairs, both texts go into one set, and no five words reach from one into the
    other.

    Returns:
        [N, 128] uint32.

    Source:
        Broder, "On the resemblance and containment of documents", 1997.
    """
    template = _library().MinHash(num_perm=PERMUTATIONS, scheme=_SCHEME)
    found = np.empty((len(texts), PERMUTATIONS), "<u4")
    for index in range(len(texts)):
        columns = [texts] if pairs is None else [texts, pairs]
        sketch = _sketch(template, template.hashvalues.copy())
        for column in columns:
            shingles = _shingles(column[index].as_buffer())
            while batch := list(islice(shingles, _TOGETHER)):
                sketch.update_batch(batch)
        found[index] = sketch.hashvalues
    return found


def _shingles(text: Any) -> Iterator[bytes]:
    words: deque[bytes] = deque(maxlen=_SHINGLE_WORDS)
    for match in _WORD.finditer(text):
        words.append(match.group())
        if len(words) == _SHINGLE_WORDS:
            yield b" ".join(words)
    if 0 < len(words) < _SHINGLE_WORDS:
        yield b" ".join(words)


def distinct(parts: Sequence[NDArray[np.uint32]], threshold: float) -> NDArray[np.bool_]:
    """Return which documents are like none that is kept before them.

    Two are alike if they share a band of their signatures, and at least `threshold` of all values.
    Holds 30 bytes a document, and 16 for each band that a document shares with another; an index
    of all bands, as the package offers one, takes 7,500 a document.

    Args:
        parts: [n, 128] uint32 each: the signatures of all documents, in order.
        threshold: Share of equal values, which estimates how many of all their shingles two
            documents have in common.

    Returns:
        [N] bool.
    """
    ends = np.cumsum([0, *map(len, parts)])
    kept = np.ones(int(ends[-1]), np.bool_)
    documents, groups = _shared_bands(parts, threshold)
    starts = np.flatnonzero(np.diff(documents, prepend=-1))
    found: dict[int, list[NDArray[np.uint32]]] = {}  # band's group -> signatures kept so far
    for first, end in pairwise([*starts.tolist(), len(documents)]):
        number = int(documents[first])
        part = int(np.searchsorted(ends, number, side="right")) - 1
        signature = parts[part][number - ends[part]]
        mine = groups[first:end].tolist()
        others = (other for group in mine for other in found.get(group, ()))
        least = threshold * PERMUTATIONS
        if any(np.count_nonzero(other == signature) >= least for other in others):
            kept[number] = False
        else:
            for group in mine:
                found.setdefault(group, []).append(signature)
    return kept


def _shared_bands(
    parts: Sequence[NDArray[np.uint32]], threshold: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return [M] documents, ascending, and [M] numbers of a band's values that others have too."""
    count, values = bands(threshold)
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    groups = 0
    for band in range(count):
        keys = np.concatenate(
            [np.empty(0, np.uint64), *(_mixed(part, band * values, values) for part in parts)]
        )
        order = np.argsort(keys)
        keys = keys[order]
        before, after = (np.zeros(len(keys), np.bool_) for _ in range(2))
        before[1:] = keys[1:] == keys[:-1]  # whether the one before has the same key
        after[:-1] = before[1:]
        shared = before | after
        begins = ~before[shared]
        found.append((order[shared], groups + np.cumsum(begins)))
        groups += int(np.count_nonzero(begins))
    documents, numbers = (np.concatenate(column) for column in zip(*found, strict=True))
    by_document = np.argsort(documents, kind="stable")
    return documents[by_document], numbers[by_document]


def _mixed(part: NDArray[np.uint32], first: int, values: int) -> NDArray[np.uint64]:
    """Return one number for some values of each signature; that others share it does no harm."""
    keys = np.zeros(len(part), np.uint64)
    for column in range(first, first + values):
        keys = (keys ^ part[:, column]) * _ODD
        keys ^= keys >> np.uint64(32)
    return keys


def bands(threshold: float) -> tuple[int, int]:
    """Return how many bands a signature is cut into, and the values of each.

    The longest bands, so the fewest comparisons, of which two documents that share `threshold` of
    their values still share one with a probability of `_FOUND`. (The package's own choice weighs
    that against wrong finds, which the comparison of all values rules out here: at 0.8 it would
    find 40 of 100 such pairs.)

    Source:
        Leskovec, Rajaraman, Ullman, "Mining of Massive Datasets", section 3.4.
    """
    for values in range(PERMUTATIONS // 2, 1, -1):
        count = PERMUTATIONS // values
        if 1 - (1 - threshold**values) ** count >= _FOUND:
            return count, values
    return PERMUTATIONS, 1


def _sketch(template: Any, hashvalues: NDArray[np.uint32]) -> Any:
    return type(template)(hashvalues=hashvalues, permutations=template.permutations, scheme=_SCHEME)


def check_installed() -> None:
    """Refuse near-duplicates where the package that finds them is missing.

    Raises:
        SourceError: It is not installed.
    """
    _library()


def _library() -> Any:
    try:
        import datasketch
    except ImportError as error:
        raise SourceError(
            "near-duplicates need the package datasketch: pip install 'prepshards[dedup]'; "
            "exact duplicates need nothing more"
        ) from error
    return datasketch
