"""What is no strict JSON is refused wherever it stands, however much else there is."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.errors import FormatError
from loaders.format.files import read_json
from loaders.format.strict import Place


def levels(count: int, innermost: Any, kinds: list[bool]) -> Any:
    value = innermost
    for number in range(count):
        value = {"a": value, "b": 1} if kinds[number % len(kinds)] else [2, value]
    return value


@given(st.lists(st.booleans(), min_size=1, max_size=4), st.sampled_from([0, "text", [], {}]))
def test_31_levels_around_a_value_are_read_and_more_are_not(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[bool], innermost: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "deep.json"
    value = levels(31, innermost, kinds)
    path.write_text(json.dumps(value))
    assert read_json(path) == value
    path.write_text(json.dumps(levels(32, innermost, kinds)))
    with pytest.raises(FormatError, match="more than 32 levels deep"):
        read_json(path)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("form", ["{}", "[1, 2, {}]", '{{"a": [0, {{"b": {}}}]}}'])
def test_a_number_that_is_no_double_is_refused(tmp_path: Path, number: str, form: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(form.format(number))
    with pytest.raises(FormatError, match=r"beyond the range of a double|is no JSON number"):
        read_json(path)


@given(st.lists(st.text(), min_size=1), st.one_of(st.none(), st.integers(), st.just(["a"])))
def test_the_one_that_is_no_text_among_texts_is_named(texts: list[str], wrong: Any) -> None:
    place = Place("a.json").at("names")
    assert place.texts(texts) == tuple(texts)
    with pytest.raises(FormatError, match=r"a.json: names: got .*, expected a string"):
        place.texts([*texts, wrong])
