"""Laws of order and duplicates: against plain Python, on any documents."""

import hashlib
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.format.spec import SPLITS
from preprocess.tokens.documents import StoredDocuments
from preprocess.tokens.duplicates import bands, distinct, first_of_each, signatures
from preprocess.tokens.first import FirstPass, digests
from preprocess.tokens.order import shuffled
from tests.token_stores import write_stream

TEXTS = st.lists(st.text("ab \n\u00e9\U0001f600", max_size=4), max_size=12)
WORDS = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=8).map(" ".join)
SHARDS = st.lists(
    st.lists(st.lists(st.integers(0, 65535), max_size=5), max_size=4), min_size=1, max_size=4
)


def strings(texts: list[str], skip: int = 0):
    """Return the texts as a slice that begins behind `skip` others."""
    import pyarrow as pa

    return pa.array([*["other"] * skip, *texts], pa.large_string()).slice(skip)


@given(count=st.integers(0, 300), seed=st.integers(0, 2**70), split=st.sampled_from(SPLITS))
def test_a_shuffled_order_is_a_permutation_that_the_seed_and_the_split_fix(
    count: int, seed: int, split: str
) -> None:
    numbers = np.arange(0, 3 * count, 3)

    order = shuffled(numbers, seed, split)

    assert sorted(order.tolist()) == numbers.tolist()
    np.testing.assert_array_equal(order, shuffled(numbers, seed, split))


def test_splits_and_seeds_have_orders_of_their_own() -> None:
    numbers = np.arange(50)
    orders = {
        tuple(shuffled(numbers, seed, split).tolist()) for seed in range(5) for split in SPLITS
    }
    assert len(orders) == 15


@given(texts=TEXTS, skip=st.integers(0, 2))
def test_exact_duplicates_are_those_that_a_set_finds(texts: list[str], skip: int) -> None:
    found = first_of_each(digests(strings(texts, skip)))

    seen: set[str] = set()
    expected = [not (text in seen or seen.add(text)) for text in texts]
    assert found.tolist() == expected


@given(texts=TEXTS, skip=st.integers(0, 2))
def test_a_digest_is_blake2b_of_the_text(texts: list[str], skip: int) -> None:
    expected = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts]
    assert [row.tobytes() for row in digests(strings(texts, skip))] == expected


@given(pairs=st.lists(st.tuples(st.text("ab", max_size=2), st.text("ab", max_size=2)), max_size=12))
def test_pairs_are_the_same_only_if_both_texts_are(pairs: list[tuple[str, str]]) -> None:
    first, second = (strings([pair[side] for pair in pairs]) for side in (0, 1))

    found = first_of_each(digests(first, second))

    assert [pairs[i] for i in np.flatnonzero(found)] == list(dict.fromkeys(pairs))


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    words = text.split()
    starts = range(max(1, len(words) - 4)) if words else ()
    return frozenset(tuple(words[i : i + 5]) for i in starts)


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(WORDS, max_size=12))
def test_at_threshold_1_texts_of_the_same_shingles_are_the_duplicates(texts: list[str]) -> None:
    pytest.importorskip("datasketch")

    found = distinct([signatures(strings(texts))], 1.0)

    assert [shingles(texts[i]) for i in np.flatnonzero(found)] == list(
        dict.fromkeys(map(shingles, texts))
    )


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 40),
    cuts=st.lists(st.integers(0, 40), max_size=3),
    threshold=st.sampled_from([0.3, 0.5, 0.8, 1.0]),
)
def test_near_duplicates_are_those_that_comparing_all_with_all_finds(
    seed: int, count: int, cuts: list[int], threshold: float
) -> None:
    generator = np.random.default_rng(seed)
    templates = generator.integers(0, 2**32, (3, 128), dtype=np.uint32)
    rows = templates[generator.integers(0, 3, count)]
    changed = generator.random((count, 128)) < generator.uniform(0, 0.6, (count, 1))
    rows[changed] = generator.integers(0, 2**32, int(changed.sum()), dtype=np.uint32)

    found = distinct(np.split(rows, sorted(min(cut, count) for cut in cuts)), threshold)

    length, values = bands(threshold)
    kept: list[np.ndarray] = []
    for row, keep in zip(rows, found.tolist(), strict=True):
        equal = [row == other for other in kept]
        alike = [
            same.mean() >= threshold
            and same[: length * values].reshape(length, values).all(axis=1).any()
            for same in equal
        ]
        assert keep != any(alike)
        if keep:
            kept.append(row)


@settings(max_examples=60, deadline=None)
@given(shards=SHARDS, data=st.data())
def test_any_documents_of_a_dataset_come_in_any_order(
    shards: list[list[list[int]]], data: st.DataObject
) -> None:
    documents = [document for shard in shards for document in shard]
    chosen = data.draw(st.lists(st.sampled_from(range(len(documents))))) if documents else []
    with tempfile.TemporaryDirectory() as folder:
        stored = StoredDocuments(write_stream(Path(folder) / "stream", shards), "train")

        found = stored.ragged("tokens", np.array(chosen, np.int64))

        assert found.counts.tolist() == [len(documents[i]) for i in chosen]
        assert found.values.tolist() == [value for i in chosen for value in documents[i]]
        assert stored.counts("tokens").tolist() == [len(document) for document in documents]


@given(texts=TEXTS)
def test_the_bytes_of_each_text_are_kept(texts: list[str]) -> None:
    from preprocess.tokens.layouts import Encoded

    first = FirstPass(dtype="uint16", pairs=False, dedup=None)
    nothing = Encoded(ids=np.empty(0, np.uint32), counts=np.zeros(len(texts), np.int64))

    found = first.arrays(strings(texts), None, nothing)["text_nbytes"]

    assert isinstance(found, np.ndarray)
    assert found.view("<u8")[:, 0].tolist() == [len(text.encode()) for text in texts]
