"""Refusals name what a user can find: the line, the row, or the file that is one document."""

import bz2
import csv
import gzip
import io
import json
import lzma
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.ipc  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet  # noqa: TID253 - a test may load what it compares with
import pytest
import zstandard  # noqa: TID253 - a test may load what it compares with
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.item_contents import ItemFiles
from preprocess.plan import RunOptions
from preprocess.texts import content as text_bytes
from preprocess.texts import cut as text_cut
from preprocess.texts import lines as text_lines
from preprocess.texts.read import TextOptions, list_texts, read_documents
from preprocess.tokens.layouts import FixedLayout
from preprocess.tokens.options import TokenOptions
from preprocess.tokens.prepare import plan_tokens, run_tokens
from preprocess.tokens.recipe import TokenRecipe
from tests.token_commands import prepare, skipped, stored
from tests.tokenizers_made import make_bpe, make_wordpiece

SPECIAL: Final = "holds <|endoftext|> inside"
PACK: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
JSONL: Final = [
    "jsonl",
    *(f"jsonl.{ending}" for ending in PACK),
    "utf-8-sig.jsonl",
    "utf-16.jsonl",
    "utf-16-be.jsonl.gz",
]
LINES: Final = ["txt", "txt.gz", "utf-8-sig.txt", "utf-16.txt"]
TABLES: Final = ["parquet", "arrow", "feather", "csv", "tsv", "csv.gz", "utf-16.csv"]


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bpe(tmp_path_factory.mktemp("bpe"))


def encoded(text: str, kind: str) -> bytes:
    """Encode and compress a text as the name of the kind says."""
    if kind.startswith("utf-16-be"):
        data = ("\ufeff" + text).encode("utf-16-be")
    elif kind.startswith("utf-16"):
        data = ("\ufeff" + text).encode("utf-16-le")
    else:
        data = text.encode("utf-8-sig" if kind.startswith("utf-8-sig") else "utf-8")
    pack = PACK.get(kind.rpartition(".")[2])
    return data if pack is None else pack(data)


def written_lines(
    folder: Path, kind: str, records: Sequence[str], end: str, *, ended: bool
) -> Path:
    """Write lines: an empty record is a blank line."""
    text = end.join(records) + (end if ended else "")
    path = folder / f"in.{kind}"
    path.write_bytes(encoded(text, kind))
    return path


