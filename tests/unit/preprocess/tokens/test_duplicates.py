"""Near-duplicates: which documents a run of minhash leaves out."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaders.format.spec import read_manifest
from preprocess.errors import SourceError
from preprocess.plan import RunOptions
from preprocess.tokens.duplicates import bands, distinct, signatures
from preprocess.tokens.options import TokenOptions
from preprocess.tokens.prepare import tokens_to_shards
from tests.recipes import read_tree
from tests.tokenizers_made import make_bpe


def strings(texts: list[str]) -> Any:
    import pyarrow as pa

    return pa.array(texts, pa.large_string())


def text_of(count: int, seed: int) -> list[str]:
    return [f"w{number}" for number in np.random.default_rng(seed).integers(0, 10**6, count)]


def test_the_likeness_of_two_signatures_is_that_of_their_shingles() -> None:
    words = text_of(400, 1)
    changed = [*words[:200], "other", *words[201:]]  # 391 of 401 sets of five words are the same
    found = signatures(strings([" ".join(words), " ".join(changed), " ".join(text_of(400, 2))]))

    likeness = [(found[0] == found[other]).mean() for other in (1, 2)]

    assert likeness[0] == pytest.approx(391 / 401, abs=0.04)
    assert likeness[1] < 0.03


def test_a_document_longer_than_what_is_hashed_at_a_time_has_the_signature_of_its_set() -> None:
    words = text_of(9000, 3)
    once = " ".join(words)
    found = signatures(strings([once, f"{once} {once}"]))
    # The text twice adds four sets of five words, which reach over the seam.
    assert (found[0] == found[1]).mean() > 0.97


def test_nearly_the_same_text_is_left_out_and_what_differs_more_is_kept() -> None:
    words = text_of(300, 4)
    texts = [
        words,
        [*words, "more"],  # alike
        text_of(300, 5),
        [*words[:100], *text_of(200, 6)],  # a third alike
        words[:299],  # alike
        [],
        [],
    ]

    kept = distinct([signatures(strings([" ".join(text) for text in texts]))], 0.8)

    assert kept.tolist() == [True, False, True, True, False, True, False]


def test_a_chain_is_compared_with_what_is_kept_only() -> None:
    words = text_of(200, 7)
    steps = [[*text_of(step, 8), *words[step:]] for step in (0, 12, 24, 36, 48, 60)]

    kept = distinct([signatures(strings([" ".join(text) for text in steps]))], 0.8)

    # Each is like the one before it; the last are no longer like the first.
    assert kept[0]
    assert not kept[1]
    assert kept[2:].any()


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(1.0, (2, 64)), (0.8, (21, 6)), (0.5, (42, 3)), (0.01, (128, 1))],
)
def test_bands_are_as_long_as_they_can_be(threshold: float, expected: tuple[int, int]) -> None:
    count, values = bands(threshold)
    assert (count, values) == expected
    assert values == 1 or 1 - (1 - threshold**values) ** count >= 0.99


@pytest.mark.parametrize("cuts", [[1], [3, 3, 5], [6]])
def test_where_shards_end_does_not_matter(cuts: list[int]) -> None:
    words = text_of(50, 9)
    texts = [" ".join(text) for text in (words, text_of(50, 10), words, words[1:], ["a"], ["a"])]
    found = signatures(strings(texts))

    whole = distinct([found], 0.7)

    np.testing.assert_array_equal(distinct(np.split(found, cuts), 0.7), whole)


def test_a_run_leaves_near_duplicates_out_whatever_the_workers(tmp_path: Path) -> None:
    tokenizer = str(make_bpe(tmp_path / "bpe"))
    words = text_of(100, 11)
    texts = [" ".join(text) for text in (words, [*words, "more"], text_of(100, 12), words)]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "texts.jsonl").write_text(lines, encoding="utf-8")
    options = TokenOptions(
        tokenizer=tokenizer, engine="transformers", dedup="minhash", shuffle_documents=1
    )
    for name, workers in (("one", 1), ("two", 2)):
        run_options = RunOptions(shard_nbytes=500, workers=workers)
        tokens_to_shards(tmp_path / "texts.jsonl", tmp_path / name, options, run_options)

    assert read_tree(tmp_path / "one") == read_tree(tmp_path / "two")
    train = read_manifest(tmp_path / "one").splits["train"]
    assert (train.count, train.tallies["duplicates"]) == (2, (2,))


def test_without_the_package_one_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "a"}\n', encoding="utf-8")
    monkeypatch.setitem(sys.modules, "datasketch", None)
    options = TokenOptions(tokenizer="none", dedup="minhash")

    with pytest.raises(SourceError, match=r"pip install 'prepshards\[dedup\]'"):
        tokens_to_shards(tmp_path / "texts.jsonl", tmp_path / "out", options)

    assert not (tmp_path / "out").exists()
