"""Codes that are known from counting: the same as those that are looked up in the vocabulary."""

from pathlib import Path

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pytest

from preprocess.tables import vocabulary as table_vocabulary
from preprocess.tables.codes import find_codes
from preprocess.tables.fit import fit
from preprocess.tables.options import TableOptions
from preprocess.tables.schema import decide
from tests.table_parsed import csv_blocks, spill_blocks, table_blocks

ROWS = 400


def make_table() -> pa.Table:
    rng = np.random.default_rng(0)
    words = [f"w{number % 90}" for number in rng.zipf(1.3, ROWS)]
    some = [None if number % 7 == 0 else word for number, word in enumerate(words)]
    late = [None if number < 200 else word for number, word in enumerate(words)]
    lists = [
        None if number % 5 == 0 else words[number : number + number % 3] for number in range(ROWS)
    ]
    return pa.table(
        {
            "word": pa.array(words),
            "some": pa.array(some),
            "late": pa.array(late),
            "lists": pa.array(lists, pa.list_(pa.string())),
            "id": pa.array([f"u{number}" for number in range(ROWS)]),
            "number": pa.array(rng.integers(0, 50, ROWS)),
            "hashed": pa.array(words),
            "y": pa.array(["a", "b"] * (ROWS // 2)),
        }
    )


@pytest.mark.parametrize("size", [7, 33, 1000])
@pytest.mark.parametrize("together", [1, 40, 1 << 18])
@pytest.mark.parametrize(
    "options",
    [
        TableOptions(target="y", categorical=("number",), hash_buckets=(("hashed", 10),)),
        TableOptions(min_count=3, validation=0.2, test=0.1, categorical=("number", "hashed")),
    ],
)
def test_codes_from_counting_are_those_of_the_vocabulary(
    size: int,
    together: int,
    options: TableOptions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table_vocabulary, "_TOGETHER", together)
    spilled = spill_blocks(tmp_path / "blocks", table_blocks(make_table(), size), options)
    plans = decide(spilled.evidence, spilled.columns, options)
    fitted = fit(spilled, plans, options, 2, tmp_path)
    plain = fit(spilled, plans, options, 1)
    assert fitted.schema == plain.schema
    assert fitted.vocabularies == plain.vocabularies
    assert not plain.codes
    assert {"word", "some", "late", "lists", "id", "number"} <= set(fitted.codes)
    (tmp_path / "looked").mkdir()
    known = find_codes(
        spilled.blocks, fitted.schema, fitted.vocabularies, tmp_path, 2, fitted.codes
    )
    looked = find_codes(spilled.blocks, fitted.schema, fitted.vocabularies, tmp_path / "looked", 2)
    assert set(known.files) == set(looked.files)
    for number in range(len(spilled.blocks)):
        ours, theirs = known.of_block(number), looked.of_block(number)
        for name, codes in theirs.items():
            assert ours[name].tolist() == codes.tolist(), name


def test_a_column_without_any_text_in_some_blocks_has_codes(tmp_path: Path) -> None:
    options = TableOptions()
    text = "c,n\n" + ",1\n" * 3 + "x,2\n" + ",3\n" * 2
    spilled = spill_blocks(tmp_path, csv_blocks(text, 2), options)
    fitted = fit(spilled, decide(spilled.evidence, spilled.columns, options), options, 1, tmp_path)
    codes = find_codes(
        spilled.blocks, fitted.schema, fitted.vocabularies, tmp_path, 1, fitted.codes
    )
    assert [codes.of_block(number)["c"].tolist() for number in range(3)] == [[0], [2, 0], [0]]
