"""JSON that nests too deeply for Arrow: the record is named, and the process lives."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.tables import json_depth
from preprocess.tables.json_depth import may_be_deep
from preprocess.texts.lines import find_lines
from tests.waiting import SECONDS


@pytest.mark.parametrize(
    ("opens", "closes"),
    [('{"a":', "}"), ("[", "]"), ('[{"a":', "}]"), ('{"}}":', "}"), ('{"\\"}":', "}")],
)
def test_what_nests_too_deeply_is_left_out_by_name_and_ends_no_process(
    opens: str, closes: str, tmp_path: Path
) -> None:
    deep = opens * 30_000 + "1" + closes * 30_000
    text = f'{{"y": {deep}}}\n{{"x": 2}}\n{{"x": 3, "y": {deep}}}\n'
    (tmp_path / "t.jsonl").write_text(text, encoding="utf-8")
    words = ["-m", "preprocess.cli", "table", str(tmp_path / "t.jsonl"), str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, *words], timeout=SECONDS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    skipped = (tmp_path / "out" / "skipped.jsonl").read_text(encoding="utf-8").splitlines()
    reason = "JSON that is nested too deeply"
    expected = [{"key": f"t.jsonl:{line}", "reason": reason} for line in (1, 3)]
    assert [json.loads(entry) for entry in skipped] == expected


_KEYS = st.text(st.sampled_from('[]{}"\\a, :é'), max_size=6)
_JSON = st.recursive(
    st.integers(0, 9) | _KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=20,
)


def depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return int(isinstance(value, dict | list)) + max(map(depth, inner), default=0)


@given(st.lists(st.dictionaries(_KEYS, _JSON, max_size=3), min_size=1, max_size=4), st.data())
def test_what_is_deep_is_found_whatever_its_strings_hold(
    records: list[dict[str, Any]], data: st.DataObject
) -> None:
    most = data.draw(st.integers(0, 8))
    text = "\n".join(json.dumps(record, ensure_ascii=False) for record in records).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_depth, "_MOST", most)
        assert may_be_deep(text, find_lines(text)) == (max(map(depth, records)) > most)


@pytest.mark.parametrize("text", [b'\\"' * 300_000, b"x" * 30_000_000 + b'"', b"\\" * 300_000])
def test_long_and_unclosed_texts_are_gone_through_once(text: bytes) -> None:
    line = b'{"a":[' + b"{}," * 600 + b'{}],"t":"' + text + b"}\n"
    assert not may_be_deep(line, find_lines(line))
