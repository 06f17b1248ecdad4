"""Texts of every kind through `prep tokens`: right documents, or a refusal with file and line."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.token_commands import Alone, prepare, skipped, stored
from tests.tokenizers_made import make_bpe

LINES = [b'{"text": "one"}', b'{"text": "two dogs"}', b'{"text": "3"}', b'{"text": ""}']
LINES += [b'{"text": "five \\u00e9"}']
TEXTS = ["one", "two dogs", "3", "", "five é"]


@pytest.fixture(scope="module")
def bpe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bpe(tmp_path_factory.mktemp("bpe"))


def zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


PACKERS: Mapping[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}


def taken(out: Path, bpe: Path) -> list[tuple[str, str]]:
    """Return key and text of every document, decoded; each ends with EOS."""
    alone = Alone(bpe)
    documents = stored(out)
    assert all(ids[-1] == alone.id_of("<|endoftext|>") for _, ids in documents)
    assert all(alone.ids(alone.text(ids[:-1])) == ids[:-1] for _, ids in documents)
    return [(key, alone.text(ids[:-1])) for key, ids in documents]


def texts_of(tmp_path: Path, bpe: Path, name: str, data: bytes, *words: str) -> list[str]:
    """Prepare one file, of which nothing may be refused."""
    (tmp_path / name).write_bytes(data)
    result = prepare(tmp_path / name, tmp_path / "out", bpe, *words)
    assert result.exit_code == 0, result.stderr
    assert skipped(tmp_path / "out") == {}
    return [text for _, text in taken(tmp_path / "out", bpe)]


def refused(tmp_path: Path, bpe: Path, name: str, data: bytes, *words: str) -> str:
    """Prepare one file that gives nothing; return the message."""
    (tmp_path / name).write_bytes(data)
    result = prepare(tmp_path / name, tmp_path / "out", bpe, *words)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert not (tmp_path / "out/manifest.json").exists()
    return result.stderr


@pytest.mark.parametrize(
    ("name", "data", "texts"),
    [
        ("plain.jsonl", b"\n".join(LINES), TEXTS),
        ("blank.jsonl", b"\n\n" + b"\n \n".join(LINES) + b"\n\n", TEXTS),
        ("crlf.jsonl", b"\r\n".join(LINES) + b"\r\n", TEXTS),
        ("bom.jsonl", b"\xef\xbb\xbf" + b"\n".join(LINES), TEXTS),
        ("utf16.jsonl", "\ufeff".encode("utf-16-le") + b"\n".join(LINES).decode().encode("utf-16-le"), TEXTS),  # noqa: E501
        ("nul.jsonl", b'{"text": "a\\u0000b"}', ["a\0b"]),
        ("noncharacters.jsonl", b'{"text": "\\ufdd0 \\udbff\\udfff"}', ["\ufdd0 \U0010ffff"]),
        ("separators.jsonl", '{"text": "a\u2028b\x85c"}'.encode(), ["a\u2028b\x85c"]),
        ("types.jsonl", b'{"text":"a","n":1}\n{"n":"x","text":"b"}\n{"text":"c","n":[]}', [*"abc"]),
        ("twice.jsonl", b'{"text": "a", "n": 1, "n": 2, "o": {"x": 1, "x": 2}}', ["a"]),
        ("plain.txt", b"one\r\ntwo\n\n\nthree", ["one\r\ntwo\n\n\nthree"]),
        ("bom.txt", b"\xef\xbb\xbfid,name", ["id,name"]),
        ("utf16.txt", "\ufeffgr\u00f6\u00dfe".encode("utf-16-be"), ["größe"]),
        ("nul.txt", b"a\0b", ["a\0b"]),
        ("nfd.txt", "e\u0301 \u00e9".encode(), ["e\u0301 \u00e9"]),
        ("empty_lines.txt", b"1" + b"\n" * 5000, ["1" + "\n" * 5000]),
        ("special.md", b"say <|endoftext|> or <|pad|>", ["say <|endoftext|> or <|pad|>"]),
        ("unbroken.txt", b"'s" * 20_000 + b"0" * 20_000, ["'s" * 20_000 + "0" * 20_000]),
    ],
)  # fmt: skip
def test_texts_arrive_to_the_letter(
    tmp_path: Path, bpe: Path, name: str, data: bytes, texts: list[str]
) -> None:
    assert texts_of(tmp_path, bpe, name, data) == texts


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("array.jsonl", b'[{"text": "a"}]', "array.jsonl:1: a list, not an object"),
        ("pretty.json", b'{\n "text": "a"\n}', "one JSON object over several lines"),
        ("commas.jsonl", b'{"text": "a"},\n{"text": "b"},\n', "commas.jsonl:1: broken JSON at"),
        ("two.jsonl", b'{"text": "a"} {"text": "b"}\n', "two.jsonl:1: broken JSON at column 15"),
        ("cr.jsonl", b"\r".join(LINES), "cr.jsonl:1: broken JSON at column"),
        ("null.jsonl", b'{"text": null}', "null.jsonl:1: 'text' is null"),
        ("number.jsonl", b'\n{"text": 1}', "number.jsonl:2: 'text' is a number"),
        ("key.jsonl", b'{"body": "a", "id": 1}', "key.jsonl:1: no key 'text'; the record has 'body', 'id'"),  # noqa: E501
        ("twice.jsonl", b'{"text": "a", "text": "b"}', "twice.jsonl:1: the key 'text' stands twice in one object"),  # noqa: E501
        ("half.jsonl", b'{"text": "\\ud800"}', "half.jsonl:1: a lone surrogate, U+D800"),
        ("bad.jsonl", b'{"text": "a\xe9b"}', "bad.jsonl:1: not valid UTF-8: invalid continuation"),
        ("empty.txt", b"", "nothing in its 1 items"),
        ("gbk.txt", b"a\xca\xfd", "gbk.txt: not valid UTF-8: invalid continuation byte (0xca) at byte 1"),  # noqa: E501
        ("greek.csv", b"text\n\xcb\xe1", "not valid UTF-8"),
        ("columns.csv", b"a,b\n1,2\n", "no column 'text'; the columns are 'a', 'b'"),
        ("empty.gz", b"", "truncated: an empty file"),
        ("cut.jsonl.gz", gzip.compress(b"\n".join(LINES) * 50, mtime=0)[:-9], "truncated"),
        ("tail.jsonl.gz", gzip.compress(LINES[0], mtime=0) + b"GARBAGE", "followed by something"),
        ("cut.parquet", b"PAR1 and no more", "cut.parquet: "),
    ],
)  # fmt: skip
def test_what_is_no_text_is_refused_with_file_and_line(
    tmp_path: Path, bpe: Path, name: str, data: bytes, said: str
) -> None:
    assert said in refused(tmp_path, bpe, name, data)


def test_the_lines_around_a_broken_one_are_kept(tmp_path: Path, bpe: Path) -> None:
    lines = [*LINES[:2], b'{"text": "3', *LINES[3:]]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    result = prepare(tmp_path / "a.jsonl", tmp_path / "out", bpe)
    assert result.exit_code == 3
    reasons = {"a.jsonl:3": "broken JSON at column 10: Unterminated string"}
    assert skipped(tmp_path / "out") == reasons
    keys = [f"a.jsonl@{len(b''.join(lines[:n])) + n}" for n in (0, 1, 3, 4)]
    kept = [*TEXTS[:2], *TEXTS[3:]]
    assert taken(tmp_path / "out", bpe) == list(zip(keys, kept, strict=True))


def test_every_bad_record_of_a_large_file_is_named_and_all_others_are_there(
    tmp_path: Path, bpe: Path
) -> None:
    # Over 8 MiB, so that it is cut into several items.
    lines = [json.dumps({"text": f"record {n}", "fill": "x" * 2000}) for n in range(1, 4401)]
    for number in (1, 2222, 3333, 4400):
        lines[number - 1] = f"broken {number}"
    (tmp_path / "large.jsonl").write_text("\n".join(lines))
    assert (tmp_path / "large.jsonl").stat().st_size > 1 << 23
    words = ["--shard-size", "2MB", "--workers", "2", "--max-skipped", "4"]
    result = prepare(tmp_path / "large.jsonl", tmp_path / "out", bpe, *words)
    assert result.exit_code == 0, result.stderr
    assert list(skipped(tmp_path / "out")) == [f"large.jsonl:{n}" for n in (1, 2222, 3333, 4400)]
    found = [text for _, text in taken(tmp_path / "out", bpe)]
    assert found == [f"record {n}" for n in range(1, 4401) if n not in {1, 2222, 3333, 4400}]


@pytest.mark.parametrize("ending", PACKERS)
def test_every_member_of_a_compressed_file_is_taken(tmp_path: Path, bpe: Path, ending: str) -> None:
    pack = PACKERS[ending]
    data = pack(b"\n".join(LINES[:2]) + b"\n") + pack(b"\n".join(LINES[2:]))
    assert texts_of(tmp_path, bpe, f"a.jsonl.{ending}", data) == TEXTS


@pytest.mark.parametrize("ending", PACKERS)
def test_a_truncated_file_gives_nothing_and_the_others_are_done(
    tmp_path: Path, bpe: Path, ending: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    whole = PACKERS[ending](b"\n".join(LINES * 200))
    (source / f"b.jsonl.{ending}").write_bytes(whole[: len(whole) * 3 // 4])
    (source / "a.txt").write_bytes(b"before")
    (source / "c.jsonl").write_bytes(b"\n".join(LINES))
    result = prepare(source, tmp_path / "out", bpe)
    assert result.exit_code == 3
    assert "truncated" in skipped(tmp_path / "out")[f"b.jsonl.{ending}"]
    assert [text for _, text in taken(tmp_path / "out", bpe)] == ["before", *TEXTS]


def test_a_file_that_names_no_compression_is_read_by_its_content(tmp_path: Path, bpe: Path) -> None:
    assert texts_of(tmp_path, bpe, "a.jsonl", gzip.compress(b"\n".join(LINES))) == TEXTS
    padded = gzip.compress(b"\n".join(LINES)) + bytes(512)
    (tmp_path / "out").rename(tmp_path / "first")
    assert texts_of(tmp_path, bpe, "b.jsonl.gz", padded) == TEXTS


def test_other_encodings_are_read_when_named_and_faults_replaced_on_request(
    tmp_path: Path, bpe: Path
) -> None:
    chinese = "数据".encode("gbk")
    assert texts_of(tmp_path, bpe, "a.txt", chinese, "--encoding", "gbk") == ["数据"]
    (tmp_path / "out").rename(tmp_path / "first")
    wanted = [chinese.decode(errors="replace")]
    assert texts_of(tmp_path, bpe, "a.txt", chinese, "--errors", "replace") == wanted
    (tmp_path / "out").rename(tmp_path / "second")
    half = b'{"text": "\\ud800x"}'
    assert texts_of(tmp_path, bpe, "a.jsonl", half, "--errors", "replace") == ["\ufffdx"]


def test_csv_fields_keep_their_newlines_and_quotes(tmp_path: Path, bpe: Path) -> None:
    data = b'id,text\r\n1,"two\nlines, ""quoted"""\r\n\r\n2,plain\r\n'
    assert texts_of(tmp_path, bpe, "a.csv", data) == ['two\nlines, "quoted"', "plain"]
    assert next(key for key, _ in taken(tmp_path / "out", bpe)) == "a.csv:1"


def test_lines_mode_takes_a_document_a_line(tmp_path: Path, bpe: Path) -> None:
    data = "one\r\n\ntwo\u2028two\n\x0bthree\rthree".encode()
    found = texts_of(tmp_path, bpe, "a.txt", data, "--lines")
    assert found == ["one", "two\u2028two", "\x0bthree\rthree"]
    assert [key for key, _ in taken(tmp_path / "out", bpe)] == ["a.txt@0", "a.txt@6", "a.txt@16"]
