"""Vocabularies are the same for any cut into blocks, and in the order that they promise."""

import json
import string
from collections import Counter
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loaders.format.files import to_json
from preprocess.errors import SourceError
from preprocess.tables import vocabulary as table_vocabulary
from preprocess.tables.options import TableOptions
from preprocess.tables.toml import Wish
from preprocess.tables.vocabulary import (
    TextTally,
    are_numbers,
    by_count,
    by_value,
    vocabulary_bytes,
)
from tests.table_parsed import csv_blocks, fit_blocks

WORDS = st.lists(st.sampled_from(["a", "b", "é", "z", "aa", "", "\U0001f600", "B"]), max_size=60)


def texts(values):
    import pyarrow as pa

    return pa.array(values, pa.large_string())


def counted(words, size, together):
    """Count words in blocks of some size, merging whenever more than `together` wait."""
    with mock.patch.object(table_vocabulary, "_TOGETHER", together):
        tally = TextTally(1)
        for start in range(0, len(words), size):
            found = Counter(words[start : start + size])
            tally.add(texts(list(found)), np.array(list(found.values()), np.int64)[:, None])
        return tally.found()


@settings(deadline=None)  # the first example imports Arrow
@given(WORDS, st.integers(1, 20), st.sampled_from([0, 3, 1000]), st.integers(1, 3))
def test_codes_are_by_falling_count_then_by_bytes_whatever_the_blocks(words, size, together, least):
    values, counts = counted(words, size, together)
    order = by_count(values, counts[:, 0], least)
    expected = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0].encode()))
    found = [values[place].as_py() for place in order.tolist()]
    assert found == [word for word, count in expected if count >= least]


@given(st.lists(st.text(), unique=True))
def test_classes_of_words_are_in_the_order_of_their_bytes(words):
    values = texts([f"x{word}" for word in words])
    order = by_value(values, TableOptions())
    found = [values[place].as_py() for place in order.tolist()]
    assert found == sorted(values.to_pylist(), key=str.encode)


def test_classes_of_numbers_are_in_the_order_of_the_numbers():
    values = texts(["10", "9", "-1", "2.5"])
    order = by_value(values, TableOptions())
    assert [values[place].as_py() for place in order.tolist()] == ["-1", "2.5", "9", "10"]


def test_a_vocabulary_file_is_plain_json():
    data = vocabulary_bytes(texts(["é", "b"]), np.array([3, 1]))
    assert json.loads(data) == {"values": ["é", "b"], "counts": [3, 1]}


@given(st.data(), st.sampled_from([string.printable, 'a~"\\\x1f \x7f\x80', "ab"]))
def test_a_vocabulary_file_is_what_json_makes_of_it(data, letters):
    words = data.draw(st.lists(st.text(letters, max_size=4)))
    first, stop = (data.draw(st.integers(0, len(words))) for _ in range(2))
    counts = np.arange(len(words), dtype=np.int64)[first:stop] << 40
    found = vocabulary_bytes(texts(words)[first : max(first, stop)], counts)
    assert found == to_json({"values": words[first:stop], "counts": counts.tolist()})


def test_words_that_look_like_numbers_are_told_from_others():
    found = are_numbers(texts(["1", "-2.5", "1e5", "007", "x1", "", "nan"]), TableOptions())
    assert found.tolist() == [True, True, True, True, False, False, False]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(
    st.lists(st.sampled_from(["red", "green", "blue", ""]), min_size=2, max_size=40),
    st.integers(1, 40),
    st.integers(1, 3),
)
def test_a_fitted_table_is_the_same_for_any_blocks_and_threads(tmp_path, words, size, workers):
    text = "c,n\n" + "".join(f"{word},{n}\n" for n, word in enumerate(words))
    options = TableOptions(validation=0.2, test=0.1, null_values=())
    whole = fit_blocks(tmp_path / "a", csv_blocks(text), options)
    cut = fit_blocks(tmp_path / "b", csv_blocks(text, size), options, workers=workers)
    assert cut.schema == whole.schema
    assert cut.vocabularies == whole.vocabularies
    assert cut.notes == whole.notes
    assert cut.unknown == whole.unknown
    splits = [[] if fitted.splits is None else fitted.splits for fitted in (cut, whole)]
    assert np.concatenate([*splits[0], []]).tolist() == np.concatenate([*splits[1], []]).tolist()


