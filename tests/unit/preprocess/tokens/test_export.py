"""Datasets of tokens as the files of other trainers, through the function and the command."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from loaders.errors import IncompleteError
from preprocess import ImageOptions, images_to_shards
from preprocess.errors import OutputError, SourceError
from preprocess.tokens.export import export_tokens
from tests.synthetic import write_image_tree
from tests.token_commands import call, prepare, stored, write_jsonl
from tests.tokenizers_made import make_bpe

CONTAINERS = pytest.mark.parametrize("container", ["tensor", "zarr"])


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bpe(tmp_path_factory.mktemp("bpe"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tokenizer whose "line" has an id that uint16 cannot hold."""
    folder = make_bpe(tmp_path_factory.mktemp("large"))
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["line"] = 70_000
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


def made(tmp_path: Path, tokenizer: Path, *words: str) -> Path:
    for number in range(4):
        texts = [f"file {number} text {n}" for n in range(20)]
        write_jsonl(tmp_path / f"in/{number}.jsonl", [*texts, ""])
    out = tmp_path / "out"
    shards = ["--shard-size", "100B", "--validation", "0.2", "--test", "0.1"]
    result = prepare(tmp_path / "in", out, tokenizer, *shards, *words)
    assert result.exit_code == 0, result.stderr
    return out


def documents_of(out: Path, split: str) -> list[list[int]]:
    return [ids for _, ids in stored(out, split)]


def flat(documents: list[list[int]]) -> list[int]:
    return [number for ids in documents for number in ids]


@CONTAINERS
def test_nanogpt_files_hold_all_ids_and_nothing_else(
    tmp_path: Path, bpe: Path, container: str
) -> None:
    out = made(tmp_path, bpe, "--format", container)
    found = export_tokens(out, tmp_path / "to", "nanogpt")
    names = {"train": "train.bin", "validation": "val.bin", "test": "test.bin"}
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == sorted(names.values())
    for split, name in names.items():
        documents = documents_of(out, split)
        ids = np.fromfile(tmp_path / "to" / name, "<u2").tolist()
        assert ids == flat(documents)
        assert (found[split].documents, found[split].tokens) == (len(documents), len(ids))


@CONTAINERS
@pytest.mark.parametrize(("kind", "code", "dtype"), [("bpe", 8, "<u2"), ("large", 4, "<i4")])
def test_megatron_files_hold_a_sequence_a_document(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    container: str,
    kind: str,
    code: int,
    dtype: str,
) -> None:
    out = made(tmp_path, request.getfixturevalue(kind), "--format", container)
    export_tokens(out, tmp_path / "to", "megatron")
    for split in ("train", "validation", "test"):
        documents = documents_of(out, split)
        index = (tmp_path / f"to/{split}.idx").read_bytes()
        count = len(documents)
        head = struct.unpack_from("<9sQBQQ", index)
        assert head == (b"MMIDIDX\0\0", 1, code, count, count + 1)
        lengths = np.frombuffer(index, "<i4", count, 34)
        pointers = np.frombuffer(index, "<i8", count, 34 + 4 * count)
        bounds = np.frombuffer(index, "<i8", count + 1, 34 + 12 * count)
        assert len(index) == 34 + 12 * count + 8 * (count + 1)
        assert bounds.tolist() == list(range(count + 1))
        data = (tmp_path / f"to/{split}.bin").read_bytes()
        sequences = [
            np.frombuffer(data, dtype, length, start).tolist()
            for length, start in zip(lengths.tolist(), pointers.tolist(), strict=True)
        ]
        assert sequences == documents


@CONTAINERS
@pytest.mark.parametrize(
    ("kind", "head", "dtype"), [("bpe", (20240520, 1), "<u2"), ("large", (20240801, 7), "<u4")]
)
def test_llmc_files_have_a_header_of_256_numbers(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    container: str,
    kind: str,
    head: tuple[int, int],
    dtype: str,
) -> None:
    out = made(tmp_path, request.getfixturevalue(kind), "--format", container)
    export_tokens(out, tmp_path / "to", "llmc")
    for split, name in {"train": "train", "validation": "val", "test": "test"}.items():
        (path,) = (tmp_path / "to" / name).iterdir()
        assert path.name == f"{name}_000000.bin"
        data = path.read_bytes()
        ids = flat(documents_of(out, split))
        header = np.frombuffer(data, "<i4", 256)
        assert header[:3].tolist() == [*head, len(ids)]
        assert not header[3:].any()
        assert np.frombuffer(data, dtype, offset=1024).tolist() == ids


def test_ids_that_nanogpt_cannot_hold_are_refused_and_leave_no_file(
    tmp_path: Path, large: Path
) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ["a line"])
    assert prepare(source, tmp_path / "out", large).exit_code == 0
    with pytest.raises(SourceError, match="id 70000 is over 65535"):
        export_tokens(tmp_path / "out", tmp_path / "to", "nanogpt")
    assert list((tmp_path / "to").iterdir()) == []


@pytest.mark.parametrize("target", ["nanogpt", "megatron", "llmc"])
def test_files_that_are_there_are_not_replaced(tmp_path: Path, bpe: Path, target: str) -> None:
    out = made(tmp_path, bpe)
    words = ["export", out, tmp_path / "to", "--to", target]
    first = call(*words, "--json")
    assert first.exit_code == 0, first.stderr
    report = json.loads(first.stdout)
    assert set(report) == {"train", "validation", "test"}
    assert report["train"]["documents"] == len(documents_of(out, "train"))
    assert all(Path(file).is_file() for split in report.values() for file in split["files"])
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "to").rglob("*")}
    again = call(*words)
    assert (again.exit_code, again.stdout, again.stderr.count("\n")) == (1, "", 1)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "to").rglob("*")} == before
    with pytest.raises(OutputError):
        export_tokens(out, tmp_path / "to", target)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", ["fixed", "packed"])
def test_rows_are_not_exported_and_the_message_says_what_is(
    tmp_path: Path, bpe: Path, layout: str
) -> None:
    out = made(tmp_path, bpe, "--layout", layout, "--length", "8")
    result = call("export", out, tmp_path / "to", "--to", "nanogpt")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert f"holds tokens, layout {layout}; only tokens in layout stream" in result.stderr
    assert not (tmp_path / "to").exists()


def test_what_is_no_dataset_of_tokens_is_refused(tmp_path: Path) -> None:
    write_image_tree(tmp_path / "photos", ["a"], 1)
    images_to_shards(tmp_path / "photos", tmp_path / "out", ImageOptions(sizes=((8, 8),)))
    with pytest.raises(SourceError, match="holds images"):
        export_tokens(tmp_path / "out", tmp_path / "to", "llmc")
    with pytest.raises(IncompleteError):
        export_tokens(tmp_path / "photos", tmp_path / "to", "llmc")


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path, bpe: Path) -> None:
    out = made(tmp_path, bpe)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match="file/to: cannot be made: Not a directory"):
        export_tokens(out, tmp_path / "file/to", "nanogpt")
