"""A tokenizer loaded by a process apart, and what is done before that has ended."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loaders.tokens import open_tokens
from preprocess.errors import SourceError
from preprocess.tokens.apart import loader_started
from preprocess.tokens.loading import Loading, load_here, plain_content
from preprocess.tokens.tokenizer_source import find_tokenizer
from tests.tokenizers_made import LINES, make_bpe, make_unigram, make_wordpiece


@pytest.fixture(autouse=True)
def _as_if_transformers_were_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers  # noqa: F401

    monkeypatch.delitem(sys.modules, "transformers")


@pytest.mark.parametrize("make", [make_bpe, make_wordpiece, make_unigram])
def test_a_process_apart_gives_what_this_one_would_and_the_guess_agrees(make, tmp_path) -> None:
    source = find_tokenizer(str(make(tmp_path / "tokenizer")))
    with loader_started() as process:
        loading = Loading(source, process)
        guess = loading.guess()
        assert guess is not None
        assert loading.agrees(guess)
        given, named = loading.given(), guess.named()
    assert process is not None
    assert process.returncode == 0
    with loader_started(wanted=False) as none:
        assert none is None
        here = Loading(source, none)
        assert here.guess() is None
        expected = here.given()
    assert guess.content == given.content == expected.content
    assert guess.whole() == given.whole() == expected.whole()
    assert given.named() == named == expected.named()


def test_a_tiktoken_file_is_loaded_apart_without_a_guess(tmp_path: Path) -> None:
    import base64

    from preprocess.tokens.tokenizer_tiktoken import TiktokenFile

    ranks = tmp_path / "mine.tiktoken"
    lines = [b"%s %d" % (base64.b64encode(bytes([byte])), byte) for byte in range(256)]
    ranks.write_bytes(b"\n".join(lines))
    source = find_tokenizer(TiktokenFile(path=str(ranks), pattern="gpt2", eos="<|end|>"))
    with loader_started() as process:
        loading = Loading(source, process)
        assert loading.guess() is None
        given = loading.given()
    assert given.content == load_here(source).content
    assert given.named().eos_id == 256


def test_what_transformers_refuses_is_said_as_in_one_process(tmp_path: Path) -> None:
    folder = make_bpe(tmp_path / "tokenizer")
    (folder / "tokenizer.json").write_text('{"no": "tokenizer"}')
    source = find_tokenizer(str(folder))
    with loader_started() as process:
        loading = Loading(source, process)
        with pytest.raises(SourceError):
            loading.guess()
        with pytest.raises(SourceError) as apart:
            loading.given()
    with pytest.raises(SourceError) as here:
        load_here(source)
    assert str(apart.value) == str(here.value)


@pytest.mark.parametrize("config", ['{"x": ', '{"tokenizer_class": 5}'])
def test_what_transformers_alone_refuses_is_said_each_time(tmp_path: Path, config: str) -> None:
    folder = make_bpe(tmp_path / "tokenizer")
    (folder / "tokenizer_config.json").write_text(config)
    source = find_tokenizer(str(folder))
    with loader_started() as process:
        loading = Loading(source, process)
        guess = loading.guess()
        assert guess is not None
        with pytest.raises(SourceError) as first:
            loading.agrees(guess)
        with pytest.raises(SourceError) as again:
            loading.given()
    with pytest.raises(SourceError, match="transformers cannot load this tokenizer") as here:
        load_here(source)
    assert str(first.value) == str(again.value) == str(here.value)


def test_what_set_up_of_python_prints_is_no_answer(tmp_path: Path, monkeypatch) -> None:
    source = find_tokenizer(str(make_bpe(tmp_path / "tokenizer")))
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("print('hello', flush=True)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path])  # such an entry is no use, and no harm
    with loader_started() as process:
        assert Loading(source, process).given().named().eos_id == 0


def test_modules_in_the_working_folder_are_not_imported(tmp_path, monkeypatch) -> None:
    source = find_tokenizer(str(make_bpe(tmp_path / "tokenizer")))
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    with loader_started() as process:
        assert Loading(source, process).given().named().eos_id == 0


def test_a_process_that_was_killed_is_named(tmp_path: Path) -> None:
    source = find_tokenizer(str(make_bpe(tmp_path / "tokenizer")))
    with loader_started() as process:
        assert process is not None
        process.kill()
        with pytest.raises(SourceError, match=r"the process .* ended with code -9"):
            Loading(source, process).given()


def test_nothing_is_left_running_where_nobody_asks() -> None:
    with loader_started() as process:
        assert process is not None
    assert process.returncode == -9


def test_content_says_what_ids_depend_on(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    def content_of(content: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(plain_content(Tokenizer.from_str(json.dumps(content))))
        return found

    whole = json.loads(load_here(find_tokenizer(str(make_bpe(tmp_path / "bpe")))).whole())
    plain = content_of(whole)
    assert {plain["padding"], plain["truncation"], plain["post_processor"]} == {None}
    affixes = ("continuing_subword_prefix", "end_of_word_suffix")
    for none in (None, ""):
        assert content_of(whole | {"model": whole["model"] | dict.fromkeys(affixes, none)}) == plain
    bare = whole | {"model": whole["model"] | {"merges": []}}
    for affix in affixes:
        changed = bare | {"model": bare["model"] | {affix: "x"}}
        assert content_of(changed)["model"][affix] == "x"
    words = json.loads(load_here(find_tokenizer(str(make_wordpiece(tmp_path / "wp")))).whole())
    assert words["padding"] is not None
    plain = content_of(words)
    assert {plain["padding"], plain["truncation"], plain["post_processor"]} == {None}
    assert plain["model"] == words["model"]
    words["model"]["continuing_subword_prefix"] = ""
    assert content_of(words)["model"] == words["model"] != plain["model"]


@pytest.mark.slow
def test_ids_are_those_of_transformers_where_it_makes_another_tokenizer_of_the_file(
    tmp_path: Path,
) -> None:
    folder = make_bpe(tmp_path / "tokenizer")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["pre_tokenizer"]["add_prefix_space"] = True  # which GPT2Tokenizer takes from elsewhere
    (folder / "tokenizer.json").write_text(json.dumps(content))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    copied = shutil.copytree(folder, tmp_path / "copied")
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": line}) + "\n" for line in LINES))
    words = ["tokens", texts, tmp_path / "out", "--tokenizer", folder]
    code = (
        "import sys\nfrom preprocess.cli import main\n"
        f"sys.argv[1:] = {[*map(str, words)]!r}\nmain()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)

    from tokenizers import Tokenizer

    given = load_here(find_tokenizer(str(copied)))
    reference = Tokenizer.from_str(given.content)
    file = Tokenizer.from_file(str(copied / "tokenizer.json"))
    assert plain_content(Tokenizer.from_str(file.to_str())) != given.content
    expected = [reference.encode(line, add_special_tokens=False).ids for line in LINES]
    assert expected != [file.encode(line, add_special_tokens=False).ids for line in LINES]
    documents = open_tokens(tmp_path / "out").documents()
    end = given.named().eos_id
    assert [documents[i]["tokens"].tolist() for i in range(len(expected))] == [
        [*ids, end] for ids in expected
    ]