def rows_of(fitted, words):
    """Return the words of each split."""
    splits = np.concatenate(fitted.splits)
    return [[w for w, s in zip(words, splits, strict=True) if s == code] for code in range(3)]


def test_a_vocabulary_is_of_train_alone_and_unknown_values_are_counted(tmp_path):
    rng = np.random.default_rng(0)
    words = [f"w{n}" for n in rng.zipf(1.3, 400)]
    text = "c,n\n" + "".join(f"{word},1\n" for word in words)
    fitted = fit_blocks(
        tmp_path, csv_blocks(text, 70), TableOptions(validation=0.3, test=0.2, min_count=2)
    )
    train, validation, test = rows_of(fitted, words)
    expected = sorted(Counter(train).items(), key=lambda item: (-item[1], item[0].encode()))
    known = [word for word, count in expected if count >= 2]
    entry = json.loads(fitted.vocabularies["table/vocabulary/0000.json"])
    assert entry["values"] == known
    assert entry["counts"] == [Counter(train)[word] for word in known]
    unknown = tuple(sum(w not in known for w in part) for part in (train, validation, test))
    assert fitted.unknown["c"] == unknown
    (loss,) = fitted.schema.column("c").losses
    assert loss.values == unknown[0]
    assert f"column 'c': {unknown[1]} values of validation are not in train, or too rare there" in (
        fitted.notes
    )


def test_hashed_columns_have_no_vocabulary_and_say_what_is_hashed(tmp_path):
    text = "c,n\nx,1\n,2\ny,3\n"
    fitted = fit_blocks(tmp_path, csv_blocks(text), TableOptions(hash_buckets=(("c", 1000),)))
    spec = fitted.schema.column("c")
    assert (spec.buckets, spec.vocabulary, spec.dtype) == (1000, None, "uint16")
    assert spec.losses[0].values == 2
    assert fitted.vocabularies == {}


def test_a_type_that_does_not_hold_the_codes_is_refused(tmp_path):
    text = "c\n" + "".join(f"w{n}\n" for n in range(300))
    with pytest.raises(SourceError, match=r"'c': uint8 does not hold the codes of 300 values"):
        fit_blocks(tmp_path, csv_blocks(text), wishes={"c": Wish(dtype="uint8")})


def test_numbers_with_a_few_words_are_categories_and_the_word_is_named(tmp_path):
    text = "c\n" + "1\n2\n" * 20 + "none\n5\n"
    fitted = fit_blocks(tmp_path, csv_blocks(text, 7))
    assert fitted.schema.column("c").kind == "categorical"
    assert any(
        n.startswith("a.csv:42: column 'c': 41 of 42 values are numbers") for n in fitted.notes
    )


def test_ids_and_constants_are_named(tmp_path):
    text = "c,k\n" + "".join(f"user{n},same\n" for n in range(2000))
    notes = "\n".join(fit_blocks(tmp_path, csv_blocks(text)).notes)
    assert "column 'c': 2,000 different values in 2,000 rows: an id, perhaps" in notes
    assert (
        "columns 'k': the same value in all rows of train that have one, and no deviation" in notes
    )


def test_lists_of_words_share_one_vocabulary(tmp_path):
    import pyarrow as pa

    from tests.table_parsed import table_blocks

    table = pa.table({"tags": pa.array([["a", "b"], ["b"], None, [], ["b", None]])})
    fitted = fit_blocks(tmp_path, table_blocks(table, 2))
    spec = fitted.schema.column("tags")
    assert (spec.kind, spec.length, spec.values, spec.dtype) == ("vector", 2, 2, "uint8")
    entry = json.loads(fitted.vocabularies["table/vocabulary/0000.json"])
    assert entry == {"values": ["b", "a"], "counts": [3, 1]}