def written_table(folder: Path, kind: str, texts: Sequence[str | None]) -> Path:
    """Write a table in several groups of rows, with a column before the text."""
    path = folder / f"in.{kind}"
    table = pa.table({"id": list(range(len(texts))), "text": pa.array(texts, pa.string())})
    if kind == "parquet":
        pa.parquet.write_table(table, path, row_group_size=3)
    elif kind in {"arrow", "feather"}:
        make = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
        with make(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    else:
        file = io.StringIO(newline="")
        writer = csv.writer(file, delimiter="\t" if kind == "tsv" else ",")
        writer.writerows([["id", "text"], *enumerate(texts)])
        path.write_bytes(encoded(file.getvalue(), kind))
    return path


def names_of(path: Path, options: TextOptions) -> dict[str, str]:
    """Return the text of each document by what names it, over all items of a file."""
    found: dict[str, str] = {}
    listing = list_texts(path, options)
    for item in listing.splits["train"]:
        for documents in read_documents(ItemFiles(listing.root), item, options):
            for index, text in enumerate(documents.texts.to_pylist()):
                found[documents.name(item.key, index)] = text
    return found


def small_parts(patch: pytest.MonkeyPatch, nbytes: int) -> None:
    """Cut files into many items, those into many blocks, and count lines in many segments."""
    patch.setattr(text_cut, "RANGE_NBYTES", nbytes)
    patch.setattr(text_lines, "_SEGMENT_NBYTES", 3 * nbytes)
    for module in (text_bytes, text_lines):
        patch.setattr(module, "BLOCK_NBYTES", nbytes // 2)


@settings(max_examples=120)
@given(
    kind=st.sampled_from([*JSONL, *LINES]),
    blanks=st.lists(st.integers(0, 3), min_size=1, max_size=25),
    end=st.sampled_from(["\n", "\r\n"]),
    ended=st.booleans(),
    broken=st.booleans(),
    nbytes=st.sampled_from([32, 100, 400, 1 << 20]),
)
def test_a_document_is_named_by_the_line_at_which_it_stands(
    kind: str, blanks: list[int], end: str, ended: bool, broken: bool, nbytes: int
) -> None:
    is_json = kind in JSONL
    records: list[str] = []
    expected: dict[str, str] = {}
    for number, blank in enumerate(blanks):
        records += [""] * blank
        text = f"é {number} \u2028 🙂" + "x" * (number % 5 * 30)
        record = json.dumps({"text": text}, ensure_ascii=False) if is_json else text
        if broken and is_json and number == len(blanks) // 2:
            record = "{broken"
        else:
            expected[f"in.{kind}:{len(records) + 1}"] = text
        records.append(record)
    options = TextOptions(lines=not is_json)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = written_lines(Path(folder), kind, records, end, ended=ended)
        small_parts(patch, nbytes)
        assert names_of(path, options) == expected


@settings(max_examples=40)
@given(
    kind=st.sampled_from(TABLES),
    texts=st.lists(
        st.sampled_from(["plain", 'two\nlines "quoted"', "\r\n", "é, \t x"]) | st.none(),
        min_size=1,
        max_size=20,
    ),
    nbytes=st.sampled_from([64, 1 << 20]),
)
def test_a_document_is_named_by_its_row(kind: str, texts: list[str | None], nbytes: int) -> None:
    if kind not in {"parquet", "arrow", "feather"}:
        texts = [text or "" for text in texts]  # no cell is null
    expected = {f"in.{kind}:{row}": text for row, text in enumerate(texts, 1) if text is not None}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = written_table(Path(folder), kind, texts)
        small_parts(patch, nbytes)
        assert names_of(path, TextOptions()) == expected


def test_a_file_that_is_one_document_is_named_alone(tmp_path: Path) -> None:
    (tmp_path / "in.md").write_text("two\nlines")
    assert names_of(tmp_path / "in.md", TextOptions()) == {"in.md": "two\nlines"}


@pytest.mark.parametrize("nbytes", [64, 1 << 20])
@pytest.mark.parametrize("kind", [*JSONL, *LINES, *TABLES])
def test_the_command_names_a_document_that_is_refused_after_it_was_read(
    tmp_path: Path, bpe: Path, monkeypatch: pytest.MonkeyPatch, kind: str, nbytes: int
) -> None:
    texts = ["one", SPECIAL, "two, \t and more", "x" * 260, SPECIAL, "three"]
    wanted = {2: "special token", 4: "documents may have 256", 5: "special token"}
    source = tmp_path / "source"
    source.mkdir()
    if kind in TABLES:
        written_table(source, kind, texts)
        names = {f"in.{kind}:{row}": why for row, why in wanted.items()}
    else:
        records = texts if kind in LINES else [json.dumps({"text": text}) for text in texts]
        spaced = [part for record in records for part in ("", "", record)]
        written_lines(source, kind, spaced, "\r\n", ended=True)
        names = {f"in.{kind}:{3 * row}": why for row, why in wanted.items()}
    small_parts(monkeypatch, nbytes)
    words = ["--specials", "error", "--max-document", "256", "--workers", "2"]
    result = prepare(source, tmp_path / "out", bpe, *words, *(["--lines"] if kind in LINES else []))

    assert result.exit_code == 3, result.output
    found = skipped(tmp_path / "out")
    assert sorted(found) == sorted(names)
    for name, why in names.items():
        assert why in found[name]
        assert f"{name}: " in result.stdout
    assert len(stored(tmp_path / "out")) == 3


def test_files_that_are_encoded_together_are_told_apart(tmp_path: Path, bpe: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("fine")
    (source / "b.txt").write_text(SPECIAL)
    (source / "c.jsonl").write_text("")
    (source / "d.jsonl").write_text(f'\n{{"text": "a"}}\n{{"text": "{SPECIAL}"}}\n')
    (source / "e@7.jsonl").write_text(f'{{"text": "{SPECIAL}"}}')
    result = prepare(source, tmp_path / "out", bpe, "--specials", "error")
    assert result.exit_code == 3, result.output
    assert list(skipped(tmp_path / "out")) == ["b.txt", "d.jsonl:3", "e@7.jsonl:1"]
    assert [key for key, _ in stored(tmp_path / "out")] == ["a.txt", "d.jsonl@1"]


def test_the_message_names_the_line_where_nothing_is_left(tmp_path: Path, bpe: Path) -> None:
    (tmp_path / "in.jsonl").write_text(f'\n\n{{"text": "{SPECIAL}"}}')
    result = prepare(tmp_path / "in.jsonl", tmp_path / "out", bpe, "--specials", "error")
    assert result.exit_code == 1
    assert "in.jsonl:3: holds text that looks like a special token" in result.stderr


@pytest.mark.parametrize(
    "more",
    [["--validation", "0.3", "--test", "0.2"], ["--shuffle-documents", "1"], ["--dedup", "exact"]],
)
def test_documents_of_splits_and_of_another_order_are_named_once_and_by_line(
    tmp_path: Path, bpe: Path, more: list[str]
) -> None:
    texts = [f"{SPECIAL} {n}" if n % 10 == 3 else f"text {n}" for n in range(1, 61)]
    lines = [json.dumps({"text": text}) for text in texts]
    (tmp_path / "in.jsonl").write_text("\n\n".join(lines))
    result = prepare(tmp_path / "in.jsonl", tmp_path / "out", bpe, "--specials", "error", *more)
    assert result.exit_code == 3, result.output
    expected = [f"in.jsonl:{2 * number - 1}" for number in range(3, 61, 10)]
    assert list(skipped(tmp_path / "out")) == expected


CHAT: Final = (
    "{% for m in messages %}{{ '<|pad|>' + m.role + ' ' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"
)


@pytest.mark.parametrize("nbytes", [200, 1 << 20])
@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet"])
def test_a_chat_that_cannot_be_used_is_named_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, nbytes: int
) -> None:
    folder = make_bpe(tmp_path / "made")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": CHAT}))
    ask, answer = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    silent = {"role": "assistant", "content": ""}
    chats = [[ask, answer], [ask], [ask, answer], [ask, silent], [answer, answer], [ask, answer]]
    if kind == "parquet":
        table = pa.table({"messages": chats})
        pa.parquet.write_table(table, tmp_path / f"in.{kind}", row_group_size=2)
        names = ["in.parquet:2", "in.parquet:4"]
    else:
        lines = [json.dumps({"messages": chat}) for chat in chats]
        spaced = [part for line in lines for part in ("", line)]
        written_lines(tmp_path, kind, spaced, "\n", ended=False)
        names = [f"in.{kind}:4", f"in.{kind}:8"]
    small_parts(monkeypatch, nbytes)
    words = ["--layout", "chat", "--text-key", "messages"]
    result = prepare(tmp_path / f"in.{kind}", tmp_path / "out", folder, *words)

    assert result.exit_code == 3, result.output
    found = skipped(tmp_path / "out")
    assert list(found) == names
    assert "no message of role assistant" in found[names[0]]
    assert "nothing to learn" in found[names[1]]
    assert f"{names[0]}: nothing to learn" in result.stdout


PAIRS: Final = [("a", "b"), ("the dog " * 40, "b"), ("a", "c"), ("the fox " * 40, "b"), ("d", "e")]


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz"])
def test_a_pair_that_a_layout_refuses_is_named_by_its_line(tmp_path: Path, kind: str) -> None:
    tokenizer = make_wordpiece(tmp_path / "made")
    lines = [json.dumps({"text": first, "b": second}) for first, second in PAIRS]
    spaced = [part for line in lines for part in ("", line)]
    path = written_lines(tmp_path, kind, spaced, "\n", ended=True)
    options = TokenOptions(
        tokenizer=str(tokenizer),
        engine="transformers",
        layout="fixed",
        length=24,
        text=TextOptions(pair_key="b"),
    )
    plan = plan_tokens(path, tmp_path / "out", options, RunOptions())
    recipe = plan.recipes["train"]
    assert isinstance(recipe, TokenRecipe)
    assert isinstance(recipe.layout, FixedLayout)
    frame = replace(recipe.layout.frame, truncation="only_second")
    recipe = replace(recipe, layout=replace(recipe.layout, frame=frame))
    report = run_tokens(replace(plan, recipes={"train": recipe}), RunOptions())

    reason = "its first text leaves no room for the second one"
    assert skipped(tmp_path / "out") == {f"in.{kind}:{line}": reason for line in (4, 8)}
    assert report.tallies["documents"] == (3,)


def test_lines_are_counted_only_when_one_is_named(
    tmp_path: Path, bpe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    real: Any = text_lines.line_number

    def noted(root: Path, item: Any, offset: int) -> int:
        counted.append(offset)
        return int(real(root, item, offset))

    monkeypatch.setattr(text_lines, "line_number", noted)
    small_parts(monkeypatch, 4000)
    texts = [f"text {number}" for number in range(1000)]
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    assert prepare(path, tmp_path / "out", bpe).exit_code == 0
    assert counted == []
    texts[500:520] = [SPECIAL] * 20
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    result = prepare(path, tmp_path / "second", bpe, "--specials", "error")
    assert result.exit_code == 3
    assert list(skipped(tmp_path / "second")) == [f"in.jsonl:{row}" for row in range(501, 521)]
    assert 1 <= len(counted) <= 3  # once a block
