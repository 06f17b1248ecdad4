"""What a run of `prep tokens` tells beside its counts, and options that would do nothing."""

import gzip
import json
from pathlib import Path

import pytest

from tests.token_commands import call, prepare
from tests.tokenizers_made import make_bpe, make_wordpiece


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make_bpe(folder / "bpe")
    make_wordpiece(folder / "wordpiece")
    return folder


def test_empty_files_are_counted_and_records_without_text_are_documents(
    made: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_bytes(b"")
    (source / "b.txt").write_bytes(b"\xef\xbb\xbf")
    (source / "c.jsonl.gz").write_bytes(gzip.compress(b""))
    (source / "d.jsonl").write_text('{"text": ""}\n{"text": "words"}')
    result = prepare(source, tmp_path / "out", made / "bpe")
    assert result.exit_code == 0, result.output
    assert "2 samples (train 2)" in result.output
    assert "note: no document in 3 empty files" in result.output


def test_ends_that_a_row_has_no_room_for_are_counted(made: Path, tmp_path: Path) -> None:
    texts = ["one two three four five six seven eight nine ten", ""]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    words = (made / "wordpiece", "--layout", "fixed", "--length", "6", "--json")
    result = prepare(tmp_path / "a.jsonl", tmp_path / "out", *words)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    documents, tokens = report["tallies"]["cut"]
    assert documents == 1
    assert tokens == report["tallies"]["tokens"][0] - 4  # of [CLS] 4 [SEP]
    assert any("1 documents are longer than a row" in note for note in report["notes"])
    assert {"transformers", "tokenizers", "pyarrow"} <= set(report["tools"])
    strided = prepare(tmp_path / "a.jsonl", tmp_path / "more", *words, "--stride", "2")
    assert json.loads(strided.stdout)["tallies"]["cut"] == [0, 0]


@pytest.mark.parametrize(
    "words",
    [
        ["--layout", "fixed", "--length", "8", "--no-eos"],
        ["--layout", "fixed", "--length", "8", "--add-bos"],
        ["--layout", "chat", "--eos", "x"],
        ["--pad", "x"],
        ["--packing", "first_fit"],
        ["--split-seed", "1"],
    ],
)
def test_options_that_would_do_nothing_are_refused(
    words: list[str], made: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("words")
    result = prepare(tmp_path / "a.txt", tmp_path / "out", made, *words)
    assert result.exit_code == 2
    assert "Error: --" in result.output
    assert "only with" in result.output


def test_a_pattern_that_the_shell_has_expanded_is_told_of(made: Path, tmp_path: Path) -> None:
    result = call("tokens", "a.jsonl", "b.jsonl", tmp_path / "out", "--tokenizer", made / "bpe")
    assert result.exit_code == 2
    assert 'put a pattern in quotes, as in "data/*.jsonl"' in result.output


def test_an_export_into_the_dataset_is_refused(made: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    prepare(tmp_path / "a.txt", tmp_path / "out", made / "bpe")
    for folder, said in ((tmp_path / "out", "is"), (tmp_path / "out" / "below", "lies inside")):
        result = call("export", tmp_path / "out", folder, "--to", "nanogpt")
        assert result.exit_code == 1
        assert f"{folder}: {said} the dataset {tmp_path / 'out'}; " in result.output
    result = call("export", tmp_path / "out", tmp_path / "other", "--to", "nanogpt")
    assert "note: no validation split, so no val.bin" in result.output


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([], ["--add-bos"], "--bos is none there, the tokenizer's own (--add-bos) here"),
        (["--add-bos"], ["--bos", "x"], "--bos is the tokenizer's own (--add-bos) there, x here"),
        (["--no-eos"], [], "--eos is none (--no-eos) there, the tokenizer's own here"),
        (["--eos", "x"], ["--no-eos"], "--eos is x there, none (--no-eos) here"),
    ],
)
def test_special_tokens_that_differ_are_told_as_they_are_asked_for(
    made: Path, tmp_path: Path, before: list[str], after: list[str], said: str
) -> None:
    (tmp_path / "a.txt").write_text("words")
    assert prepare(tmp_path / "a.txt", tmp_path / "out", made / "bpe", *before).exit_code == 0
    result = prepare(tmp_path / "a.txt", tmp_path / "out", made / "bpe", *after)
    assert result.exit_code == 1
    assert f"made with other options: {said}; " in result.stderr


def test_a_metadata_key_that_no_record_has_is_told(made: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "words", "id": 1}\n{"text": "more", "id": null}')
    words = ("--metadata-keys", "id,nid")
    result = prepare(tmp_path / "a.jsonl", tmp_path / "out", made / "bpe", *words)
    assert result.exit_code == 0, result.output
    assert "note: no record that was looked at has 'nid' (--metadata-keys)" in result.output


def test_errors_of_a_single_file_name_it(made: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"texts": "words"}')
    result = prepare(tmp_path / "a.jsonl", tmp_path / "out", made / "bpe")
    assert result.exit_code == 1
    assert f"Error: {tmp_path / 'a.jsonl'}: none of 1 items" in result.output
