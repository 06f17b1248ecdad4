"""What a dataset of tokens tells of itself: `prep info`, `prep check`, the copied tokenizer."""

import json
from pathlib import Path
from typing import Any

import pytest

from loaders.format.spec import read_manifest
from preprocess.check import check_dataset
from preprocess.tokens.info import describe_tokens, show_samples, tokens_text
from tests.token_commands import Alone, call, prepare, write_jsonl
from tests.tokenizers_made import make_bpe, make_wordpiece

TEXTS = ["one", "", "two dogs and a fox", "x" * 40, "say <|pad|>"]


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bpe(tmp_path_factory.mktemp("bpe"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    write_jsonl(folder / "many.jsonl", TEXTS * 2)
    write_jsonl(folder / "few@home:3.jsonl", TEXTS[:2])
    (folder / "whole.txt").write_text("a whole file")
    return folder


def made(source: Path, out: Path, tokenizer: Path, *words: str) -> Path:
    result = prepare(source, out, tokenizer, "--shard-size", "60B", *words)
    assert result.exit_code == 0, result.stderr
    return out


def described(out: Path) -> dict[str, Any]:
    return describe_tokens(read_manifest(out), out)


ALL = [*TEXTS[:2], *TEXTS, *TEXTS, "a whole file"]


@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_documents_tokens_lengths_and_sources_are_counted(
    tmp_path: Path, bpe: Path, source: Path, container: str
) -> None:
    out = made(source, tmp_path / "out", bpe, "--format", container)
    found = described(out)["train"]
    lengths = [len(Alone(bpe).ids(text)) for text in ALL]
    nbytes = sum(len(text.encode()) for text in ALL)
    assert (found["documents"], found["tokens"]) == (len(ALL), sum(lengths))
    assert found["tokens_per_byte"] == sum(lengths) / nbytes
    for low, high, count in found["lengths"]:
        assert count == sum(low <= length <= high for length in lengths)
    assert sum(count for _, _, count in found["lengths"]) == len(ALL)
    assert found["lengths"][0] == [0, 0, 3]
    sources = [["many.jsonl", 10], ["few@home:3.jsonl", 2], ["whole.txt", 1]]
    assert found["top_sources"] == sources
    assert (found["special_text"], found["fill"], found["unknown_rate"]) == (2, None, 0)
    text = tokens_text({"train": found})
    assert text.startswith(f"train: {len(ALL)} documents, {sum(lengths):,} tokens of text, ")
    assert "  from few@home:3.jsonl: 2 documents" in text


def test_a_source_whose_name_holds_a_line_feed_is_one_source(tmp_path: Path, bpe: Path) -> None:
    write_jsonl(tmp_path / "in/new\nline.jsonl", ["a", "b"])
    (tmp_path / "in/new\n1:2.txt").write_text("c")
    found = described(made(tmp_path / "in", tmp_path / "out", bpe))["train"]
    assert found["top_sources"] == [["new\nline.jsonl", 2], ["new\n1:2.txt", 1]]
    assert "  from new\\nline.jsonl: 2 documents" in tokens_text({"train": found})


def test_the_rate_of_unknown_tokens_is_told(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["dog \u4e00\u4e00 \u4e01", "dog [UNK]"])
    out = made(source, tmp_path / "out", make_wordpiece(tmp_path / "wordpiece"))
    alone = Alone(tmp_path / "wordpiece")
    ids = [*alone.ids("dog \u4e00\u4e00 \u4e01"), *alone.ids("dog [UNK]")]
    found = described(out)["train"]
    assert ids.count(alone.id_of("[UNK]")) > 0
    assert found["unknown_rate"] == ids.count(alone.id_of("[UNK]")) / len(ids)


@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_packed_rows_tell_how_full_they_are(
    tmp_path: Path, bpe: Path, source: Path, container: str
) -> None:
    words = ["--layout", "packed", "--length", "16", "--format", container]
    out = made(source, tmp_path / "out", bpe, *words)
    found = described(out)["train"]
    stored = sum(len(Alone(bpe).ids(text)) + 1 for text in ALL)
    assert found["fill"] == stored / (16 * read_manifest(out).splits["train"].count)
    assert found["top_sources"][0][0] == "many.jsonl"
    assert f"{found['fill']:.4f} of the rows filled" in tokens_text({"train": found})


def test_a_split_without_documents_is_told_as_such(tmp_path: Path, bpe: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["one"])
    out = made(source, tmp_path / "out", bpe, "--validation", "0.001")
    found = described(out)["validation"]
    assert (found["documents"], found["tokens"], found["tokens_per_byte"]) == (0, 0, None)
    assert (found["lengths"], found["top_sources"]) == ([], [])
    assert "validation: 0 documents, 0 tokens of text, 0 stored\n" in call("info", out).stdout
    assert "validation[" not in call("info", out, "--show", "2").stdout


def test_the_command_prints_the_same_for_people_and_as_json(
    tmp_path: Path, bpe: Path, source: Path
) -> None:
    out = made(source, tmp_path / "out", bpe)
    shown = json.loads(call("info", out, "--json").stdout)
    assert shown["tokens"] == described(out)
    assert tokens_text(shown["tokens"]) in call("info", out).stdout


# ----------------------------------------------------------------------------------- samples shown


def test_samples_are_shown_between_bars_evenly_spaced(tmp_path: Path, bpe: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["zero", "one", "two\nlines", "three"])
    out = made(source, tmp_path / "out", bpe)
    lines = list(show_samples(out, 2))
    assert lines[1::2] == ["  |zero<|endoftext|>|", "  |two\\nlines<|endoftext|>|"]
    assert lines[0].startswith("train[0] in.jsonl@0: ")
    assert lines[2].startswith("train[2] in.jsonl@")
    assert len(list(show_samples(out, 99))) == 8
    assert list(show_samples(out, 0)) == []


@pytest.mark.parametrize("container", ["tensor", "zarr"])
def test_each_document_of_a_packed_row_has_its_own_bars(
    tmp_path: Path, bpe: Path, container: str
) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["a", "", "b c"])
    words = ["--layout", "packed", "--length", "32", "--packing", "first_fit"]
    out = made(source, tmp_path / "out", bpe, *words, "--format", container)
    head, *bars = show_samples(out, 1)
    assert head.endswith(": 32 tokens")
    assert sorted(bars) == sorted(f"  |{text}<|endoftext|>|" for text in ("a", "", "b c"))


def test_padding_of_fixed_rows_is_not_shown_and_long_documents_are_shortened(
    tmp_path: Path, bpe: Path
) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["one"])
    words = ["--layout", "fixed", "--length", "9"]
    out = made(source, tmp_path / "out", make_wordpiece(tmp_path / "wordpiece"), *words)
    assert list(show_samples(out, 1))[1] == "  |[CLS] one [SEP]|"
    long = write_jsonl(tmp_path / "long.jsonl", ["ab " * 1000])
    (_, shown) = show_samples(made(long, tmp_path / "out2", bpe), 1)
    assert " tokens ...] " in shown
    assert len(shown) < 500
    assert shown.endswith("<|endoftext|>|")


