"""Laws of the engines: any text gives the ids of transformers, however it is batched."""

import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.tokens.engines import Engine, open_engine
from preprocess.tokens.tokenizer import TextTokenizer
from preprocess.tokens.tokenizer_source import find_tokenizer
from tests.tokenizers_made import LINES, make_bpe, make_unigram, make_wordpiece

if TYPE_CHECKING:
    import pyarrow as pa

CASES = [
    (engine, make, specials)
    for engine, make in (
        ("gigatoken", make_bpe),
        ("fastokens", make_bpe),
        ("nanotoken", make_wordpiece),
        ("transformers", make_unigram),
    )
    for specials in ("text", "parse")
]
PIECES = ["<|endoftext|>", "<|pad|>", "[CLS]", "[SEP]", "[UNK]", "[PAD]", "</s>", "<unk>", "<pad>"]
TEXTS = st.lists(
    st.one_of(
        st.text(max_size=8), st.sampled_from([*PIECES, *LINES, " ", "'s", "\r\n", "e\u0301"])
    ),
    max_size=6,
).map("".join)
BATCHES = st.lists(TEXTS, max_size=6)


@cache
def opened(engine: str, make, specials: str) -> tuple[TextTokenizer, Engine]:
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = TextTokenizer(find_tokenizer(str(make(Path(folder)))), specials=specials)  # type: ignore[arg-type]
        return tokenizer, open_engine(engine, tokenizer)


def strings(texts: list[str]) -> "pa.LargeStringArray":
    import pyarrow as pa

    return pa.array(texts, pa.large_string())


def lists(engine: Engine, texts: list[str]) -> list[list[int]]:
    ids, counts = engine.encode(strings(texts))
    assert len(counts) == len(texts)
    assert int(counts.sum()) == len(ids)
    ends = np.cumsum(counts)
    return [ids[end - count : end].tolist() for end, count in zip(ends, counts, strict=True)]


@pytest.mark.parametrize(("engine", "make", "specials"), CASES)
@settings(max_examples=60, deadline=None)
@given(texts=BATCHES)
def test_any_text_gives_the_ids_of_the_reference(engine, make, specials, texts) -> None:
    tokenizer, fast = opened(engine, make, specials)
    given_ids = lists(fast, texts)
    assert given_ids == lists(open_engine("transformers", tokenizer), texts)
    if not (make is make_unigram and specials == "text"):
        whole = tokenizer.pretrained(
            [*texts, "end"],
            add_special_tokens=False,
            split_special_tokens=specials == "text",
            padding=False,
            truncation=False,
        )
        assert given_ids == whole["input_ids"][:-1]


@pytest.mark.parametrize(("engine", "make", "specials"), CASES)
@settings(max_examples=30, deadline=None)
@given(texts=BATCHES)
def test_a_text_gives_the_same_ids_alone_and_in_any_batch(engine, make, specials, texts) -> None:
    _, fast = opened(engine, make, specials)
    assert lists(fast, texts) == [lists(fast, [text])[0] for text in texts]


@pytest.mark.parametrize("make", [make_bpe, make_wordpiece, make_unigram])
@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_plain_text_never_holds_control_ids(make, text) -> None:
    tokenizer, reference = opened("transformers", make, "text")
    control = set(tokenizer.special_ids.values()) - {(tokenizer.unknown or ("", None))[1]}
    assert control.isdisjoint(lists(reference, [text])[0])


@pytest.mark.parametrize("make", [make_bpe, make_wordpiece, make_unigram])
@settings(max_examples=60, deadline=None)
@given(texts=BATCHES)
def test_texts_without_hits_are_the_same_parsed_or_not(make, texts) -> None:
    tokenizer, plain = opened("transformers", make, "text")
    _, parsing = opened("transformers", make, "parse")
    hits = tokenizer.special_hits(strings(texts))
    for hit, one, other in zip(hits, lists(plain, texts), lists(parsing, texts), strict=True):
        assert hit or one == other
