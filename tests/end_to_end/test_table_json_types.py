"""Columns of JSON lines whose values are of several types: the one that decides it is named."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from preprocess.tables.options import TableOptions
from preprocess.tables.parse import parse_block
from preprocess.tables.raw_block import RawBlock
from tests.token_commands import call

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-9, 9),
    st.just(1.5),
    st.just(1 << 70),
    st.sampled_from(["5", "1.5", "true", "007", "x", ""]),
    st.just([1]),
    st.just({"k": 1}),
)


def prepare(tmp_path: Path, values: list[Any], *words: Any, name: str = "a.jsonl") -> Result:
    rows = [{"x": value, "y": place % 2} for place, value in enumerate(values)]
    (tmp_path / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return call("table", tmp_path / name, tmp_path / "out", "--target", "y", "--dry-run", *words)


@pytest.mark.parametrize(
    ("culprit", "shown"),
    [("hello", "'hello'"), (True, "'true'"), ("5", "'\"5\"'"), ([1, 2], "'[1,2]'")],
)
def test_what_is_no_number_is_named_and_not_the_first_number(
    tmp_path: Path, culprit: Any, shown: str
) -> None:
    done = prepare(tmp_path, [1, 2.5, None, culprit, 4], "--numeric", "x")
    assert done.exit_code == 1
    assert f"a.jsonl:4: column 'x': {shown} is not a number, which --numeric asks" in done.stderr


def test_the_note_names_the_word_among_numbers(tmp_path: Path) -> None:
    done = prepare(tmp_path, [1, 2.5, 3, "hello"])
    assert done.exit_code == 0, done.stderr
    said = "a.jsonl:4: column 'x': 3 of 4 values are numbers, and others are words such as 'hello'"
    assert said in done.stdout
    assert "null says that a value is missing" in done.stdout
    assert "--null-values" not in done.stdout


@pytest.mark.parametrize("value", ["5", "1.5", "true"])
def test_the_note_says_that_a_value_is_text_by_its_quotes(tmp_path: Path, value: str) -> None:
    done = prepare(tmp_path, [1, 2.5, value, 5])
    assert f"a.jsonl:3: column 'x': text, since \"{value}\" stands in quotes" in done.stdout
    done = prepare(tmp_path, [value, value])
    assert f"a.jsonl:1: column 'x': text, since \"{value}\" stands in quotes" in done.stdout
    assert "lose how it is written" not in done.stdout


def test_a_kind_that_a_schema_asks_for_names_what_is_of_another(tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text('[columns.x]\nkind = "boolean"\n')
    done = prepare(tmp_path, [True, False, "true"], "--schema", schema)
    assert "a.jsonl:3: column 'x': '\"true\"' is not of kind boolean" in done.stderr
    schema.write_text('[columns.x]\nkind = "integer"\n')
    done = prepare(tmp_path, [1, 2, 2.5, "z"], "--schema", schema)
    assert "a.jsonl:3: column 'x': '2.5' is not a number" in done.stderr


def test_a_value_behind_the_limit_that_decides_the_type_is_named(tmp_path: Path) -> None:
    done = prepare(tmp_path, [1, 2, 3, "far"], "--limit", "2")
    assert "a.jsonl:4: column 'x'" in done.stdout
    assert "'far'" in done.stdout


def test_numbers_that_no_type_of_arrow_holds_stay_numbers(tmp_path: Path) -> None:
    done = prepare(tmp_path, [1, 2, 1 << 70])
    assert done.exit_code == 1
    assert f"column 'x': {1 << 70} is beyond 64 bits; --categorical x" in done.stderr
    done = prepare(tmp_path, [1.5, 2, (1 << 63) + 1])
    assert "whole numbers beyond 2**53 rounded to float64: 1 values" in done.stdout


@given(st.lists(VALUES, min_size=1, max_size=8))
def test_the_first_value_that_is_no_number_is_the_one_named(values: list[Any]) -> None:
    data = "".join(f"{json.dumps({'n': 0, 'x': value})}\n" for value in values)
    block = parse_block(RawBlock(key="a", kind="json", data=data.encode()), TableOptions())
    others = [
        (row, value)
        for row, value in enumerate(values, 1)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float))
    ]
    if "x" not in block.evidence or next(iter(block.evidence["x"].kinds)).startswith("other:"):
        return  # objects alone are other columns
    found = block.evidence["x"]
    if others and "list" not in found.kinds:
        row, value = others[0]
        word, place = found.not_kind["float"]
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        assert (word.strip('"').lower(), place) == (text.lower(), f"a:{row}")
    elif not others:
        assert "float" not in found.not_kind
