"""Which documents are duplicates of others: the same text, or nearly."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
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

    Args:
        parts: [n, 128] uint32 each: the signatures of all documents, in order.
        threshold: Share of equal values, which estimates how many of all their shingles two
            documents have in common.

    Returns:
        [N] bool.
    """
    library = _library()
    template = library.MinHash(num_perm=PERMUTATIONS, scheme=_SCHEME)
    index = library.MinHashLSH(num_perm=PERMUTATIONS, params=bands(threshold))
    kept = np.zeros(sum(map(len, parts)), np.bool_)
    number = 0
    for part_number, part in enumerate(parts):
        for row, signature in enumerate(part):
            sketch = _sketch(template, signature)
            if not any(
                np.count_nonzero(parts[other][at] == signature) >= threshold * PERMUTATIONS
                for other, at in index.query(sketch)
            ):
                index.insert((part_number, row), sketch)
                kept[number] = True
            number += 1
    return kept


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
