"""Folders, patterns, tables and records through `prep tokens`: keys, metadata, splits, limits."""

import json
from pathlib import Path
from typing import Any

import pytest

from loaders import open_tokens
from loaders.format.spec import read_manifest
from tests.token_commands import Alone, prepare, skipped, stored, write_jsonl
from tests.tokenizers_made import make_bpe


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bpe(tmp_path_factory.mktemp("bpe"))


def texts_in(out: Path, bpe: Path, split: str = "train") -> list[str]:
    alone = Alone(bpe)
    return [alone.text(ids[:-1]) for _, ids in stored(out, split)]


def keys_in(out: Path, split: str = "train") -> list[str]:
    return [key for key, _ in stored(out, split)]


# ------------------------------------------------------------------------------------------ tables


def save_parquet(table: Any, path: Path) -> None:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path, row_group_size=2)


def save_arrow(table: Any, path: Path) -> None:
    import pyarrow.feather

    pyarrow.feather.write_feather(table, path, compression="uncompressed")


SAVERS = {"parquet": save_parquet, "arrow": save_arrow}


@pytest.mark.parametrize("ending", SAVERS)
def test_null_rows_of_a_table_are_named_and_never_a_word(
    tmp_path: Path, bpe: Path, ending: str
) -> None:
    import pyarrow as pa

    column = pa.array(["a", None, "b\0c", None, ""]).dictionary_encode()
    SAVERS[ending](pa.table({"text": column}), tmp_path / f"a.{ending}")
    result = prepare(tmp_path / f"a.{ending}", tmp_path / "out", bpe)
    assert result.exit_code == 3
    assert texts_in(tmp_path / "out", bpe) == ["a", "b\0c", ""]
    assert keys_in(tmp_path / "out") == [f"a.{ending}:{row}" for row in (1, 3, 5)]
    assert skipped(tmp_path / "out") == {f"a.{ending}:{n}": "'text' is null" for n in (2, 4)}


@pytest.mark.parametrize("ending", SAVERS)
def test_a_column_of_lists_is_refused_by_name(tmp_path: Path, bpe: Path, ending: str) -> None:
    import pyarrow as pa

    SAVERS[ending](pa.table({"text": pa.array([["a"], ["b"]])}), tmp_path / f"a.{ending}")
    result = prepare(tmp_path / f"a.{ending}", tmp_path / "out", bpe)
    assert result.exit_code == 1
    assert f"a.{ending}: column 'text' is list<" in result.stderr


@pytest.mark.parametrize("ending", SAVERS)
def test_a_table_without_rows_is_nothing(tmp_path: Path, bpe: Path, ending: str) -> None:
    import pyarrow as pa

    SAVERS[ending](pa.table({"text": pa.array([], pa.string())}), tmp_path / f"a.{ending}")
    result = prepare(tmp_path / f"a.{ending}", tmp_path / "out", bpe)
    assert result.exit_code == 1
    assert f"nothing in its 1 items, no dataset is written; the first: a.{ending}" in result.stderr


@pytest.mark.parametrize("ending", ["jsonl", *SAVERS])
def test_a_dotted_key_finds_what_is_nested_and_metadata_stay_with_their_document(
    tmp_path: Path, bpe: Path, ending: str
) -> None:
    import pyarrow as pa

    path = tmp_path / f"a.{ending}"
    rows = [{"doc": {"body": f"text {n}", "id": n}, "url": f"u/{n}é"} for n in range(5)]
    if ending == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        SAVERS[ending](pa.Table.from_pylist(rows), path)
    words = ["--text-key", "doc.body", "--metadata-keys", "url,doc.id", "--metadata-keys", "no"]
    result = prepare(path, tmp_path / "out", bpe, *words)
    if ending != "jsonl":  # a table has the column or has it not
        assert result.exit_code == 1
        assert "no column 'no'" in result.stderr
        result = prepare(path, tmp_path / "out2", bpe, *words[:-2])
    assert result.exit_code == 0, result.stderr
    out = tmp_path / ("out" if ending == "jsonl" else "out2")
    assert texts_in(out, bpe) == [f"text {n}" for n in range(5)]
    none = {"no": None} if ending == "jsonl" else {}
    documents = open_tokens(out).documents()
    found = [documents[n]["metadata"] for n in range(5)]
    assert found == [{"url": f"u/{n}é", "doc.id": n, **none} for n in range(5)]


def test_an_unknown_key_names_the_keys_that_are_there(tmp_path: Path, bpe: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ["a"], url=["u"])
    for key, said in {
        "body": "no key 'body'; the record has 'text', 'url'",
        "text.body": "no key 'text.body': 'text' is a string",
    }.items():
        result = prepare(tmp_path / "a.jsonl", tmp_path / "out", bpe, "--text-key", key)
        assert result.exit_code == 1
        assert f"a.jsonl:1: {said}" in result.stderr


# ---------------------------------------------------------------------------- folders and patterns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("folder")
    write_jsonl(root / "b/2.jsonl", ["b2 first", "b2 second"])
    write_jsonl(root / "b/10.jsonl", ["b10"])
    (root / "a.txt").write_text("a file")
    (root / "Z.md").write_text("# head")
    (root / "é.txt").write_text("accent")
    (root / ".hidden.txt").write_text("no")
    (root / "picture.png").write_bytes(b"\x89PNG")
    return root


