"""Engines one by one: what they give, what they refuse, and how they are chosen."""

import json
import sys
from threading import Thread
from typing import TYPE_CHECKING

import numpy as np
import pytest

from preprocess.errors import SourceError
from preprocess.tokens import engines
from preprocess.tokens.engine_check import Verdict, audited, choose_engine, differing
from preprocess.tokens.engine_torture import torture
from preprocess.tokens.engines import ENGINES, EngineError, open_engine
from preprocess.tokens.tokenizer import TextTokenizer
from preprocess.tokens.tokenizer_source import find_tokenizer
from tests.tokenizers_made import LINES, make_bpe, make_unigram, make_wordpiece

if TYPE_CHECKING:
    import pyarrow as pa

MADE = {"bpe": make_bpe, "wordpiece": make_wordpiece, "unigram": make_unigram}
FAST = [("gigatoken", "bpe"), ("fastokens", "bpe"), ("nanotoken", "wordpiece")]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("tokenizers")
    folders = {name: make(folder / name) for name, make in MADE.items()}

    def load(name: str, specials: str = "text") -> TextTokenizer:
        return TextTokenizer(find_tokenizer(str(folders[name])), specials=specials)  # type: ignore[arg-type]

    return load


def strings(*texts: str) -> "pa.LargeStringArray":
    import pyarrow as pa

    return pa.array(texts, pa.large_string())


def lists(encoded) -> list[list[int]]:
    ids, counts = encoded
    assert ids.dtype == np.uint32
    assert counts.dtype == np.int64
    return [part.tolist() for part in np.split(ids, np.cumsum(counts)[:-1])]


@pytest.mark.parametrize(("engine", "kind"), [*FAST, ("transformers", "unigram")])
@pytest.mark.parametrize("specials", ["text", "parse", "error"])
def test_engines_give_what_transformers_gives(load, engine, kind, specials) -> None:
    tokenizer = load(kind, specials)
    texts = [*LINES, "", *(f"a {special}b" for special in tokenizer.special_texts), "end"]
    # Unigram has its special texts among its pieces; there the reference is our own plain model.
    if kind == "unigram" and specials != "parse":
        texts = [*LINES, "", "end"]
    expected = tokenizer.pretrained(
        texts,
        add_special_tokens=False,
        split_special_tokens=specials != "parse",
        padding=False,
        truncation=False,
    )["input_ids"]
    assert lists(open_engine(engine, tokenizer).encode(strings(*texts))) == expected


@pytest.mark.parametrize(("engine", "kind"), FAST)
@pytest.mark.parametrize("specials", ["text", "parse"])
def test_engines_are_exact_on_the_hard_texts(load, engine, kind, specials) -> None:
    tokenizer = load(kind, specials)
    texts = torture(tokenizer)
    ids, counts = open_engine(engine, tokenizer).encode(texts)
    expected_ids, expected_counts = open_engine("transformers", tokenizer).encode(texts)
    assert np.array_equal(counts, expected_counts)
    assert np.array_equal(ids, expected_ids)


@pytest.mark.parametrize(("engine", "kind"), [*FAST, ("transformers", "unigram")])
def test_no_texts_and_empty_texts_give_no_ids(load, engine, kind) -> None:
    opened = open_engine(engine, load(kind))
    for texts in (strings(), strings(""), strings("", "", "")):
        ids, counts = opened.encode(texts)
        assert len(ids) == 0
        assert counts.tolist() == [0] * len(texts)


@pytest.mark.parametrize(("engine", "kind"), FAST)
def test_a_slice_of_the_texts_is_encoded_as_its_own_array(load, engine, kind) -> None:
    opened = open_engine(engine, load(kind))
    whole = strings("skip", *LINES, "[CLS]<|pad|>", "skip")
    part = whole.slice(1, len(LINES) + 1)
    assert lists(opened.encode(part)) == lists(opened.encode(strings(*part.to_pylist())))