def test_samples_are_shown_by_the_copied_tokenizer_alone(tmp_path: Path) -> None:
    tokenizer = make_bpe(tmp_path / "bpe")
    out = made(write_jsonl(tmp_path / "in.jsonl", ["one"]), tmp_path / "out", tokenizer)
    tokenizer.rename(tmp_path / "gone")
    assert "  |one<|endoftext|>|" in call("info", out, "--show", "1").stdout


# ----------------------------------------------------------------------------- the copied tokenizer


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_tokenizer_file_that_changed_is_named_by_the_check(
    tmp_path: Path, bpe: Path, name: str
) -> None:
    out = made(write_jsonl(tmp_path / "in.jsonl", ["one"]), tmp_path / "out", bpe)
    path = out / "tokenizer" / name
    assert path.read_bytes() == (bpe / name).read_bytes()
    assert check_dataset(out, full=True).problems == ()
    assert check_dataset(out).foreign == ()
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b" ")
    (problem,) = check_dataset(out, full=True).problems
    assert problem.startswith(f"{path}: CRC-32C ")
    path.write_bytes(data[:-1])
    assert f"{path}: {len(data) - 1} bytes, manifest says {len(data)}" in call("check", out).stdout
    path.unlink()
    assert call("check", out).exit_code == 1
    path.write_bytes(data)
    assert call("check", out, "--full").exit_code == 0


def test_overwriting_removes_the_tokenizer_of_before(tmp_path: Path, bpe: Path) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["one", "two"])
    out = made(source, tmp_path / "out", bpe)
    alone = tmp_path / "alone.json"
    alone.write_bytes((bpe / "tokenizer.json").read_bytes())
    again = prepare(source, out, alone, "--no-eos")
    assert again.exit_code == 1
    assert "made with other options" in again.stderr
    assert prepare(source, out, alone, "--no-eos", "--overwrite").exit_code == 0
    assert [path.name for path in (out / "tokenizer").iterdir()] == ["tokenizer.json"]
    assert (out / "tokenizer/tokenizer.json").read_bytes() == alone.read_bytes()
    assert read_manifest(out).recipe["tokenizer"]["files"] == ["tokenizer/tokenizer.json"]
    assert check_dataset(out, full=True).problems == check_dataset(out).foreign == ()
    assert list(show_samples(out, 1))[1] == "  |one|"
