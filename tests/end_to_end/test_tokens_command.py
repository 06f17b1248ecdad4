"""`prep tokens`: options, reports and exit codes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaders.format.spec import read_manifest
from tests.token_commands import Alone, call, prepare, skipped, stored, write_jsonl
from tests.tokenizers_made import make_bpe, make_unigram, make_wordpiece

MADE = {"bpe": make_bpe, "wordpiece": make_wordpiece, "unigram": make_unigram}


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tokenizers")
    return {name: make(folder / name) for name, make in MADE.items()}


@pytest.fixture(scope="module")
def bpe(tokenizers: dict[str, Path]) -> Path:
    return tokenizers["bpe"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "in.jsonl", ["one", "", "two dogs"])


def ids_in(out: Path) -> list[list[int]]:
    return [ids for _, ids in stored(out)]


def changed(folder: Path, to: Path, **settings: Any) -> Path:
    """Copy a tokenizer with other settings; None takes one away."""
    to.mkdir()
    (to / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    config = json.loads((folder / "tokenizer_config.json").read_text()) | settings
    kept = {name: value for name, value in config.items() if value is not None}
    (to / "tokenizer_config.json").write_text(json.dumps(kept))
    return to


# ------------------------------------------------------------------------ what surrounds a document


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        ([], [], ["<|endoftext|>"]),
        (["--no-eos"], [], []),
        (["--eos", "<|pad|>"], [], ["<|pad|>"]),
        (["--add-bos"], ["<|endoftext|>"], ["<|endoftext|>"]),
        (["--bos", "<|pad|>"], ["<|pad|>"], ["<|endoftext|>"]),
        (["--bos", "d", "--no-eos"], ["d"], []),
    ],
)
def test_documents_are_surrounded_by_the_tokens_that_are_named(
    tmp_path: Path, bpe: Path, source: Path, words: list[str], before: list[str], after: list[str]
) -> None:
    alone = Alone(bpe)
    result = prepare(source, tmp_path / "out", bpe, *words)
    assert result.exit_code == 0, result.stderr
    around = [[alone.id_of(token) for token in tokens] for tokens in (before, after)]
    texts = ["one", "", "two dogs"]
    assert ids_in(tmp_path / "out") == [[*around[0], *alone.ids(t), *around[1]] for t in texts]


@pytest.mark.parametrize("kind", MADE)
def test_each_kind_of_tokenizer_gives_the_ids_of_the_library(
    tmp_path: Path, tokenizers: dict[str, Path], kind: str
) -> None:
    texts = [
        "The quick brown fox",
        "Gr\u00f6\u00dfe \u4f60\u597d \U0001f600",
        " lead  and trail ",
        "it's 3.14",
    ]
    write_jsonl(tmp_path / "in.jsonl", texts)
    alone = Alone(tokenizers[kind])
    end = alone.id_of({"bpe": "<|endoftext|>", "wordpiece": "[SEP]", "unigram": "</s>"}[kind])
    result = prepare(tmp_path / "in.jsonl", tmp_path / "out", tokenizers[kind])
    assert result.exit_code == 0, result.stderr
    assert ids_in(tmp_path / "out") == [[*alone.ids(text), end] for text in texts]


@pytest.mark.parametrize(
    ("words", "settings", "said"),
    [
        ([], {"eos_token": None}, "no EOS token; name one with --eos, or --no-eos"),
        (
            ["--add-bos"],
            {"bos_token": None},
            "no BOS token; name one with --bos, or leave --add-bos out",
        ),
        (["--eos", "<|no|>"], {}, "'<|no|>' is not a token of"),
        (
            ["--layout", "packed", "--length", "8", "--pad", "<|no|>"],
            {},
            "'<|no|>' is not a token of",
        ),
        (["--layout", "fixed", "--length", "8"], {"pad_token": None}, "no padding token; name one"),
    ],
)
def test_a_token_that_is_wanted_and_absent_is_an_error(
    tmp_path: Path, bpe: Path, source: Path, words: list[str], settings: Any, said: str
) -> None:
    tokenizer = changed(bpe, tmp_path / "changed", **settings)
    result = prepare(source, tmp_path / "out", tokenizer, *words)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_without_eos_serves_where_none_is_wanted(
    tmp_path: Path, bpe: Path, source: Path
) -> None:
    tokenizer = changed(bpe, tmp_path / "changed", eos_token=None)
    assert prepare(source, tmp_path / "out", tokenizer, "--no-eos").exit_code == 0
    assert ids_in(tmp_path / "out")[1] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--eos", "x", "--no-eos"], "--eos and --no-eos exclude each other"),
        (["--bos", "x", "--add-bos"], "--bos and --add-bos exclude each other"),
        (["--layout", "chat", "--add-bos"], "--add-bos: only with layout stream or packed"),
        (["--layout", "chat", "--no-eos"], "--no-eos: only with layout stream or packed"),
        (["--layout", "chat", "--bos", "x"], "--bos x: only with layout stream or packed"),
        (["--layout", "packed"], "layout packed needs the tokens of a row"),
        (["--length", "8"], "only with layout fixed or packed"),
        (["--stride", "2"], "only with layout fixed"),
        (["--pair-key", "b"], "only with layout fixed"),
        (["--chat-day", "2024-01-01"], "only with layout chat"),
        (["--layout", "chat", "--specials", "parse"], "with layout chat"),
        (["--validation", "0.6", "--test", "0.4"], "--validation, --test = (0.6, 0.4)"),
        (["--test", "1"], "0<=x<1"),
        (["--encoding", "latin-99"], "no text encoding of that name"),
        (["--metadata-keys", "a,a"], "each once"),
        (["--text-key", ""], "--text-key ''"),
    ],
)
def test_options_that_cannot_be_are_a_usage_error(
    tmp_path: Path, bpe: Path, source: Path, words: list[str], said: str
) -> None:
    result = prepare(source, tmp_path / "out", bpe, *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------ special text, dtype

HOLDS = ["say <|endoftext|> now", "plain", "<|pad|>"]


@pytest.mark.parametrize("specials", ["text", "parse"])
def test_text_that_looks_special_is_text_or_the_token_as_it_is_said(
    tmp_path: Path, bpe: Path, specials: str
) -> None:
    write_jsonl(tmp_path / "in.jsonl", HOLDS)
    words = ["--specials", specials, "--json"]
    report = json.loads(prepare(tmp_path / "in.jsonl", tmp_path / "out", bpe, *words).stdout)
    alone = Alone(bpe, specials=specials)
    assert ids_in(tmp_path / "out") == [[*alone.ids(text), 0] for text in HOLDS]
    assert (0 in ids_in(tmp_path / "out")[0][:-1]) == (specials == "parse")
    assert report["tallies"]["special_text"] == ([2] if specials == "text" else [0])


def test_text_that_looks_special_is_refused_by_line_on_request(tmp_path: Path, bpe: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", HOLDS)
    result = prepare(tmp_path / "in.jsonl", tmp_path / "out", bpe, "--specials", "error")
    assert result.exit_code == 3
    reason = "holds text that looks like a special token; --specials text or parse takes it"
    assert skipped(tmp_path / "out") == {"in.jsonl:1": reason, "in.jsonl:3": reason}
    assert ids_in(tmp_path / "out") == [[*Alone(bpe).ids("plain"), 0]]


@pytest.mark.parametrize(("largest", "dtype"), [(65_535, "uint16"), (65_536, "uint32")])
@pytest.mark.parametrize("layout", [[], ["--layout", "packed", "--length", "8"]])
def test_the_largest_id_decides_the_dtype_and_not_their_number(
    tmp_path: Path, bpe: Path, largest: int, dtype: str, layout: list[str]
) -> None:
    # A hole in the ids: the vocabulary stays small, one id is large.
    content = json.loads((bpe / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["line"] = largest
    tokenizer = changed(bpe, tmp_path / "large")
    (tokenizer / "tokenizer.json").write_text(json.dumps(content))
    write_jsonl(tmp_path / "in.jsonl", ["a line", "b"])
    result = prepare(tmp_path / "in.jsonl", tmp_path / "out", tokenizer, *layout)
    assert result.exit_code == 0, result.stderr
    manifest = read_manifest(tmp_path / "out")
    (field, *_) = manifest.splits["train"].fields
    assert (field.name, field.dtype) == ("tokens", dtype)
    assert manifest.recipe["tokenizer"]["largest_id"] == largest
    (values,) = [np.load(path) for path in (tmp_path / "out/train").glob("*.tokens.npy")]
    assert values.dtype == np.dtype(dtype)
    assert largest in values.ravel().tolist()


# ------------------------------------------------------------------------- dry runs, reports, codes


@pytest.fixture
def prepared(tmp_path: Path, bpe: Path) -> Callable[..., Any]:
    write_jsonl(tmp_path / "in/a.jsonl", ["one", "two dogs", "3"])
    (tmp_path / "in/b.jsonl").write_text('{"text": "4"}\n{}\n{"text": 5}\n')
    return lambda *words: prepare(tmp_path / "in", tmp_path / "out", bpe, *words)


def test_a_dry_run_writes_nothing(tmp_path: Path, prepared: Callable[..., Any]) -> None:
    before = sorted(tmp_path.rglob("*"))
    shown = prepared("--dry-run")
    assert shown.exit_code == 0, shown.stderr
    assert "tokens" in shown.stdout
    planned = json.loads(prepared("--dry-run", "--json").stdout)
    assert planned["splits"]["train"]["items"] == 2
    assert planned["splits"]["train"]["fields"]["tokens"]["dtype"] == "uint16"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_counts_each_document_in_one_split(
    tmp_path: Path, prepared: Callable[..., Any]
) -> None:
    write_jsonl(tmp_path / "in/long.jsonl", ["some more words"] * 5_000)
    whole = json.loads(prepared("--dry-run", "--json").stdout)["nbytes"]
    shares = ("--validation", "0.25", "--test", "0.25")
    cut = json.loads(prepared("--dry-run", "--json", *shares).stdout)["nbytes"]
    assert whole > 50_000
    assert abs(cut - whole) <= 2  # rounded split by split


def test_the_report_counts_documents_and_those_that_were_skipped(
    tmp_path: Path, prepared: Callable[..., Any]
) -> None:
    result = prepared("--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 3
    assert (report["samples"], report["skipped"]) == ({"train": 4}, 2)
    assert report["skipped_by_reason"] == {
        "no key 'text'; the record has none": 1,
        "'text' is a number, not a string": 1,
    }
    assert report["tallies"]["documents"] == [4]
    assert report["redone_shards"] == 0
    assert "--max-skipped 2 accepts as many" in result.stderr


@pytest.mark.parametrize(("accepted", "code"), [(0, 3), (1, 3), (2, 0), (9, 0)])
def test_more_skipped_than_accepted_exits_with_3(
    prepared: Callable[..., Any], accepted: int, code: int
) -> None:
    result = prepared("--max-skipped", str(accepted))
    assert result.exit_code == code
    assert "4 samples (train 4)" in result.stdout
    assert "  b.jsonl:2: no key 'text'; the record has none\n" in result.stdout


def test_the_same_command_again_has_nothing_to_do_and_other_options_need_overwrite(
    tmp_path: Path, prepared: Callable[..., Any]
) -> None:
    assert prepared("--max-skipped", "2").exit_code == 0
    assert "nothing to do" in prepared("--max-skipped", "2").stdout
    other = prepared("--no-eos")
    assert (other.exit_code, other.stderr.count("\n")) == (1, 1)
    assert "made with other options" in other.stderr
    assert prepared("--no-eos", "--overwrite", "--max-skipped", "2").exit_code == 0


def test_a_corpus_of_empty_documents_is_refused_and_a_few_keep_their_place(
    tmp_path: Path, bpe: Path
) -> None:
    write_jsonl(tmp_path / "a.jsonl", ["", ""])
    result = prepare(tmp_path / "a.jsonl", tmp_path / "out", bpe)
    assert result.exit_code == 1
    assert "all 2 documents are empty; --text-key names the key" in result.stderr
    assert not (tmp_path / "out/manifest.json").exists()
    assert call("info", tmp_path / "out").exit_code == 1
    write_jsonl(tmp_path / "a.jsonl", ["", "x", ""])
    assert prepare(tmp_path / "a.jsonl", tmp_path / "out", bpe).exit_code == 0
    assert texts_in(tmp_path / "out", bpe) == ["", "x", ""]


def texts_in(out: Path, bpe: Path) -> list[str]:
    alone = Alone(bpe)
    return [alone.text(ids[:-1]) for _, ids in stored(out)]


def test_the_process_ends_with_the_code_and_one_line(tmp_path: Path, bpe: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", ["one"])
    with (tmp_path / "in.jsonl").open("a") as file:
        file.write("{}\n")
    words = [sys.executable, "-c", "from preprocess.cli import prep; prep()", "tokens", "in.jsonl"]
    words += ["out", "--tokenizer", bpe, "--engine", "transformers"]
    done = subprocess.run(words, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("skipped: 1, accepted: 0; ")
    failed = subprocess.run(
        [str(word) for word in words[:6]] + ["--tokenizer", "nowhere"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (failed.returncode, failed.stdout, failed.stderr.count("\n")) == (1, "", 1)
    assert failed.stderr.startswith("Error: nowhere: no such folder or file")
