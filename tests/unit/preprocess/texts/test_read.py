"""Reading texts: every kind of file, compression and encoding, and what each fault is called."""

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.ipc  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253 - a test may load what it compares with
import pytest
import zstandard  # noqa: TID253 - a test may load what it compares with

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item
from preprocess.texts.read import TextOptions, list_texts, read_documents

RECORDS = [{"text": "one", "id": 1}, {"text": "zwei\n", "id": 2}, {"text": "trois é 😀", "id": 3}]
LINES = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in RECORDS).encode()
TEXTS = [record["text"] for record in RECORDS]


class Found:
    """All that one file gave."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.texts: list[str] = []
        self.pairs: list[str] = []
        self.metadata: list[Any] = []
        self.places: list[int] = []
        self.errors: dict[str, str] = {}
        chosen = TextOptions(**options)
        listing = list_texts(path, chosen)
        for items in listing.splits.values():
            for item in items:
                self._take(listing.root, item, chosen)

    def _take(self, root: Path, item: Item, options: TextOptions) -> None:
        for documents in read_documents(ItemFiles(root), item, options):
            self.texts += documents.texts.to_pylist()
            self.places += documents.places.tolist()
            self.pairs += documents.pairs.to_pylist() if documents.pairs is not None else []
            if documents.metadata is not None:
                self.metadata += [json.loads(text) for text in documents.metadata.to_pylist()]
            self.errors |= {error.key: error.reason for error in documents.errors}


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(SampleError) as caught:
        Found(path, **options)
    assert caught.value.key == path.name
    return caught.value.reason


# --------------------------------------------------------------------------------- compression

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_every_member_of_a_compressed_file_is_read(tmp_path: Path, ending: str) -> None:
    pack = COMPRESSORS[ending]
    path = write(tmp_path / f"a.jsonl{ending}", pack(LINES) + pack(b"") + pack(LINES))
    assert Found(path).texts == TEXTS * 2


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_compression_is_recognized_by_content(tmp_path: Path, ending: str) -> None:
    assert Found(write(tmp_path / "a.jsonl", COMPRESSORS[ending](LINES))).texts == TEXTS
    assert Found(write(tmp_path / f"b.jsonl{ending}", LINES)).texts == TEXTS


@pytest.mark.parametrize("ending", COMPRESSORS)
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.99])
def test_a_truncated_compressed_file_is_refused(tmp_path: Path, ending: str, kept: float) -> None:
    data = COMPRESSORS[ending](os.urandom(30_000).hex().encode())
    path = write(tmp_path / f"a.txt{ending}", data[: int(len(data) * kept)])
    assert "truncated" in refusal(path)


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_a_compressed_file_cut_within_its_second_member_is_refused_after_its_first(
    tmp_path: Path, ending: str
) -> None:
    data = COMPRESSORS[ending](LINES)
    for cut in (1, 3, 8, len(data) - 1):
        path = write(tmp_path / f"a.jsonl{ending}", data + data[:cut])
        assert "truncated" in (reason := refusal(path)) or "something else" in reason


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_garbage_after_compressed_data_is_refused(tmp_path: Path, ending: str) -> None:
    data = COMPRESSORS[ending](LINES)
    reason = refusal(write(tmp_path / f"a.jsonl{ending}", data + b"GARBAGE"))
    assert f"followed by something else at byte {len(data):,} of the file" in reason


@pytest.mark.parametrize("ending", [".gz", ".xz"])
@pytest.mark.parametrize("count", [4, 512, 200_000])
def test_zero_bytes_may_pad_a_compressed_file(tmp_path: Path, ending: str, count: int) -> None:
    data = COMPRESSORS[ending](LINES)
    path = write(tmp_path / f"a.jsonl{ending}", data + bytes(count) + data + bytes(count))
    assert Found(path).texts == TEXTS * 2


@pytest.mark.parametrize("ending", COMPRESSORS)
def test_damaged_compressed_data_are_refused(tmp_path: Path, ending: str) -> None:
    pack = COMPRESSORS[ending]
    if ending == ".zst":
        pack = zstandard.ZstdCompressor(write_checksum=True).compress
    data = bytearray(pack(os.urandom(3_000).hex().encode()))
    data[len(data) // 2] ^= 0x10
    assert "damaged" in refusal(write(tmp_path / f"a.txt{ending}", bytes(data)))


def test_a_skippable_frame_is_no_text(tmp_path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
    data = skippable + zstandard.ZstdCompressor().compress(LINES)
    assert Found(write(tmp_path / "a.jsonl.zst", data)).texts == TEXTS


def test_much_text_in_few_compressed_bytes_is_whole(tmp_path: Path) -> None:
    for ending, pack in COMPRESSORS.items():
        path = write(tmp_path / f"a.txt{ending}", pack(b"^" * 5_000_000))
        assert [len(text) for text in Found(path).texts] == [5_000_000]
        path.unlink()


def test_an_empty_file_with_the_name_of_a_compressed_one_is_refused(tmp_path: Path) -> None:
    assert "truncated" in refusal(write(tmp_path / "a.jsonl.gz", b""))


# ----------------------------------------------------------------------------------- encodings


@pytest.mark.parametrize("name", ["utf-8-sig", "utf-16", "utf-32", "utf-16-be-marked"])
@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".csv"])
def test_byte_order_marks_name_the_encoding_and_are_removed(
    tmp_path: Path, name: str, ending: str
) -> None:
    text = {".txt": "é😀\n", ".jsonl": LINES.decode(), ".csv": "text\né😀\n"}[ending]
    data = text.encode(name) if "marked" not in name else ("\ufeff" + text).encode("utf-16-be")
    found = Found(write(tmp_path / f"a{ending}", data))
    assert found.texts == {".txt": ["é😀\n"], ".jsonl": TEXTS, ".csv": ["é😀"]}[ending]


def test_another_encoding_is_read_when_it_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "中文".encode("gbk"))
    assert "not valid UTF-8: invalid continuation byte (0xd6) at byte 0" in refusal(path)
    assert Found(path, encoding="gbk").texts == ["中文"]
    assert "�" in Found(path, errors="replace").texts[0]


@pytest.mark.parametrize("encoding", ["utf-16-le", "gbk", "cp1252"])
def test_bytes_that_are_not_in_the_named_encoding_are_refused_with_their_offset(
    tmp_path: Path, encoding: str
) -> None:
    bad = {"utf-16-le": b"\x00\xdc", "gbk": b"\xff", "cp1252": b"\x81"}[encoding]
    data = ("ab" * 3_000_000).encode(encoding) + bad + "ab".encode(encoding)
    path = write(tmp_path / "a.txt", data)
    assert f"at byte {len(data) - len(bad + 'ab'.encode(encoding)):,}" in refusal(
        path, encoding=encoding
    )
    assert "\ufffd" in Found(path, encoding=encoding, errors="replace").texts[0]


def test_utf16_without_a_mark_is_not_taken_for_text_with_nul(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "some text".encode("utf-16-le"))
    assert "UTF-16 without a byte order mark" in refusal(path)
    assert Found(path, encoding="utf-16-le").texts == ["some text"]
    assert Found(write(tmp_path / "b.txt", b"a\0b")).texts == ["a\0b"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_an_encoding_that_begins_with_a_mark_is_refused_where_there_is_none(
    tmp_path: Path, encoding: str
) -> None:
    path = write(tmp_path / "a.txt", b"a,b\n1,Caf\xe9\n")
    assert f"not valid {encoding.upper()}: " in refusal(path, encoding=encoding)


@pytest.mark.parametrize("options", [{"encoding": "rot13"}, {"encoding": "no such"}])
def test_what_is_no_text_encoding_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no text encoding of that name"):
        TextOptions(**options)


@pytest.mark.parametrize(
    "options",
    [{"errors": "ignore"}, {"text_key": ""}, {"pair_key": ""}, {"metadata_keys": ("a", "a")}],
)
def test_options_outside_their_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        TextOptions(**options)


# --------------------------------------------------------------------------------- plain files


def test_a_plain_file_is_one_document_as_it_is(tmp_path: Path) -> None:
    text = "a\r\nb\u2028c\r\n\n\0e\u0301"
    found = Found(write(tmp_path / "a.md", text.encode()))
    assert (found.texts, found.places) == ([text], [0])


def test_an_empty_file_is_no_document(tmp_path: Path) -> None:
    assert Found(write(tmp_path / "a.txt", b"")).texts == []
    assert Found(write(tmp_path / "b.txt", b"\xef\xbb\xbf")).texts == []
    assert Found(write(tmp_path / "c.jsonl", b"")).texts == []


def test_lines_end_at_line_feeds_only_and_empty_ones_are_no_documents(tmp_path: Path) -> None:
    data = "a\u2028b\x0bc\r\n\n \nd\re\r\n\r\nlast\r".encode()
    found = Found(write(tmp_path / "a.txt", data), lines=True)
    assert found.texts == ["a\u2028b\x0bc", " ", "d\re", "last\r"]
    assert [data[place : place + 1] for place in found.places] == [b"a", b" ", b"d", b"l"]


def test_a_line_that_is_not_utf8_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"\n\na\n\xffb\nc\n")
    found = Found(path, lines=True)
    assert found.texts == ["a", "c"]
    assert found.errors == {"a.txt:4": "not valid UTF-8: invalid start byte (0xff) at byte 4"}
    assert Found(path, lines=True, errors="replace").texts == ["a", "\ufffdb", "c"]


def test_a_file_known_to_be_something_else_is_refused_by_what_it_is(tmp_path: Path) -> None:
    assert "a Parquet file" in refusal(write(tmp_path / "a.jsonl", b"PAR1" + bytes(9)))
    assert "a ZIP archive" in refusal(write(tmp_path / "b.txt", b"PK\x03\x04" + bytes(9)))


def test_a_file_that_changed_since_it_was_listed_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"abc")
    listing = list_texts(path, TextOptions())
    path.write_bytes(b"abcd")
    with pytest.raises(SampleError, match=r"a\.txt: changed while it was prepared: 4 bytes"):
        list(read_documents(ItemFiles(listing.root), listing.splits["train"][0], TextOptions()))
    path.write_bytes(b"abd")
    with pytest.raises(SampleError, match=r"a\.txt: changed while it was prepared: it was written"):
        list(read_documents(ItemFiles(listing.root), listing.splits["train"][0], TextOptions()))


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.txt.gz"])
def test_a_file_that_is_written_to_while_it_is_read_is_refused(tmp_path: Path, name: str) -> None:
    lines = b"".join(b'{"text": "%d"}\n' % number for number in range(300_000))
    data = gzip.compress(lines) if name.endswith("gz") else b"text\n" + lines
    path = write(tmp_path / name, lines if name == "a.jsonl" else data)
    options = TextOptions(lines="txt" in name)
    listing = list_texts(path, options)
    documents = read_documents(ItemFiles(listing.root), listing.splits["train"][0], options)
    next(documents)
    with path.open("r+b") as file:
        file.write(path.read_bytes()[:1])  # the same bytes, at another time
    with pytest.raises(SampleError, match="it was written to since it was listed"):
        list(documents)


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    for name in ("a.txt", "a.jsonl", "a.csv", "a.parquet", "a"):
        with pytest.raises(SampleError, match="cannot be read: No such file"):
            list(read_documents(ItemFiles(tmp_path), Item(name, 3, 0), TextOptions()))


# ---------------------------------------------------------------------------------- JSON lines


def bad_line(tmp_path: Path, line: str | bytes, **options: Any) -> str:
    data = line.encode() if isinstance(line, str) else line
    path = write(tmp_path / "a.jsonl", b'{"text":"before"}\n\n' + data + b'\n{"text":"after"}\n')
    found = Found(path, **options)
    assert found.texts == ["before", "after"]
    assert list(found.errors) == ["a.jsonl:3"]
    return found.errors["a.jsonl:3"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text":null}', "'text' is null"),
        ('{"a":1,"b":2}', "no key 'text'; the record has 'a', 'b'"),
        ("{}", "no key 'text'; the record has none"),
        ('{"text":5}', "'text' is a number, not a string"),
        ('{"text":[]}', "'text' is a list, not a string"),
        ('{"text":true}', "'text' is a truth value, not a string"),
        ('["a"]', "a list, not an object; write one object a line"),
        ('"a"', "a string, not an object; write one object a line"),
        ('{"text":"a', "broken JSON at column 9: Unterminated string"),
        ('{"text":"a"}{"text":"b"}', "broken JSON at column 13: Extra data"),
        ('{"text":"a"},', "broken JSON at column 13: Extra data"),
        ('{"text":"\\ud800x"}', "a lone surrogate, U+D800, in 'text' at character 1"),
        (b'{"text":"\xffx"}', "not valid UTF-8: invalid start byte (0xff) at byte 28"),
        ('{"text":"a\tb"}', "broken JSON at column 11: Invalid control character at"),
        ('{"text":"a"}\0', "broken JSON at column 13: Extra data"),
        ('{"x":' + "[" * 9000 + "]" * 9000 + ',"text":null}', "JSON that is nested too deeply"),
        ('{"x":' + "9" * 5000 + ',"text":null}', "'text' is null"),
    ],
)
def test_a_bad_record_is_named_and_the_others_are_kept(
    tmp_path: Path, line: str | bytes, reason: str
) -> None:
    assert bad_line(tmp_path, line) == reason


def test_faults_in_the_text_are_replaced_on_request(tmp_path: Path) -> None:
    data = b'{"text":"\\ud800x"}\n{"text":"\xffy"}\n{"text":"\\ud83d\\ude00"}\n'
    found = Found(write(tmp_path / "a.jsonl", data), errors="replace")
    assert found.texts == ["\ufffdx", "\ufffdy", "😀"]


def test_a_record_of_several_megabytes_is_whole(tmp_path: Path) -> None:
    long = "word\n" * 2_000_000
    path = write(tmp_path / "a.jsonl", json.dumps({"text": long}).encode() + b"\n" + LINES)
    assert Found(path).texts == [long, *TEXTS]
    assert Found(path, json_values=True).texts[1] == '"one"'


def test_errors_in_the_middle_of_a_large_file_have_their_true_line(tmp_path: Path) -> None:
    line = json.dumps({"text": "x" * 100}).encode() + b"\n"
    count = 3 * (1 << 23) // len(line)
    data = bytearray(line * count)
    for number in (10, count // 2, count - 3):
        data[number * len(line)] = ord("?")
    path = write(tmp_path / "a.jsonl", bytes(data))
    assert len(list_texts(path, TextOptions()).splits["train"]) == 3
    found = Found(path)
    assert list(found.errors) == [f"a.jsonl:{n + 1}" for n in (10, count // 2, count - 3)]
    assert len(found.texts) == count - 3
    assert found.places[-1] == len(data) - len(line)


def test_a_line_longer_than_a_range_is_read_once(tmp_path: Path) -> None:
    data = LINES + json.dumps({"text": "y" * 20_000_000}).encode() + b"\n" + LINES
    path = write(tmp_path / "a.jsonl", data)
    assert len(list_texts(path, TextOptions()).splits["train"]) == 3
    assert [len(text) for text in Found(path).texts] == [3, 5, 9, 20_000_000, 3, 5, 9]


def test_one_json_value_over_several_lines_is_refused_as_a_whole(tmp_path: Path) -> None:
    records = json.dumps(RECORDS, indent=1).encode()
    assert "one JSON list over several lines" in refusal(write(tmp_path / "a.json", records))
    record = json.dumps(RECORDS[0], indent=1).encode()
    assert "one JSON object over several lines" in refusal(write(tmp_path / "b.json", record))


def test_dotted_keys_pairs_and_metadata_are_kept_of_each_record(tmp_path: Path) -> None:
    records = [
        {"a": {"b": "x", "c": None}, "q": "y", "n": 2**70, "m": '"\\\n\x01'},
        {"a": {"b": "z"}, "q": "w", "n": 1.5, "m": [1, float("nan")]},
    ]
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    keys = ("n", "m", "a.c")
    found = Found(
        write(tmp_path / "a.jsonl", data), text_key="a.b", pair_key="q", metadata_keys=keys
    )
    assert (found.texts, found.pairs) == (["x", "z"], ["y", "w"])
    assert found.metadata == [
        {"n": 2**70, "m": '"\\\n\x01', "a.c": None},
        {"n": 1.5, "m": [1, None], "a.c": None},
    ]


def test_missing_parts_of_a_dotted_key_are_named(tmp_path: Path) -> None:
    data = b'{"a":"s"}\n{"a":{"c":1}}\n'
    found = Found(write(tmp_path / "a.jsonl", data), text_key="a.b")
    assert list(found.errors.values()) == [
        "no key 'a.b': 'a' is a string",
        "no key 'a.b'; 'a' has 'c'",
    ]


def test_a_missing_second_text_refuses_the_record(tmp_path: Path) -> None:
    found = Found(write(tmp_path / "a.jsonl", LINES), pair_key="answer")
    assert found.errors["a.jsonl:1"] == "no key 'answer'; the record has 'text', 'id'"


def test_values_are_given_as_json_on_request(tmp_path: Path) -> None:
    data = '{"m":[{"role":"user","content":"é"}]}\n{"m":null}\n{"m":"s"}\n'.encode()
    found = Found(write(tmp_path / "a.jsonl", data), text_key="m", json_values=True)
    assert found.texts == ['[{"role":"user","content":"é"}]', '"s"']
    assert found.errors == {"a.jsonl:2": "'m' is null"}


# --------------------------------------------------------------------------- Parquet and Arrow


def as_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=2)


def as_arrow_file(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def as_arrow_stream(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


TABLES = [
    pytest.param(as_parquet, "a.parquet", id="parquet"),
    pytest.param(as_arrow_file, "a.feather", id="arrow file"),
    pytest.param(as_arrow_stream, "a.arrow", id="arrow stream"),
]


@pytest.mark.parametrize(("save", "name"), TABLES)
def test_columns_of_every_text_type_are_read(tmp_path: Path, save: Any, name: str) -> None:
    kinds = [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())]
    kinds += [pa.string_view()] if save is not as_parquet else []
    for kind in kinds:
        column = pa.array(["a\0", "é", "", None, "a\0"], pa.string()).cast(kind)
        save(pa.table({"text": column, "x": [1, 2, 3, 4, 5]}), tmp_path / name)
        found = Found(tmp_path / name, metadata_keys=("x",))
        assert (found.texts, found.places) == (["a\0", "é", "", "a\0"], [1, 2, 3, 5])
        assert found.metadata == [{"x": 1}, {"x": 2}, {"x": 3}, {"x": 5}]
        assert found.errors == {f"{name}:4": "'text' is null"}


@pytest.mark.parametrize(("save", "name"), TABLES)
def test_rows_that_are_not_utf8_are_named_or_replaced(tmp_path: Path, save: Any, name: str) -> None:
    bad = pa.array([b"a", b"b\xc3", b"c"]).view(pa.string())
    save(pa.table({"text": bad}), tmp_path / name)
    found = Found(tmp_path / name)
    assert found.texts == ["a", "c"]
    reason = "'text' is not valid UTF-8: unexpected end of data (0xc3) at byte 1 of the text"
    assert found.errors == {f"{name}:2": reason}
    assert Found(tmp_path / name, errors="replace").texts == ["a", "b\ufffd", "c"]


@pytest.mark.parametrize(("save", "name"), TABLES)
def test_columns_that_are_missing_or_no_text_are_named(
    tmp_path: Path, save: Any, name: str
) -> None:
    save(pa.table({"a": [["x"]], "n": [1], "s": [{"b": "y"}]}), tmp_path / name)
    assert "no column 'text'; the columns are 'a', 'n', 's'" in refusal(tmp_path / name)
    assert "column 'n' is int64, not text" in refusal(tmp_path / name, text_key="n")
    assert "column 'a' is list<" in refusal(tmp_path / name, text_key="a")
    assert "no column 's.c'; 's' has 'b'" in refusal(tmp_path / name, text_key="s.c")
    assert "no column 'n.c': 'n' is int64" in refusal(tmp_path / name, text_key="n.c")


@pytest.mark.parametrize(("save", "name"), TABLES)
def test_struct_columns_and_names_with_dots_are_found(tmp_path: Path, save: Any, name: str) -> None:
    structs = pa.array([{"b": "in", "c": "no"}, None], pa.struct({"b": pa.string(), "c": "str"}))
    save(pa.table({"a": structs, "d.e": ["dot", "ted"]}), tmp_path / name)
    found = Found(tmp_path / name, text_key="a.b", pair_key="d.e")
    assert (found.texts, found.pairs) == (["in"], ["dot"])
    assert found.errors == {f"{name}:2": "'a.b' is null"}


@pytest.mark.parametrize(("save", "name"), TABLES)
def test_lists_and_metadata_of_every_type_become_json(tmp_path: Path, save: Any, name: str) -> None:
    messages = [[{"role": "user", "content": "é"}], []]
    table = pa.table({
        "messages": messages,
        "f": [1.5, float("nan")],
        "t": pa.array([0, None], pa.timestamp("ns")),
        "l": [["a"], None],
        "o": [True, False],
    })  # fmt: skip
    save(table, tmp_path / name)
    found = Found(
        tmp_path / name, text_key="messages", json_values=True, metadata_keys=("f", "t", "l", "o")
    )
    assert [json.loads(text) for text in found.texts] == messages
    assert found.metadata == [
        {"f": 1.5, "t": "1970-01-01 00:00:00.000000000", "l": ["a"], "o": True},
        {"f": None, "t": None, "l": None, "o": False},
    ]


@pytest.mark.parametrize(("save", "name"), TABLES)
def test_a_table_without_rows_is_no_document(tmp_path: Path, save: Any, name: str) -> None:
    save(pa.table({"a": pa.array([], pa.null())}), tmp_path / name)
    assert Found(tmp_path / name).texts == []


@pytest.mark.parametrize(("save", "name"), TABLES)
def test_a_truncated_table_is_refused(tmp_path: Path, save: Any, name: str) -> None:
    save(pa.table({"text": ["word" * 100] * 9}), tmp_path / name)
    data = (tmp_path / name).read_bytes()
    assert "cannot be read" in refusal(write(tmp_path / name, data[: len(data) * 2 // 3]))


@pytest.mark.parametrize(("save", "name"), TABLES)
def test_tables_may_be_compressed_as_a_whole(tmp_path: Path, save: Any, name: str) -> None:
    save(pa.table({"text": TEXTS}), tmp_path / name)
    path = write(tmp_path / f"{name}.gz", gzip.compress((tmp_path / name).read_bytes()))
    assert Found(path).texts == TEXTS


@pytest.mark.parametrize(("save", "name"), TABLES)
def test_large_tables_come_in_blocks_with_the_right_rows(
    tmp_path: Path, save: Any, name: str
) -> None:
    texts = [f"{number} " * 400 for number in range(9000)]
    table = pa.table({"text": texts, "x": range(9000)})
    if save is as_parquet:
        pq.write_table(table, tmp_path / name, row_group_size=1000, compression="none")
        assert len(list_texts(tmp_path / name, TextOptions()).splits["train"]) == 2
    else:
        with (pa.ipc.new_file if save is as_arrow_file else pa.ipc.new_stream)(
            tmp_path / name, table.schema
        ) as writer:
            writer.write_table(table)
    found = Found(tmp_path / name)
    assert found.texts == texts
    assert found.places == list(range(1, 9001))


def test_a_wrong_page_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"text": ["abcdefgh" * 50]})
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, path, write_page_checksum=True, **options)
    data = path.read_bytes()
    place = data.index(b"abcdefgh")
    assert "crc" in refusal(write(path, data[:place] + b"X" + data[place + 1 :])).lower()


def test_row_groups_that_went_away_are_named(tmp_path: Path) -> None:
    as_parquet(pa.table({"text": TEXTS}), tmp_path / "a.parquet")
    status = (tmp_path / "a.parquet").stat()
    item = Item("a.parquet", status.st_size, status.st_mtime_ns, stop=9)
    with pytest.raises(SampleError, match="fewer row groups"):
        list(read_documents(ItemFiles(tmp_path), item, TextOptions()))


# ----------------------------------------------------------------------------------------- CSV


def test_csv_fields_are_read_with_quotes_newlines_and_blank_lines(tmp_path: Path) -> None:
    data = b'id,text\n1,plain\n\n2,"a ""q"", b\nline two"\n3,\n4,"\xc3\xa9"\n'
    found = Found(write(tmp_path / "a.csv", data), metadata_keys=("id",))
    assert found.texts == ["plain", 'a "q", b\nline two', "", "é"]
    assert found.places == [1, 2, 3, 4]
    assert found.metadata == [{"id": "1"}, {"id": "2"}, {"id": "3"}, {"id": "4"}]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_csv_rows_of_every_line_end_are_read(tmp_path: Path, end: bytes) -> None:
    data = end.join([b"text", b"null", b"NaN", b"007"])
    assert Found(write(tmp_path / "a.csv", data)).texts == ["null", "NaN", "007"]


def test_csv_rows_of_other_lengths_are_named_and_the_others_are_kept(tmp_path: Path) -> None:
    data = b"id,text\n1,a\n2,b,c\n\n3\n4,d\n"
    found = Found(write(tmp_path / "a.csv", data))
    assert (found.texts, found.places) == (["a", "d"], [1, 4])
    assert found.errors == {
        "a.csv:2": "3 fields, and the header has 2",
        "a.csv:3": "1 fields, and the header has 2",
    }


def test_csv_rows_that_are_not_utf8_are_named_in_the_order_of_rows(tmp_path: Path) -> None:
    found = Found(write(tmp_path / "a.csv", b"text\na\n\xff\nb,c\n\xfe\n"))
    assert list(found.errors) == ["a.csv:2", "a.csv:3", "a.csv:4"]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (b'1,"Pedro "the" legend"\n', "line 3: a quote inside a quoted field"),
        (b'1,5" pipe,\n"2"x,b\n', "line 4: a quote inside a quoted field"),
        (b'1,"open\n2,b\n', "line 3: a quote that is never closed"),
    ],
)
def test_csv_with_quotes_that_are_not_paired_is_refused(
    tmp_path: Path, rows: bytes, reason: str
) -> None:
    assert reason in refusal(write(tmp_path / "a.csv", b"id,text\n0,fine\n" + rows))


def test_quotes_in_csv_fields_that_do_not_begin_with_one_are_letters(tmp_path: Path) -> None:
    data = b'i"d,text\n1,5" pipe\n2,37\'37.8"N ""\n3,"a "" b"\n4,""\n'
    found = Found(write(tmp_path / "a.csv", data), pair_key='i"d')
    assert found.texts == ['5" pipe', '37\'37.8"N ""', 'a " b', ""]
    assert found.pairs == ["1", "2", "3", "4"]


def test_csv_columns_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"id,txt,a,a\n1,2,3,4\n")
    assert "no column 'text'; the columns are 'id', 'txt', 'a', 'a'" in refusal(path)
    assert "2 columns are named 'a'" in refusal(path, text_key="a")
    assert "the header is not valid UTF-8" in refusal(write(path, b"te\xff,a\n1,2\n"))


def test_tsv_fields_end_at_tabs(tmp_path: Path) -> None:
    found = Found(write(tmp_path / "a.tsv", b'text\tid\na,b\t1\n"c\td"\t2\n'), pair_key="id")
    assert (found.texts, found.pairs) == (["a,b", "c\td"], ["1", "2"])


def test_large_csv_files_are_cut_between_rows_wherever_blocks_end(tmp_path: Path) -> None:
    texts = [f'{number},\n"{"x" * (number % 3000)}"' for number in range(6000)]
    rows = ['"' + text.replace('"', '""') + '"' for text in texts]
    data = ("text\n" + "\r\n".join(rows)).encode()
    found = Found(write(tmp_path / "a.csv.gz", gzip.compress(data, 1)))
    assert found.texts == texts
    assert found.places == list(range(1, 6001))


def test_a_csv_field_larger_than_a_block_is_whole(tmp_path: Path) -> None:
    text = "a,\n" * 4_000_000
    found = Found(write(tmp_path / "a.csv", f'text\n"{text}"\nb\n'.encode()))
    assert found.texts == [text, "b"]


def test_csv_without_rows_is_no_document(tmp_path: Path) -> None:
    for data in (b"", b"\n\n", b"id,text\n", b"id,text"):
        assert Found(write(tmp_path / "a.csv", data)).texts == []


def test_a_truncated_csv_is_refused(tmp_path: Path) -> None:
    data = gzip.compress(b"text\n" + os.urandom(9000).hex().encode())
    assert "truncated" in refusal(write(tmp_path / "a.csv.gz", data[:-20]))