def test_a_folder_is_read_in_the_order_of_bytes_whatever_the_workers(
    tmp_path: Path, bpe: Path, folder: Path
) -> None:
    result = prepare(folder, tmp_path / "out", bpe, "--workers", "3")
    assert result.exit_code == 0, result.stderr
    keys = ["Z.md", "a.txt", "b/10.jsonl@0", "b/2.jsonl@0", "b/2.jsonl@21", "é.txt"]
    assert keys_in(tmp_path / "out") == keys
    texts = ["# head", "a file", "b10", "b2 first", "b2 second", "accent"]
    assert texts_in(tmp_path / "out", bpe) == texts
    assert "ignored: 1 hidden" in result.stdout
    assert "each file is one document of 1 .md, 2 .txt, beside 2 .jsonl" in result.stdout


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("b/*.jsonl", ["b10", "b2 first", "b2 second"]),
        ("**/*.txt", ["a file", "accent"]),
        ("b/2.jsonl", ["b2 first", "b2 second"]),
        ("[aé].txt", ["a file", "accent"]),
    ],
)
def test_a_pattern_or_a_file_gives_what_it_names(
    tmp_path: Path, bpe: Path, folder: Path, pattern: str, texts: list[str]
) -> None:
    assert prepare(folder / pattern, tmp_path / "out", bpe).exit_code == 0
    assert texts_in(tmp_path / "out", bpe) == texts


@pytest.mark.parametrize(
    ("name", "said"), [("*.nothing", "no input text matches"), ("nowhere", "no such file")]
)
def test_a_source_without_texts_is_an_error(
    tmp_path: Path, bpe: Path, folder: Path, name: str, said: str
) -> None:
    result = prepare(folder / name, tmp_path / "out", bpe)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert said in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_output_may_not_lie_in_the_source(bpe: Path, folder: Path) -> None:
    for out, said in ((folder / "out", "lies inside the source"), (folder, "is the source")):
        result = prepare(folder, out, bpe)
        assert result.exit_code == 1
        assert f"{out}: {said} {folder}; give a folder outside it" in result.stderr


def test_split_folders_are_splits_and_exclude_shares(tmp_path: Path, bpe: Path) -> None:
    write_jsonl(tmp_path / "in/train/a.jsonl", ["learn", "more"])
    write_jsonl(tmp_path / "in/val/a.jsonl", ["judge"])
    result = prepare(tmp_path / "in", tmp_path / "out", bpe)
    assert result.exit_code == 0, result.stderr
    assert texts_in(tmp_path / "out", bpe) == ["learn", "more"]
    assert texts_in(tmp_path / "out", bpe, "validation") == ["judge"]
    assert keys_in(tmp_path / "out", "validation") == ["val/a.jsonl@0"]
    again = prepare(tmp_path / "in", tmp_path / "out2", bpe, "--test", "0.5")
    assert again.exit_code == 1
    assert "has folders for splits (train, validation) already" in again.stderr


# --------------------------------------------------------------------------------- shares and limit


def split_keys(out: Path) -> dict[str, list[str]]:
    return {name: keys_in(out, name) for name in read_manifest(out).splits}


def test_shares_are_disjoint_cover_everything_and_stay_when_files_are_added(
    tmp_path: Path, bpe: Path
) -> None:
    source, words = tmp_path / "in", ["--validation", "0.2", "--test", "0.1"]
    write_jsonl(source / "b.jsonl", [f"b {n}" for n in range(300)])
    (source / "broken.jsonl").write_text("{")
    result = prepare(source, tmp_path / "one", bpe, *words, "--max-skipped", "1")
    assert result.exit_code == 0, result.stderr  # named once, not once for each split
    one = split_keys(tmp_path / "one")
    assert list(one) == ["train", "validation", "test"]
    found = sorted(key for keys in one.values() for key in keys)
    assert found == sorted(f"b.jsonl@{place}" for place in starts(300))
    assert 35 <= len(one["validation"]) <= 85
    assert 12 <= len(one["test"]) <= 50

    write_jsonl(source / "a.jsonl", [f"a {n}" for n in range(50)])
    write_jsonl(source / "c.jsonl", [f"c {n}" for n in range(50)])
    assert prepare(source, tmp_path / "two", bpe, *words, "--workers", "3").exit_code == 3
    two = split_keys(tmp_path / "two")
    assert {name: [k for k in keys if k.startswith("b")] for name, keys in two.items()} == one
    assert sum(map(len, two.values())) == 400

    other = prepare(source, tmp_path / "three", bpe, *words, "--split-seed", "1")
    assert other.exit_code == 3
    assert split_keys(tmp_path / "three")["test"] != two["test"]


def starts(count: int) -> list[int]:
    """Return the bytes at which the records of `write_jsonl(..., ["b 0", "b 1", ...])` begin."""
    places = [0]
    for number in range(count - 1):
        places.append(places[-1] + len(json.dumps({"text": f"b {number}"})) + 1)
    return places


def test_the_limit_counts_files_evenly(tmp_path: Path, bpe: Path) -> None:
    for number in range(10):
        write_jsonl(tmp_path / f"in/{number}.jsonl", [f"{number}"] * 2)
    assert prepare(tmp_path / "in", tmp_path / "out", bpe, "--limit", "5").exit_code == 0
    assert texts_in(tmp_path / "out", bpe) == [str(n) for n in (0, 0, 2, 2, 4, 4, 6, 6, 8, 8)]
