"""Options of tables: what is allowed, and what is recorded."""

import json

import pytest

from preprocess.tables.options import TableOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "ranking"}, "task"),
        ({"target": ""}, "name of a column"),
        ({"categorical": ("a",), "numeric": ("a",)}, "named by categorical too"),
        ({"ignore": ("a", "a")}, "named by ignore too"),
        ({"text": ("",)}, "empty"),
        ({"text": ("a",)}, "text: column 'a': a record holds no texts"),
        ({"tokenizer": "t"}, "tokenizer='t': makes tokens of the columns that text names"),
        ({"target": "y", "text": ("y",), "tokenizer": "t"}, "target='y': named by text"),
        ({"target": "y", "ignore": ("y",)}, "target='y': named by ignore"),
        ({"hash_buckets": (("a", 0),)}, "hash_buckets"),
        ({"min_count": 0}, "min_count"),
        ({"shuffle": -1}, "shuffle"),
        ({"delimiter": "ab"}, "delimiter"),
        ({"delimiter": '"'}, "delimiter"),
        ({"decimal": "5"}, "decimal"),
        ({"decimal": ",", "thousands": ","}, "two different marks"),
        ({"null_values": ("a", "a")}, "null_values"),
        ({"encoding": "klingon"}, "encoding"),
        ({"validation": 1.0}, "validation, test"),
        ({"validation": 0.5, "test": 0.5}, "validation, test"),
        ({"split_seed": 1}, "split_seed"),
        ({"stratify": True, "target": "y"}, "only with shares"),
        ({"stratify": True, "test": 0.1}, "stratify: only with target"),
        ({"test": 0.1, "group_by": "g", "split_by_time": "t"}, "one of them"),
        ({"test": 0.1, "split_by_time": "t", "split_seed": 3}, "nothing is drawn"),
        ({"float32": ("a", "a")}, "float32"),
    ],
)
def test_values_that_mean_nothing_are_refused_by_name(
    options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        TableOptions(**options)  # type: ignore[arg-type]


def test_what_is_recorded_is_json_and_differs_where_options_do() -> None:
    plain = TableOptions().recorded()
    other = TableOptions(hash_buckets=(("a", 8),), float32=("*",)).recorded()
    assert json.loads(json.dumps(plain)) == plain
    assert json.loads(json.dumps(other)) == other
    assert plain != other


def test_an_ignored_column_that_the_splits_are_made_by_is_read() -> None:
    options = TableOptions(ignore=("a", "user", "day"), test=0.1, group_by="user")
    assert options.unread == {"a", "day"}
