"""What refuses a table names the source, what there is instead, and what was left out."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa  # noqa: TID253 - a test may write what it reads
import pyarrow.parquet as pq  # noqa: TID253 - likewise
import pytest

from preprocess import TableOptions, table_to_shards
from preprocess.errors import SourceError
from tests.token_commands import call


def refusal(source: Path, *words: Any) -> str:
    done = call("table", source, source.parent / "out", *words)
    assert done.exit_code == 1, done.output
    return done.stderr


@pytest.fixture
def rides(tmp_path: Path) -> Path:
    path = tmp_path / "rides.csv"
    path.write_text("fare,tip_amount\n1,2\n3,4\n")
    return path


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("city,y\nUlm,1\nMünchen,2\nUlm,1\n", "target 'y': constant: every row has 1"),
        ("city,y\nUlm,\nMünchen,2\nUlm,\n", "target 'y': missing in all 2 rows"),
    ],
)
def test_a_target_of_no_use_tells_of_rows_that_are_left_out(
    tmp_path: Path, text: str, cause: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode("latin1"))
    said = refusal(path, "--target", "y")
    assert cause in said
    assert "1 record or files are left out, a.csv:3: column 'city' is not valid UTF-8" in said
    assert "--encoding names the encoding" in said
    path.write_text(text.replace("ü", "u").replace(",2", ",1" if "constant" in cause else ","))
    assert "left out" not in refusal(path, "--target", "y")


@pytest.mark.parametrize(
    "words",
    [
        ("--target", "TIP_AMOUNT"),
        ("--target", "tip_amont"),
        ("--numeric", "tipamount"),
        ("--categorical", "tip amount"),
        ("--group-by", "tip-amount", "--validation", "0.1"),
        ("--ignore", "tip_amounts"),
    ],
)
def test_a_column_that_is_not_there_is_told_with_those_that_are(
    rides: Path, words: tuple[str, ...]
) -> None:
    said = refusal(rides, *words)
    assert said.startswith(f"Error: {rides}: {words[0]} {words[1]!r}: no such column; ")
    assert "perhaps 'tip_amount' is meant; there are 'fare', 'tip_amount'" in said


def test_a_column_like_no_other_is_told_with_those_that_are(rides: Path) -> None:
    said = refusal(rides, "--target", "zz")
    assert f"{rides}: --target 'zz': no such column; there are 'fare', 'tip_amount'" in said


def test_decimals_beyond_64_bits_name_source_and_remedy(tmp_path: Path) -> None:
    values = [Decimal("123456789012345678901.5"), Decimal("1.5")]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": pa.array(values, pa.decimal128(30, 4)), "y": [1, 2]}), path)
    said = refusal(path)
    cause = "column 'a': 123456789012345678901.5 is beyond 64 bits; --categorical a or --ignore a"
    assert f"{path}: {cause}" in said


def test_a_table_without_rows_of_train_names_the_source_and_its_splits(tmp_path: Path) -> None:
    for split in ("validation", "test"):
        (tmp_path / "in" / split).mkdir(parents=True)
        (tmp_path / "in" / split / "a.csv").write_text("x,y\n1,2\n3,4\n")
    said = refusal(tmp_path / "in", "--target", "y")
    assert f"{tmp_path / 'in'}: no row is of the train split" in said
    assert "rows: 2 of validation, 2 of test" in said


def test_a_target_that_the_dataset_to_be_like_has_not_is_told_plainly(
    tmp_path: Path, rides: Path
) -> None:
    assert call("table", rides, tmp_path / "plain").exit_code == 0
    said = refusal(rides, "--like", tmp_path / "plain", "--target", "fare")
    assert f"{rides}: --target 'fare': {tmp_path / 'plain'} has no target; " in said
    assert "None" not in said
    assert call("table", rides, tmp_path / "aimed", "--target", "fare").exit_code == 0
    said = refusal(rides, "--like", tmp_path / "aimed", "--target", "tip_amount")
    assert f"{rides}: --target 'tip_amount': {tmp_path / 'aimed'} has the target 'fare'; " in said


def test_a_refusal_that_names_a_file_of_the_source_names_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,2\nsoon,4\n")
    said = refusal(tmp_path / "a.csv", "--numeric", "x")
    assert re.match(r"Error: a\.csv:3: column 'x': 'soon' is not a number", said)


def test_refusals_of_frames_name_them_and_keywords(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"^DataFrame: `target` 'z': no such column; there are 'x'"
    ):
        table_to_shards({"x": [1, 2]}, tmp_path / "out", TableOptions(target="z"))
