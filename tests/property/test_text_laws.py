"""Laws of reading texts: the fast reader is the exact one, and cutting a file changes nothing."""

import csv
import gzip
import io
import json
import re
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item
from preprocess.texts import lines as text_lines
from preprocess.texts.documents import Documents
from preprocess.texts.from_json import _read_exactly, _read_fast
from preprocess.texts.lines import Block, find_lines
from preprocess.texts.quotes import whole_records
from preprocess.texts.read import TextOptions, read_documents

TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", "\0", "\\", '"', "\u2028", "é", "😀", "2020-01-01"]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
RECORDS = st.fixed_dictionaries(
    {"text": TEXTS},
    optional={
        "b": TEXTS,
        "n": st.integers(-5, 2**65) | TEXTS,
        "x": VALUES,
        "a": st.just({"b": "q"}),
    },
)
OPTIONS = st.sampled_from(
    [
        TextOptions(),
        TextOptions(text_key="a.b"),
        TextOptions(pair_key="b"),
        TextOptions(metadata_keys=("n", "x")),
        TextOptions(metadata_keys=("b", "a.b", "n")),
        TextOptions(metadata_keys=("text", "text.b")),
        TextOptions(errors="replace"),
        TextOptions(json_values=True),
    ]
)
# fmt: off
PIECES = st.sampled_from([
    b"\n", b"\r\n", b"\r", b" ", b"{", b"}", b"[", b",", b":", b'"', b"\\", b"\0", b"\xff",
    b"\xef\xbb\xbf", b'"text":1', b'"text":null,', b'"text":"a",', b"NaN", b"1e999",
    b"01", b"\\ud800", b"\\udc00", b"\\ud83d\\ude00", b"\\u0000", b"\\x", b"\xed\xa0\x80", b"//",
    b"tru", b'{"text":"z"}',
])
# fmt: on


@st.composite
def json_lines(draw: st.DrawFn) -> bytes:
    """JSON lines, some with a few bytes of something else in them."""
    ascii_only = draw(st.booleans())
    end = draw(st.sampled_from(["\n", "\r\n", "\n\n"]))
    records = draw(st.lists(RECORDS, max_size=6))
    data = "".join(json.dumps(record, ensure_ascii=ascii_only) + end for record in records)
    found = bytearray(data.encode(errors="surrogatepass"))
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 5]))):
        start = draw(st.integers(0, len(found)))
        stop = draw(st.integers(start, min(len(found), start + 3)))
        found[start:stop] = draw(PIECES | st.binary(max_size=3))
    return bytes(found)


def shown(documents: Documents) -> tuple[Any, ...]:
    columns = (documents.texts, documents.pairs, documents.metadata)
    errors = [(error.key, error.reason) for error in documents.errors]
    return (
        *(None if column is None else column.to_pylist() for column in columns),
        documents.places.tolist(),
        errors,
    )


@settings(max_examples=250)
@given(json_lines(), OPTIONS)
@example(b'{"text":"a"}{"text":\n"b"}\n', TextOptions())
@example(b'{"text":"a"} {"text":"b"}\n\n{"x":[{}\n]}\n', TextOptions())
@example(b'{"text":"a"}\0}\n', TextOptions())
@example(b'{"text":"a","x":"\xed\xa0\x80"}\n', TextOptions())
def test_what_the_fast_reader_takes_the_exact_one_takes_alike(
    data: bytes, options: TextOptions
) -> None:
    block = Block(data, 7, partial(int, 1))
    lines = find_lines(data)
    fast = _read_fast(block, lines, options) if len(lines.starts) else None
    if fast is not None:
        assert shown(fast) == shown(_read_exactly(block, lines, "k", options))


def read(data: bytes, name: str, options: TextOptions, cuts: list[int] | None = None) -> Any:
    """Read a file through the public function: (text, place) of each, (key, reason) of errors."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_bytes(data)
        time = Path(folder, name).stat().st_mtime_ns
        edges = sorted({cut for cut in cuts or [] if 0 < cut < len(data)})
        texts, errors = [], []
        for start, stop in zip([0, *edges], [*edges, None], strict=True):
            item = Item(name, len(data), time, start=start, stop=stop)
            try:
                for documents in read_documents(ItemFiles(Path(folder)), item, options):
                    found = zip(documents.texts.to_pylist(), documents.places.tolist(), strict=True)
                    texts += list(found)
                    errors += [(error.key, error.reason) for error in documents.errors]
            except SampleError as error:
                return str(error)
        return texts, errors


def read_in_chunks(
    data: bytes, name: str, options: TextOptions, cuts: list[int], sizes: tuple[int, int]
) -> Any:
    """Read ranges of a file in chunks of so many bytes, to a line end that is so near."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines, "BLOCK_NBYTES", sizes[0])
        patch.setattr(text_lines, "_SOON_NBYTES", sizes[1])
        return read(data, name, options, cuts)


CHUNKS = st.tuples(st.sampled_from([1, 5, 40, 1 << 22]), st.sampled_from([1, 4, 1 << 16]))


