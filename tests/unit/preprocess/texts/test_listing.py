"""Which files of a source hold texts, and how large ones are cut."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.ipc  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253 - a test may load what it compares with
import pytest

from preprocess.errors import SourceError
from preprocess.item_contents import ItemFiles
from preprocess.items import Listing
from preprocess.texts.lines import RANGE_NBYTES
from preprocess.texts.read import TextOptions, list_texts, read_documents

LINE = b'{"text":"a"}\n'


def write(root: Path, *names: str, data: bytes = LINE) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def write_table(path: Path, texts: list[str], stream: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"text": texts})
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(path, table.schema) as writer:
        writer.write_table(table)


def listed(source: Path, **options: Any) -> Listing:
    return list_texts(source, TextOptions(**options))


def keys(listing: Listing, split: str = "train") -> list[str]:
    return [item.key for item in listing.splits[split]]


def texts(listing: Listing) -> list[str]:
    found = []
    for items in listing.splits.values():
        for item in items:
            for documents in read_documents(ItemFiles(listing.root), item, TextOptions()):
                found += documents.texts.to_pylist()
    return found


def test_text_files_are_taken_by_their_endings_in_the_order_of_bytes(tmp_path: Path) -> None:
    names = ["b.txt", "B.MD", "a/c.jsonl.gz", "a/d.py", "e.csv.zst", "f.tsv", "g.ndjson.xz"]
    write(tmp_path, *names, "x.png", "y.tar", "Makefile", "z.txt.part", ".hidden.txt", data=b"text")
    listing = listed(tmp_path)
    assert keys(listing) == sorted(names)
    assert listing.ignored == {
        "hidden": 1,
        "not an input text (.png)": 1,
        "not an input text (.tar)": 1,
        "not an input text (no ending)": 1,
        "unfinished download (.part)": 1,
    }


def test_files_whose_names_say_nothing_are_taken_by_content(tmp_path: Path) -> None:
    write(tmp_path, "part-00000")
    write(tmp_path, "part-00001.gz", data=gzip.compress(LINE))
    write_table(tmp_path / "table.parquet", ["b"])
    os.rename(tmp_path / "table.parquet", tmp_path / "table")
    write(tmp_path, "settings.ipynb")
    write(tmp_path, "all.tar.gz", data=gzip.compress(b"files"))
    listing = listed(tmp_path)
    assert keys(listing) == ["part-00000", "part-00001.gz", "table"]
    assert texts(listing) == ["a", "a", "b"]
    assert listing.ignored["not an input text (.tar)"] == 1


def test_split_folders_become_splits(tmp_path: Path) -> None:
    write(tmp_path, "train/a.jsonl", "val/b.jsonl", "test/c.jsonl")
    listing = listed(tmp_path)
    assert {name: keys(listing, name) for name in listing.splits} == {
        "train": ["train/a.jsonl"],
        "validation": ["val/b.jsonl"],
        "test": ["test/c.jsonl"],
    }
    assert all(item.label is None for items in listing.splits.values() for item in items)


def test_a_single_file_is_taken_whatever_its_name_ends_with(tmp_path: Path) -> None:
    write(tmp_path, "LICENSE", data=b"as is")
    write(tmp_path, "beside.txt")
    listing = listed(tmp_path / "LICENSE")
    assert (listing.root, keys(listing), texts(listing)) == (tmp_path, ["LICENSE"], ["as is"])


def test_a_pattern_takes_what_it_matches(tmp_path: Path) -> None:
    write(tmp_path, "d/a.jsonl", "d/b.jsonl", "d/c.txt", "d/e/a.jsonl", "d/f.jsonl/g.txt")
    listing = listed(tmp_path / "d" / "*.jsonl")
    assert (listing.root, keys(listing)) == (tmp_path / "d", ["a.jsonl", "b.jsonl"])
    assert listing.ignored == {"a folder": 1}
    assert keys(listed(tmp_path / "**" / "[ab].jsonl")) == ["d/a.jsonl", "d/b.jsonl", "d/e/a.jsonl"]


def test_splits_are_found_under_a_pattern(tmp_path: Path) -> None:
    write(tmp_path, "train/a.jsonl", "test/a.jsonl", "README.md")
    assert set(listed(tmp_path / "*" / "*.jsonl").splits) == {"train", "test"}


def test_a_name_with_wildcards_that_exists_is_that_file(tmp_path: Path) -> None:
    write(tmp_path, "a[1].txt", "a1.txt")
    assert keys(listed(tmp_path / "a[1].txt")) == ["a[1].txt"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none.txt", "no such file or folder"),
        ("*.txt", "no input text matches"),
        ("*.part", "no input text among: 1 unfinished download"),
        ("png", "no input text among 1 file"),
        ("saved", "1 not among the data files"),
    ],
)
def test_a_source_without_texts_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    write(tmp_path, "a.part", "png/a.png", data=b"data")
    write_table(tmp_path / "saved/cache-1.arrow", ["a"])
    write(tmp_path, "saved/state.json", data=b'{"_data_files": []}')
    with pytest.raises(SourceError, match=reason.replace("(", r"\(")):
        listed(tmp_path / name)


def test_links_are_skipped_by_name_or_followed_on_request(tmp_path: Path) -> None:
    write(tmp_path, "real/a.txt", "in/b.txt")
    (tmp_path / "in" / "link.txt").symlink_to(tmp_path / "real" / "a.txt")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "real")
    for source in (tmp_path / "in", tmp_path / "in" / "**"):
        listing = listed(source)
        assert keys(listing) == ["b.txt"]
        assert "link.txt" in [error.key for error in listing.skipped]
        followed = keys(listed(source, follow_links=True))
        assert followed == ["b.txt", "folder/a.txt", "link.txt"]
    assert keys(listed(tmp_path / "in" / "link.txt")) == ["link.txt"]


def test_special_files_and_broken_links_of_a_pattern_are_skipped_by_name(tmp_path: Path) -> None:
    write(tmp_path, "a.txt")
    os.mkfifo(tmp_path / "b.txt")
    (tmp_path / "c.txt").symlink_to(tmp_path / "nothing")
    listing = listed(tmp_path / "*.txt", follow_links=True)
    assert keys(listing) == ["a.txt"]
    assert [error.key for error in listing.skipped] == ["b.txt", "c.txt"]


def test_names_that_are_not_utf8_are_read(tmp_path: Path) -> None:
    for name in (b"\xff.jsonl", b"\xff.parquet", b"\xff.csv", b"\xff.txt"):
        write_table(tmp_path / "t.parquet", ["a"])
        data = {b".jsonl": LINE, b".csv": b"text\na\n", b".txt": b"a"}.get(name[1:])
        data = (tmp_path / "t.parquet").read_bytes() if data is None else data
        (tmp_path / "t.parquet").unlink()
        (tmp_path / os.fsdecode(name)).write_bytes(data)
    assert texts(listed(tmp_path)) == ["a"] * 4
    assert texts(listed(tmp_path / "*.*")) == ["a"] * 4


def test_of_a_saved_dataset_only_the_data_files_are_taken(tmp_path: Path) -> None:
    for split in ("train", "test"):
        folder = tmp_path / split
        write_table(folder / "data-00000-of-00001.arrow", [split])
        write_table(folder / "cache-0123456789abcdef.arrow", ["cached"])
        state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": split}
        write(folder, "state.json", data=json.dumps(state, indent=2).encode())
        write(folder, "dataset_info.json", data=b'{\n  "citation": ""\n}')
    write(tmp_path, "dataset_dict.json", data=b'{"splits": ["train", "test"]}')
    listing = listed(tmp_path)
    assert texts(listing) == ["train", "test"]
    assert listing.ignored["describes a dataset"] == 4
    assert listing.ignored["not among the data files of its saved dataset"] == 2


@pytest.mark.parametrize("state", [b"[" * 100_000, b"\xff", b"[]", b'{"_data_files": [1]}'])
def test_a_state_that_describes_no_saved_dataset_means_nothing(
    tmp_path: Path, state: bytes
) -> None:
    write(tmp_path, "state.json", data=state)
    write_table(tmp_path / "a.arrow", ["a"])
    assert texts(listed(tmp_path)) == ["a"]


def test_whole_files_beside_files_of_records_are_noted(tmp_path: Path) -> None:
    write(tmp_path, "README.md", "a.jsonl", "b.jsonl")
    (note,) = listed(tmp_path).notes
    assert note.startswith("each file is one document of 1 .md, beside 2 .jsonl that hold many")


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a"])
def test_large_files_of_json_lines_are_cut_at_fixed_bytes(tmp_path: Path, name: str) -> None:
    count = 2 * RANGE_NBYTES // len(LINE) + 10
    write(tmp_path, name, data=LINE * count)
    listing = listed(tmp_path)
    found = [(item.start, item.stop) for item in listing.splits["train"]]
    assert found == [
        (0, RANGE_NBYTES),
        (RANGE_NBYTES, 2 * RANGE_NBYTES),
        (2 * RANGE_NBYTES, None),
    ]
    assert len(texts(listing)) == count


def test_files_that_cannot_be_read_from_the_middle_are_not_cut(tmp_path: Path) -> None:
    text = '{"text":"a"}\n' * (RANGE_NBYTES // 13 + 1)
    write(tmp_path, "a.txt", "b.csv", data=text.encode())
    write(tmp_path, "c.jsonl", data=text.encode("utf-16"))
    write(tmp_path, "d.jsonl", data=gzip.compress(os.urandom(RANGE_NBYTES + 9), 0))
    write(tmp_path, "e.parquet", data=b"no Parquet" * RANGE_NBYTES)
    assert keys(listed(tmp_path)) == ["a.txt", "b.csv", "c.jsonl", "d.jsonl", "e.parquet"]
    assert keys(listed(tmp_path / "a.txt", lines=True)) == ["a.txt", "a.txt"]
    assert keys(listed(tmp_path / "a.txt", lines=True, encoding="gbk")) == ["a.txt"]
