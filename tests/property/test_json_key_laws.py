"""Laws of keys that stand twice in an object of JSON: what is read is in doubt, and is refused."""

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item
from preprocess.tables.options import TableOptions
from preprocess.tables.parse import parse_block
from preprocess.tables.raw_block import RawBlock
from preprocess.texts.json_keys import Doubtful, key_in_doubt, read_json_line
from preprocess.texts.options import TextOptions
from preprocess.texts.read import read_documents

LAW = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

KEYS = st.sampled_from(["a", "b", "text", 'q":', "\u00e9"])
PAIRS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text('ab":,{} ', max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(st.tuples(KEYS, inner), max_size=4).map(tuple),
    ),
    max_leaves=8,
)
"""Values of JSON, objects as tuples of pairs."""


def written(value: Any) -> str:
    if isinstance(value, tuple):
        return "{" + ", ".join(f"{json.dumps(k)}: {written(v)}" for k, v in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value)


def has_twice(value: Any) -> bool:
    if isinstance(value, tuple):
        keys = [key for key, _ in value]
        return len(set(keys)) < len(keys) or any(has_twice(v) for _, v in value)
    return isinstance(value, list) and any(map(has_twice, value))


@LAW
@given(st.lists(st.tuples(KEYS, PAIRS), max_size=5).map(tuple))
def test_a_record_is_doubtful_where_a_key_stands_twice(pairs: Any) -> None:
    line = written(pairs)
    found = read_json_line(line)
    assert found == json.loads(line)
    assert isinstance(found, Doubtful) == has_twice(pairs)
    if isinstance(found, Doubtful):
        assert key_in_doubt(found, [[key] for key in found]) is not None


ROWS = st.lists(st.lists(st.tuples(KEYS, PAIRS), min_size=1, max_size=4).map(tuple), max_size=6)


@LAW
@given(ROWS)
@example([(("a", 1),), (("a", 1), ("a", 2)), (("a", 3),)])
def test_rows_of_tables_in_doubt_are_left_out_by_line(rows: list[Any]) -> None:
    data = "".join(f"{written(row)}\n" for row in rows).encode()
    try:
        block = parse_block(RawBlock(key="a", kind="json", data=data), TableOptions())
    except SampleError:
        return  # objects whose members would have one name
    bad = {f"a:{line}" for line, row in enumerate(rows, 1) if has_twice(row)}
    said = {error.key for error in block.errors if "stands twice in one object" in error.reason}
    assert said == bad


@LAW
@given(rows=ROWS, mixed=st.booleans())
def test_texts_are_left_out_only_where_what_is_read_is_in_doubt(
    tmp_path: Path, rows: list[Any], mixed: bool
) -> None:
    lines = [written((*row, ("u", "x"), ("v", (("w", "y"), ("z", 1))))) for row in rows]
    lines += ['{"u": "t", "v": {"w": "y"}}', "{" if mixed else ""]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines) + "\n")
    item = Item(path.name, path.stat().st_size, path.stat().st_mtime_ns)
    options = TextOptions(text_key="u", metadata_keys=("v.w",))
    kept = [
        line
        for documents in read_documents(ItemFiles(tmp_path), item, options)
        for line in documents.texts.to_pylist()
    ]
    assert kept == ["x"] * len(rows) + ["t"]  # the others are not read, in doubt or not


def test_columns_that_are_ignored_may_be_in_doubt() -> None:
    data = b'{"a": 1, "b": 1, "b": 2}\n{"a": 2, "b": {"x": 1, "x": 2}}\n{"a": 3, "a": 4}\n'
    raw = RawBlock(key="a", kind="json", data=data)
    block = parse_block(raw, TableOptions(ignore=("b",)))
    assert block.table.column("a").to_pylist() == [1, 2]
    assert [str(error) for error in block.errors] == [
        "a:3: the key 'a' stands twice in one object; write it once"
    ]
    assert [e.key for e in parse_block(raw, TableOptions()).errors] == ["a:1", "a:2", "a:3"]


def test_a_number_of_many_digits_in_a_broken_line_is_a_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": %s, "text": \n{"text": "x"}\n' % ("1" * 5000))
    item = Item(path.name, path.stat().st_size, path.stat().st_mtime_ns)
    (documents,) = read_documents(ItemFiles(tmp_path), item, TextOptions())
    assert documents.texts.to_pylist() == ["x"]
    assert "broken JSON" in documents.errors[0].reason


def test_numbers_that_json_has_not_become_null_in_metadata(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "n": NaN, "m": {"i": [-Infinity, 1.5]}}\n')
    item = Item(path.name, path.stat().st_size, path.stat().st_mtime_ns)
    (documents,) = read_documents(ItemFiles(tmp_path), item, TextOptions(metadata_keys=("n", "m")))
    assert documents.metadata is not None
    assert documents.metadata.to_pylist() == ['{"n":null,"m":{"i":[null,1.5]}}']
