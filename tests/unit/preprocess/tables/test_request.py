"""What is asked of a table: what cannot be is refused before anything is read."""

from pathlib import Path

import pytest

from preprocess.tables.options import TableOptions
from preprocess.tables.request import TableRequest
from preprocess.tables.toml import Wish


def test_a_column_that_a_schema_calls_text_is_refused_with_what_takes_it() -> None:
    with pytest.raises(ValueError, match=r"^schema: column 'a b': .* `text` 'a b' `tokenizer` T"):
        TableRequest(
            source=Path("in.csv"),
            out=Path("out"),
            options=TableOptions(),
            wishes={"a b": Wish(kind="text")},
        )
