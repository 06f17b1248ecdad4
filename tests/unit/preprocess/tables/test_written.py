"""Numbers that are read as numbers: only where every field is written as `str` gives it."""

import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pytest

from preprocess.tables.from_csv import CsvBlock, Guess, parse_csv
from preprocess.tables.options import TableOptions
from preprocess.texts.quotes import count_lines

PLAIN = ["0", "7", "-7", "10", "-10", "123456", "999999", "1000000", "", str(-(1 << 63))]


def parsed(data: str, *, plain: bool = True) -> dict[str, pa.Array]:
    """Parse two columns, of which the first is guessed to be whole numbers."""
    block = CsvBlock(
        key="a.csv",
        data=data.encode(),
        lines=count_lines(data.encode(), len(data.encode())),
        names=("n", "t"),
        delimiter=",",
        guess=Guess(frozenset({0}), plain),
    )
    return parse_csv(block, TableOptions())[0]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("text", ["a", "€uro", "0x1", "", "zz0X"])
def test_plain_fields_are_read_as_what_they_are(
    end: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("preprocess.tables.from_csv.as_integers", lambda _: None)  # only this way
    data = end.join(f"{number},{text}{number}" for number in PLAIN)
    for last in ("", end):
        column = parsed(data + last)["n"]
        if "0x" in text.lower():
            assert pa.types.is_dictionary(column.type)
        else:
            assert column.to_pylist() == [int(number) if number else None for number in PLAIN]


@pytest.mark.parametrize(
    "data",
    [
        "07,a\n",
        "-0,a\n",
        " 7,a\n",
        "NA,a\n7,b\n",
        '"7",a\n',
        '7,"a"\n',
        "0x1F,a\n",
        "0xFFFFF,a\n",
        "0XFFFFFFFF,a\n",
        "0x8000000000000000,a\n",
        "0x7fffffffffffffff,a\n",
        '07,"\n\n\n"\n',
        "07,a\n5,b\r\n",
        "07,a\r\n5,b\n",
        "07,a\n\n",
        "5,a\n07,b\r\n\r\n",
        "1,a\r0x1,b\r007,c\r",
        "007,a\r5,b\r",
        "7,a\nword,b\n",
        "7,a\n8\n9,c\n",
        ",a\n,b\n",
        f"{1 << 63},a\n",
    ],
)
def test_what_is_written_otherwise_stays_as_it_is_written(data: str) -> None:
    one, other = parsed(data), parsed(data, plain=False)
    assert {name: column.type for name, column in one.items()} == {
        name: column.type for name, column in other.items()
    }
    assert all(one[name].equals(other[name]) for name in one)
