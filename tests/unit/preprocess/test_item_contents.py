"""What a dataset says that its items held: of every kind, and whoever read them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loaders.errors import FormatError
from preprocess.item_contents import ItemFiles
from preprocess.item_record import read_record
from preprocess.items import Item
from preprocess.tables.options import TableOptions
from preprocess.tables.prepare import table_to_shards
from tests.contents import assert_contents, recorded_items, rewritten, write_as_it_was
from tests.recipes import read_tree
from tests.small_datasets import KINDS, Made, prepare, write_source
from tests.token_commands import call, write_jsonl
from tests.tokenizers_made import make_bpe


@pytest.mark.parametrize("container", ["tensor", "zarr"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "table" not in kind])
def test_each_item_has_the_checksum_of_its_file_and_its_mask(
    kind: str, container: str, made: Made
) -> None:
    source, out = made(kind, container)
    assert assert_contents(out, source, source.parent / "masks")


def test_a_photo_that_is_refused_has_one_for_its_mask_too(tmp_path: Path) -> None:
    source = write_source("encoded images", tmp_path)
    shutil.copy(tmp_path / "masks/00.png", tmp_path / "masks/broken.png")
    prepare("encoded images", "tensor", source, tmp_path / "out")
    items = assert_contents(tmp_path / "out", source, tmp_path / "masks")
    assert [len(item.contents) for item in items if item.key == "broken.jpg"] == [2]


@pytest.mark.parametrize("kind", ["table", "list table"])
def test_so_has_a_table_that_is_read_to_its_end(kind: str, made: Made, tmp_path: Path) -> None:
    source = write_source(kind, tmp_path)
    prepare(kind, "tensor", source, tmp_path / "out")
    assert assert_contents(tmp_path / "out", source)

    _, limited = made(kind, "tensor")
    assert {item.contents for item in recorded_items(limited)} == {()}


def test_a_data_frame_has_none(tmp_path: Path) -> None:
    table_to_shards({"a": [1, 2, 3]}, tmp_path / "out", TableOptions())
    assert [item.contents for item in recorded_items(tmp_path / "out")] == [()]


@pytest.mark.parametrize("kind", ["images", "tokens", "shuffled tokens", "table"])
def test_neither_workers_nor_backend_change_what_is_recorded(kind: str, tmp_path: Path) -> None:
    source = write_source(kind, tmp_path)
    found = set()
    for workers, backend in ((1, "threading"), (2, "threading"), (2, "loky")):
        if backend == "loky" and kind != "images":
            continue
        out = tmp_path / f"{workers}{backend}"
        more = ["--workers", str(workers), "--backend", backend] if kind == "images" else []
        prepare(kind, "tensor", source, out, *(more or ["--workers", str(workers)]))
        found.add((out / "items.jsonl").read_bytes())
    assert len(found) == 1


DAMAGES: dict[str, tuple[Callable[[list[Any]], list[Any]], str]] = {
    "text": (lambda line: [*line[:-1], "00000000"], "an array"),
    "other digits": (lambda line: [*line[:-1], ["0000000G"]], "text like"),
    "a number": (lambda line: [*line[:-1], [7]], "text like"),
    "null": (lambda line: [*line[:-1], [None]], "text like"),
    "too many": (lambda line: [*line[:-1], ["00000000"] * 3], "a checksum for each time"),
    "a value more": (lambda line: [*line, []], "a list of key, .*contents"),
    "two values less": (lambda line: line[:-2], "a list of key, .*contents"),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_record_is_refused_by_its_line(
    damage: Callable[[list[Any]], list[Any]], said: str, made: Made, tmp_path: Path
) -> None:
    _, out = made("images", "tensor")
    path = tmp_path / "items.jsonl"
    lines = (out / "items.jsonl").read_text().splitlines()
    lines[4] = json.dumps(damage(json.loads(lines[4])))
    path.write_text("\n".join(lines))
    with pytest.raises(FormatError, match=rf"items\.jsonl: line 5: got .*expected .*{said}"):
        read_record(path)


def test_records_without_checksums_are_read(made: Made, tmp_path: Path) -> None:
    _, out = made("images", "tensor")
    whole = recorded_items(out)
    (tmp_path / "items.jsonl").write_bytes((out / "items.jsonl").read_bytes())
    rewritten(tmp_path, lambda line: line[:-1])
    assert recorded_items(tmp_path) == [item._replace(contents=()) for item in whole]


def test_a_file_that_splits_read_differently_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_bpe(tmp_path / "bpe")
    for name in "ab":
        write_jsonl(tmp_path / f"in/{name}.jsonl", [f"{name} {n}" for n in range(40)])
    changed = tmp_path / "in/b.jsonl"
    whole, status = changed.read_bytes(), changed.stat()
    opened = ItemFiles.open

    def open_once_more(files: ItemFiles, item: Item) -> Any:
        if files.contents([item]) == () and item.key != "b.jsonl":  # the first of a split
            data = whole if changed.read_bytes() != whole else whole.replace(b"b 7", b"b 8")
            write_as_it_was(changed, data, status.st_mtime_ns)
        return opened(files, item)

    words = ("--tokenizer", tmp_path / "bpe", "--validation", "0.5", "--workers", "1")
    command = ("tokens", tmp_path / "in", tmp_path / "out", *words, "--engine", "transformers")
    with monkeypatch.context() as patch:
        patch.setattr(ItemFiles, "open", open_once_more)
        refused = call(*command)
    assert refused.exit_code == 1
    said = "b.jsonl changed while it was prepared: train and validation were read from other bytes"
    assert said in refused.stderr
    assert not list((tmp_path / "out").rglob("*"))

    write_as_it_was(changed, whole, status.st_mtime_ns)
    assert call(*command).exit_code == 0
    assert_contents(tmp_path / "out", tmp_path / "in")

    # What is new may change too: then the dataset is as it was.
    before = read_tree(tmp_path / "out")
    items = (tmp_path / "out/items.jsonl").read_bytes()
    changed = tmp_path / "in/c.jsonl"
    changed.write_bytes(whole)
    status = changed.stat()
    with monkeypatch.context() as patch:
        patch.setattr(ItemFiles, "open", open_once_more)
        refused = call(*command, "--append")
    assert refused.exit_code == 1
    assert "c.jsonl changed while it was prepared" in refused.stderr
    assert "nothing is added; give the same command again" in refused.stderr
    assert read_tree(tmp_path / "out") == before
    assert (tmp_path / "out/items.jsonl").read_bytes() == items
    write_as_it_was(changed, whole, status.st_mtime_ns)
    assert call(*command, "--append").exit_code == 0
    assert len(assert_contents(tmp_path / "out", tmp_path / "in")) == 6