@pytest.mark.parametrize(("engine", "kind"), FAST)
def test_two_threads_share_one_engine(load, engine, kind) -> None:
    opened = open_engine(engine, load(kind))
    texts = strings(*(f"{line} {special}" for line in LINES for special in ("", "[SEP]<|pad|>")))
    expected = lists(opened.encode(texts))
    given: list[list[list[int]]] = []

    def work() -> None:
        given.extend(lists(opened.encode(texts)) for _ in range(20))

    threads = [Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(given) == 40
    assert all(one == expected for one in given)


def test_the_unknown_token_is_plain_text_only_where_it_is_written(load) -> None:
    plain, parsing = (open_engine("nanotoken", load("wordpiece", m)) for m in ("text", "parse"))
    texts = strings("dog \u4e00\u4e01 dog", "dog [UNK] dog", "[UNK] \u4e01")
    assert lists(plain.encode(texts))[0] == lists(parsing.encode(texts))[0]
    assert lists(plain.encode(texts))[1] != lists(parsing.encode(texts))[1]
    reference = open_engine("transformers", load("wordpiece"))
    assert lists(plain.encode(texts)) == lists(reference.encode(texts))


@pytest.mark.parametrize(
    ("engine", "kind"), [("gigatoken", "unigram"), ("fastokens", "wordpiece"), ("nanotoken", "bpe")]
)
def test_an_engine_that_cannot_represent_a_tokenizer_says_so(load, engine, kind) -> None:
    with pytest.raises(EngineError, match=f"{engine}: .*[Uu]nsupported"):
        open_engine(engine, load(kind))


def test_an_engine_that_is_not_installed_names_the_extra(load, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    with pytest.raises(EngineError, match=r"pip install 'prepshards\[engines\]'"):
        open_engine("gigatoken", load("bpe"))
    verdict = choose_engine(load("bpe"), "auto", strings(*LINES))
    assert verdict.engine == "fastokens"
    assert "not installed" in verdict.rejected["gigatoken"]


def test_an_unknown_engine_names_those_that_exist(load) -> None:
    with pytest.raises(EngineError, match="gigatoken, fastokens, nanotoken, transformers"):
        open_engine("tiktoken", load("bpe"))


def test_a_panic_is_an_engine_error_and_an_interrupt_is_not() -> None:
    class PanicException(BaseException):
        pass

    said = "gigatoken broke down: index out of range"
    with pytest.raises(EngineError, match=said), engines._failures("gigatoken"):
        raise PanicException("index out of range\nLocation")
    with pytest.raises(KeyboardInterrupt), engines._failures("gigatoken"):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("kind", "engine"),
    [("bpe", "gigatoken"), ("wordpiece", "nanotoken"), ("unigram", "transformers")],
)
def test_the_first_exact_engine_is_chosen(load, kind, engine) -> None:
    tokenizer = load(kind)
    verdict = choose_engine(tokenizer, "auto", strings(*LINES))
    assert verdict.engine == engine
    compared = 0 if engine == "transformers" else len(torture(tokenizer)) + len(LINES)
    assert verdict.compared == compared
    assert set(verdict.rejected) <= set(ENGINES) - {engine}
    json.dumps(verdict.to_json())


def test_the_reference_is_compared_with_nothing(load) -> None:
    verdict = choose_engine(load("bpe"), "transformers", strings(*LINES))
    assert verdict == Verdict(engine="transformers", version=verdict.version, compared=0)


def other_merges(tokenizer: TextTokenizer) -> None:
    """Let the engines see a tokenizer that joins fewer pieces than the reference."""
    content = json.loads(tokenizer.cleaned)
    content["model"]["merges"] = content["model"]["merges"][:50]
    tokenizer.cleaned = json.dumps(content)


def test_an_engine_that_differs_is_refused_with_the_first_document(load) -> None:
    tokenizer = load("bpe")
    other_merges(tokenizer)
    with pytest.raises(SourceError, match=r"fastokens .* not exact .* documents differ, the first"):
        choose_engine(tokenizer, "fastokens", strings(*LINES))


def test_where_all_engines_differ_the_reference_is_chosen(load) -> None:
    tokenizer = load("bpe")
    other_merges(tokenizer)
    verdict = choose_engine(tokenizer, "auto", strings(*LINES))
    assert verdict.engine == "transformers"
    assert "documents differ" in verdict.rejected["gigatoken"]
    assert "documents differ" in verdict.rejected["fastokens"]


def test_documents_that_differ_are_found_among_those_asked_for(load) -> None:
    reference = open_engine("transformers", load("bpe"))
    texts = strings(*LINES, "")
    ids, counts = reference.encode(texts)
    everything = np.arange(len(texts))
    assert differing(reference, texts, (ids, counts), everything) == []
    assert differing(reference, texts, (ids, counts), everything[:0]) == []
    wrong = ids.copy()
    wrong[counts[:3].sum()] += 1
    assert differing(reference, texts, (wrong, counts), everything) == [3]
    assert differing(reference, texts, (wrong, counts), np.array([2, 3, 5])) == [3]
    assert differing(reference, texts, (wrong, counts), np.array([2, 5])) == []


def test_one_document_in_a_thousand_is_audited_and_always_the_same() -> None:
    places = np.arange(1, 200_001)
    chosen = audited(places, seed=7)
    assert 120 <= len(chosen) <= 280
    assert np.array_equal(chosen, audited(places, seed=7))
    assert not np.array_equal(chosen, audited(places, seed=8))
    tail = audited(places[100_000:], seed=7) + 100_000
    assert np.array_equal(tail, chosen[chosen >= 100_000])


def test_a_batch_of_many_documents_has_one_audited_and_few_are_not_all_audited() -> None:
    assert all(len(audited(np.arange(500), seed=seed)) >= 1 for seed in range(200))
    single = [len(audited(np.array([place]), seed=2**70)) for place in range(20_000)]
    assert 5 <= sum(single) <= 50
    assert audited(np.arange(5), seed=-1).dtype == np.int64
    assert audited(np.empty(0, np.int64), seed=0).tolist() == []
