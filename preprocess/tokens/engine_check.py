"""Engines compared with the reference: before a run, and one document in 1,000 during it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from preprocess.errors import SourceError
from preprocess.texts.arrays import chosen_texts
from preprocess.tokens.engine_torture import torture
from preprocess.tokens.engines import ENGINES, Engine, EngineError, open_engine
from preprocess.tokens.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from preprocess.tokens.engines import Encoded

REFERENCE: Final = "transformers"
# One document in so many is encoded again by the reference during a run: at the usual rates of the
# reference (1.5 to 3 MB/s a core) this costs less than a tenth of the time of a fast engine.
_AUDIT_ONE_IN: Final = 1_000
# Batches of at least so many documents have one at least. Smaller ones are of long documents, where
# one each would be most of the text, and the reference is 30 to 60 times slower than an engine.
_AUDIT_SURELY: Final = 500
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Which engine runs, and why not another.

    Attributes:
        engine: The name of the engine, exact on all that was compared.
        version: Of the package behind it.
        compared: Documents compared with the reference; 0 where the reference itself runs.
        rejected: Other engines that were tried, with the reason.
    """

    engine: str
    version: str
    compared: int
    rejected: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Give plain values for a report."""
        return asdict(self)


def choose_engine(tokenizer: TextTokenizer, wanted: str, sample: "pa.LargeStringArray") -> Verdict:
    """Choose the engine: exact first, fast second.

    Args:
        tokenizer: What is to be represented, in its way with special tokens.
        wanted: A key of `ENGINES`, or `auto`: the first of them that is installed and exact.
        sample: [N] documents of the input, compared beside the torture set.

    Returns:
        The verdict; `open_engine(verdict.engine, tokenizer)` opens it.

    Raises:
        SourceError: The engine that is wanted is not exact, not installed, or cannot do this.
    """
    import pyarrow as pa

    if wanted == REFERENCE:
        return Verdict(
            engine=REFERENCE, version=open_engine(REFERENCE, tokenizer).version, compared=0
        )
    texts = pa.concat_arrays([torture(tokenizer), sample])
    reference = open_engine(REFERENCE, tokenizer)
    with ThreadPoolExecutor(1) as pool:  # an engine is opened meanwhile
        expected = pool.submit(reference.encode, texts)
        return _choose(tokenizer, wanted, texts, expected.result)


def _choose(
    tokenizer: TextTokenizer,
    wanted: str,
    texts: "pa.LargeStringArray",
    expected: "Callable[[], Encoded]",
) -> Verdict:
    """Try one engine after the other; `expected` waits for what the reference gives."""
    rejected: dict[str, str] = {}
    for name in [name for name in ENGINES if name != REFERENCE] if wanted == "auto" else [wanted]:
        try:
            engine = open_engine(name, tokenizer)
            reason = _judged(engine.encode(texts), expected(), texts)
        except EngineError as error:
            if wanted != "auto":
                raise
            rejected[name] = str(error)
            continue
        if reason is None:
            return Verdict(
                engine=name, version=engine.version, compared=len(texts), rejected=rejected
            )
        rejected[name] = reason
        if wanted != "auto":
            raise SourceError(
                f"engine {name} {engine.version} is not exact for {tokenizer.source.path}: "
                f"{reason}; use --engine auto"
            )
    reference = open_engine(REFERENCE, tokenizer)
    return Verdict(engine=REFERENCE, version=reference.version, compared=0, rejected=rejected)


def differing(
    reference: Engine,
    texts: "pa.LargeStringArray",
    encoded: "Encoded",
    positions: "NDArray[np.int64]",
) -> list[int]:
    """Encode some documents again by the reference.

    Args:
        reference: `open_engine("transformers", tokenizer)`, with the same tokenizer.
        texts: [N] all documents of a batch.
        encoded: Ids and counts that another engine gave for them.
        positions: Which of them to compare, from 0.

    Returns:
        Those of `positions` whose ids differ.
    """
    if not len(positions):
        return []
    ids, counts = encoded
    starts = np.cumsum(counts) - counts
    chosen = [ids[starts[i] : starts[i] + counts[i]] for i in positions]
    lengths = counts[positions]
    again = reference.encode(chosen_texts(texts, positions))
    unequal = _unequal((np.concatenate(chosen), lengths), again)
    return [int(positions[i]) for i in unequal]


def audited(places: "NDArray[np.int64]", *, seed: int) -> "NDArray[np.int64]":
    """Choose about one document in 1,000, by a hash of where each is.

    Args:
        places: [N] line or row of each document of one batch.
        seed: Any integer: another one for each file chooses other lines.

    Returns:
        Positions in the batch, ascending; at least one of 500 documents or more.

    Source:
        The mixing function is SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
        Generators, OOPSLA 2014).
    """
    if not len(places):
        return np.empty(0, np.int64)
    start = np.array([seed % 2**64], np.uint64)
    mixed = _mix(places.astype(np.int64).view(np.uint64) ^ _mix(start))
    chosen = np.flatnonzero(mixed < np.uint64(2**64 // _AUDIT_ONE_IN))
    if len(chosen) or len(places) < _AUDIT_SURELY:
        return chosen
    return np.array([np.argmin(mixed)], np.int64)


def _mix(values: "NDArray[np.uint64]") -> "NDArray[np.uint64]":
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _judged(given: "Encoded", expected: "Encoded", texts: "pa.LargeStringArray") -> str | None:
    """Say what differs, None where nothing does."""
    unequal = _unequal(given, expected)
    if not unequal:
        return None
    first = texts[unequal[0]].as_py()
    shown = first if len(first) <= _SHOWN else f"{first[:_SHOWN]}..."
    return f"{len(unequal):,} of {len(texts):,} documents differ, the first: {shown!a}"


def _unequal(one: "Encoded", other: "Encoded") -> list[int]:
    (ids, counts), (other_ids, other_counts) = one, other
    if np.array_equal(counts, other_counts) and np.array_equal(ids, other_ids):
        return []
    ends, other_ends = np.cumsum(counts)[:-1], np.cumsum(other_counts)[:-1]
    pairs = zip(np.split(ids, ends), np.split(other_ids, other_ends), strict=True)
    return [i for i, (left, right) in enumerate(pairs) if not np.array_equal(left, right)]
