"""Options of tokens: what is refused, what is recorded, and how shares become bounds."""

from typing import Any

import pytest

from preprocess.shares import SPLIT_STEPS
from preprocess.texts.options import TextOptions
from preprocess.tokens.options import TokenOptions

CHAT: dict[str, Any] = {"layout": "chat", "text": TextOptions(json_values=True)}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layout": "flat"}, "layout='flat': expected .*'stream'"),
        ({"specials": "keep"}, "specials='keep'"),
        ({"packing": "worst"}, "packing='worst'"),
        ({"layout": "fixed"}, "layout fixed needs the tokens of a row"),
        ({"layout": "packed"}, "layout packed needs the tokens of a row"),
        ({"layout": "packed", "length": 0}, "length=0: expected 1..16777216"),
        ({"layout": "fixed", "length": 1 << 25}, "length=33554432"),
        ({"length": 8}, "length=8: only with layout fixed or packed"),
        ({"layout": "packed", "length": 8, "stride": 1}, "stride=1: only with layout fixed"),
        ({"text": TextOptions(pair_key="b")}, "pair_key='b': only with layout fixed"),
        ({"chat_day": "2024-02-29"}, "only with layout chat"),
        ({"layout": "chat"}, "text.json_values: expected exactly with layout chat"),
        ({"text": TextOptions(json_values=True)}, "text.json_values"),
        ({**CHAT, "specials": "parse"}, "the template writes the special tokens"),
        ({**CHAT, "chat_day": "2024-02-30"}, "day"),
        ({"validation": -0.1}, "leave as much for train"),
        ({"validation": 0.5, "test": 0.5}, "leave as much for train"),
        ({"validation": 0.00001}, "at least 0.0001"),
    ],
)
def test_values_outside_their_range_are_refused_by_name(options: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TokenOptions(tokenizer="t", **options)


@pytest.mark.parametrize(
    ("shares", "bounds"),
    [
        ({}, {"train": (0, SPLIT_STEPS)}),
        ({"validation": 0.1}, {"train": (0, 9000), "validation": (9000, 10_000)}),
        ({"test": 0.25}, {"train": (0, 7500), "test": (7500, 10_000)}),
        (
            {"validation": 0.2, "test": 0.1},
            {"train": (0, 7000), "validation": (7000, 9000), "test": (9000, 10_000)},
        ),
    ],
)
def test_shares_become_bounds_that_touch_and_cover_all_hashes(
    shares: dict[str, float], bounds: dict[str, tuple[int, int]]
) -> None:
    assert TokenOptions(tokenizer="t", **shares).bounds() == bounds


def test_a_larger_test_share_takes_from_validation_before_it_takes_from_train() -> None:
    small = TokenOptions(tokenizer="t", test=0.1).bounds()["test"]
    large = TokenOptions(tokenizer="t", test=0.2).bounds()["test"]
    assert large[0] < small[0] < small[1] == large[1]


def test_what_changes_no_byte_is_not_recorded() -> None:
    one = TokenOptions(tokenizer="here", engine="transformers").recorded()
    two = TokenOptions(tokenizer="there").recorded()
    assert one == two
    assert {"layout", "specials", "eos", "text", "validation", "split_seed"} <= set(one)
    assert TokenOptions(tokenizer="here", eos="").recorded() != one
    assert TokenOptions(tokenizer="here", text=TextOptions(lines=True)).recorded() != one