@settings(max_examples=80)
@given(json_lines(), st.lists(st.integers(0, 200), max_size=5), CHUNKS)
def test_cutting_a_file_of_json_lines_changes_nothing(
    data: bytes, cuts: list[int], sizes: tuple[int, int]
) -> None:
    # Only the first range can tell one value over many lines; here it has a line to tell it by.
    text = data.removeprefix(b"\xef\xbb\xbf").strip(b"\r\n")
    assume(not cuts or max(1, min(cuts)) > data.find(text))
    options = TextOptions()
    found = read_in_chunks(data, "a.jsonl", options, cuts, sizes)
    assert found == read(data, "a.jsonl", options)


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"\xc3\xa9", b"\xff", b"xyz", b" "])),
    st.lists(st.integers(0, 60), max_size=5),
    CHUNKS,
    st.sampled_from(["refuse", "replace"]),
)
def test_cutting_a_file_of_lines_changes_nothing_and_the_lines_are_those_of_split(
    pieces: list[bytes], cuts: list[int], sizes: tuple[int, int], errors: str
) -> None:
    data = b"".join(pieces)
    options = TextOptions(lines=True, errors=errors)
    whole = read(data, "a.txt", options)
    assert read_in_chunks(data, "a.txt", options, cuts, sizes) == whole
    *full, last = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = [line.removesuffix(b"\r") for line in full] + [last]
    expected = [line.decode(errors="replace") for line in lines if line]
    if errors == "replace" or b"\xff" not in data:
        assert [text for text, _ in whole[0]] == expected
        assert whole[1] == []
    else:
        assert len(whole[0]) + len(whole[1]) == len(expected)


@settings(max_examples=100)
@given(json_lines())
def test_a_record_is_a_document_or_a_named_line_and_none_is_lost(data: bytes) -> None:
    found = read(data, "a.jsonl", TextOptions())
    if isinstance(found, str):
        assert "one JSON" in found or "UTF-16" in found or "whatever" in found
        return
    marked = data.removeprefix(b"\xef\xbb\xbf")
    numbers = [n for n, line in enumerate(marked.split(b"\n"), 1) if line.strip(b" \t\r")]
    places = [data.count(b"\n", 0, place) + 1 for _, place in found[0]]
    bad = [int(key.removeprefix("a.jsonl:")) for key, _ in found[1]]
    assert sorted(places + bad) == numbers
    assert places == sorted(places)
    assert bad == sorted(bad)


@settings(max_examples=100)
@given(st.binary(max_size=300), st.integers(0, 400), st.booleans())
def test_a_cut_gzip_file_is_refused_and_never_read_short(
    content: bytes, cut: int, twice: bool
) -> None:
    text = content.hex()
    data = gzip.compress(text.encode()) * (1 + twice)
    whole = [0] + [len(data)] * 1 + [len(data) // 2] * twice
    cut = min(cut, len(data))
    found = read(data[:cut], "a.txt.gz", TextOptions())
    if cut in whole and cut:
        expected = text * (1 + (twice and cut == len(data)))
        assert found == ([(expected, 0)] if expected else [], [])
    elif cut >= 3:
        assert "truncated" in found or "followed by something else" in found


@settings(max_examples=150)
@given(
    st.lists(
        st.sampled_from(['"', '""', ",", "\n", "\r\n", "a", "b,", ' "', '"x"', '"a,\n"', "é"])
    ),
    st.integers(1, 7),
)
def test_csv_is_read_as_the_strict_reader_of_python_does_or_refused_wherever_it_is_cut(
    pieces: list[str], size: int
) -> None:
    text = "t\n" + "".join(pieces)
    data = text.encode()
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    try:
        cut = b"".join(whole_records(iter(chunks), ",", "k", 1 << 20))
        uncut = list(whole_records(iter([data]), ",", "k", 1 << 20))
    except SampleError as error:
        with pytest.raises(SampleError, match=re.escape(str(error))):
            list(whole_records(iter([data]), ",", "k", 1 << 20))
        uncut = []
    else:
        assert cut == b"".join(uncut) == data
    try:
        rows = list(csv.reader(io.StringIO(text, ""), strict=True))
    except csv.Error:
        assert uncut == []
        return
    assert uncut, "refused, though Python reads it"
    found = read(data, "a.csv", TextOptions(text_key="t"))
    assert [t for t, _ in found[0]] == [row[0] for row in rows[1:] if len(row) == 1]
    assert len(found[1]) == sum(len(row) > 1 for row in rows[1:])


@given(
    st.lists(st.sampled_from([0, 1, 2, 40, 700, 3_000]), max_size=12),
    st.booleans(),
    st.sampled_from([b"", b"last"]),
)
def test_lines_are_found_whether_they_are_few_or_many(
    lengths: list[int], returns: bool, last: bytes
) -> None:
    end = b"\r\n" if returns else b"\n"
    data = b"".join(b"x" * length + end for length in lengths) + last
    lines = find_lines(data)
    found = [data[a:b] for a, b in zip(lines.starts.tolist(), lines.stops.tolist(), strict=True)]
    expected = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    assert found == [line for line in expected if line]
    assert lines.numbers.tolist() == [number for number, line in enumerate(expected) if line]
