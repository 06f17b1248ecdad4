"""Blocks of columns: what is written stays, and what cannot be read is named by line."""

import decimal
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet  # noqa: TID253 - a test may load what it compares with
import pytest

from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item
from preprocess.tables.block import TEXT_KINDS, Block, Evidence
from preprocess.tables.options import TableOptions
from preprocess.tables.parse import parse_block
from preprocess.tables.raw_block import RawBlock
from preprocess.tables.read import read_blocks
from preprocess.tables.text import to_datetimes
from preprocess.tables.values import texts_of


def parse(tmp_path: Path, name: str, data: bytes | str | pa.Table, **options: Any) -> Block:
    path = tmp_path / name
    if isinstance(data, pa.Table):
        pyarrow.parquet.write_table(data, path)
    else:
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    chosen = TableOptions(**options)
    item = Item(name, path.stat().st_size, path.stat().st_mtime_ns)
    (raw,) = read_blocks(ItemFiles(tmp_path), item, chosen)
    block = parse_block(raw, chosen)
    block.table.validate(full=True)
    return block


def csv_evidence(tmp_path: Path, *values: str, **options: Any) -> Evidence:
    return parse(
        tmp_path, "a.csv", "\n".join(["x;y", *(f"{v};" for v in values)]), **options
    ).evidence["x"]


def kinds(evidence: Evidence) -> set[str]:
    return set(evidence.kinds - {"string"})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-20", ""], {"integer", "float"}),
        (["18446744073709551615", "1"], {"integer", "float"}),
        (["1.5", ".5", "5.", "-1e-3", "inf"], {"float"}),
        (["-0", "1"], {"float"}),
        (["true", "FALSE"], {"boolean"}),
        (["2024-02-29"], {"date", "datetime"}),
        (["2024-02-29", "2024-03-01T10:00Z"], {"datetime"}),
        (["2023-02-29"], set()),
        (["2024-02-29 25:00"], set()),
        (["007", "12"], set()),
        (["+5"], set()),
        (["0x1F"], set()),
        (["00.5"], set()),
        (["-.5", "5e-3", "-inf", "NaN ", "1"], set()),
        (["1.5", "-007"], set()),
        (["1.5", "-+7"], set()),
        ([*(f"{i}.25" for i in range(40)), "1e400"], {"float"}),
        ([*(f"{i}.25" for i in range(40)), "07.5"], set()),
        ([*(f"{i}.25" for i in range(40)), "-0"], {"float"}),
        ([*(f"{i}.25" for i in range(40)), "Infinity"], {"float"}),
        ([*(f"{i}.25" for i in range(40)), "+inf"], set()),
        (["1,5"], set()),
        (["1 "], set()),
        (["abc", "1"], set()),
        (["", "NA"], TEXT_KINDS - {"string"}),
    ],
)
def test_text_is_of_the_kinds_that_lose_nothing(
    tmp_path: Path, values: list[str], expected: set[str]
) -> None:
    assert kinds(csv_evidence(tmp_path, *values)) == expected


def test_what_looks_like_a_number_and_is_an_id_says_so(tmp_path: Path) -> None:
    found = csv_evidence(tmp_path, "12", "007")
    assert found.leading_zeros
    assert found.not_kind["float"] == ("007", "a.csv:3")
    assert not csv_evidence(tmp_path, "12", "abc").leading_zeros


def test_the_first_value_of_another_kind_is_named_by_line(tmp_path: Path) -> None:
    found = csv_evidence(tmp_path, "1", "2.5", "2.5", "x", "y")
    assert found.not_kind["integer"] == ("2.5", "a.csv:3")
    assert found.not_kind["float"] == ("x", "a.csv:5")


def test_ranges_are_exact(tmp_path: Path) -> None:
    found = csv_evidence(tmp_path, "18446744073709551615", "-3")
    assert (found.minimum, found.maximum) == (-3, (1 << 64) - 1)
    found = csv_evidence(tmp_path, "9007199254740993", "")
    assert (found.maximum, found.missing) == (9007199254740993, 1)
    assert csv_evidence(tmp_path, "16777217").float32_exact is False
    found = csv_evidence(tmp_path, "1.50", "-0.125")
    assert (found.minimum, found.maximum, found.exponent) == (-0.125, 1.5, 3)
    found = csv_evidence(tmp_path, "1970-01-02")
    assert (found.minimum, found.maximum) == (1, 1)
    found = csv_evidence(tmp_path, "1970-01-01T01:00+01:00", "1970-01-01 00:00:00.000001")
    assert (found.minimum, found.maximum) == (0, 1)


def test_dates_and_times_are_merged_as_times(tmp_path: Path) -> None:
    merged = csv_evidence(tmp_path, "1970-01-02").merged(csv_evidence(tmp_path, "1970-01-01T00:00"))
    assert kinds(merged) == {"datetime"}
    assert (merged.minimum, merged.maximum) == (0, 86_400_000_000)


def test_numbers_are_written_as_the_options_say(tmp_path: Path) -> None:
    options: dict[str, Any] = {"decimal": ",", "thousands": "."}
    found = csv_evidence(tmp_path, "1.234,5", "12,25", "-1.000", "7", **options)
    assert kinds(found) == {"float"}
    assert (found.minimum, found.maximum, found.exponent) == (-1000.0, 1234.5, 2)
    assert kinds(csv_evidence(tmp_path, "1.234", "5.000.000", **options)) == {"integer", "float"}
    for wrong in ("12.34", "1.5", "1,5,5", "1234.567"):
        assert kinds(csv_evidence(tmp_path, "1,5", wrong, **options)) == set()


def test_whole_numbers_are_stored_as_such_only_where_their_text_comes_back(tmp_path: Path) -> None:
    block = parse(tmp_path, "a.csv", "a,b,c,d,e\n1,01,-0,1,\n-5,2,3,NA,\n")
    types = [str(column.type) for column in block.table.columns]
    assert [kind == "int8" for kind in types] == [True, False, False, True, False]
    assert block.table.column("b").to_pylist() == ["01", "2"]
    assert texts_of(block.table.column("a").combine_chunks()).values.to_pylist() == ["1", "-5"]


def test_quoted_words_for_no_value_are_values(tmp_path: Path) -> None:
    block = parse(tmp_path, "a.csv", 'a,b\nnull,"null"\n,""\n')
    assert block.table.column("a").to_pylist() == [None, None]
    assert block.table.column("b").to_pylist() == ["null", ""]


def test_records_that_are_not_utf8_are_named_and_the_others_kept(tmp_path: Path) -> None:
    data = b'a,b,c\n1,x,1\n2,\xe9,1\n3\n4,"y\nz",NA\n\xff,w,1\n'
    block = parse(tmp_path, "a.csv", data)
    assert block.table.column("a").to_pylist() == [1, 4]
    assert block.table.column("b").to_pylist() == ["x", "y\nz"]
    assert block.table.column("c").to_pylist() == [1, None]
    assert block.rows.tolist() == [2, 5]
    assert [error.key for error in block.errors] == ["a.csv:3", "a.csv:4", "a.csv:7"]
    assert "column 'b' is not valid UTF-8" in block.errors[0].reason


def test_ignored_columns_are_not_looked_at(tmp_path: Path) -> None:
    block = parse(tmp_path, "a.csv", b"a,b\n1,\xff\n", ignore=("b",), encoding=None)
    assert block.evidence["b"].kinds == {"null"}
    assert block.table.column("b").null_count == 1
    block = parse(tmp_path, "a.csv", b"a,b\n1,\xff\n", ignore=("a", "b"))
    assert block.table.to_pydict() == {"a": [None], "b": [None]}


def test_many_distinct_values_are_held(tmp_path: Path) -> None:
    rows = [f"v{index}" for index in range(70_000)]
    block = parse(tmp_path, "a.csv", "\n".join(["x", *rows]))
    assert block.table.column("x").to_pylist() == rows


def test_numbers_of_json_stay_what_they_are(tmp_path: Path) -> None:
    lines = [
        '{"i": 1, "f": 1.5, "b": true, "s": "7", "l": [1, 2], "o": {"x": 1}, "big": 1, "m": 1}',
        '{"i": 9007199254740993, "s": "2024-01-01", "l": [], "big": 18446744073709551615}',
        '{"f": 2, "b": null, "m": "x", "new": "y"}',
    ]
    block = parse(tmp_path, "a.jsonl", "\n".join([*lines, ""]))
    found = {name: block.table.column(name).to_pylist() for name in block.table.column_names}
    assert found == {
        "i": [1, 9007199254740993, None],
        "f": [1.5, None, 2.0],
        "b": [True, None, None],
        "s": ["7", "2024-01-01", None],
        "l": [[1, 2], [], None],
        "o.x": [1, None, None],
        "big": [1, 18446744073709551615, None],
        "m": ["1", None, "x"],
        "new": [None, None, "y"],
    }
    assert block.evidence["i"].kinds == {"integer", "float", "string"}
    assert block.evidence["s"].kinds == {"string"}
    assert block.evidence["l"].list_lengths == (0, 2)
    assert block.evidence["o.x"].kinds == {"integer", "float", "string"}


def test_objects_without_members_are_no_column(tmp_path: Path) -> None:
    block = parse(tmp_path, "a.jsonl", '{"o": {}, "i": 1}\n{"i": 2}\n')
    assert next(iter(block.evidence["o"].kinds)).startswith("other:struct<")


def test_strings_of_json_that_look_like_times_keep_their_text(tmp_path: Path) -> None:
    lines = [f'{{"t": "2024-01-0{day} 00:00:00", "l": ["2024-01-01"]}}' for day in (1, 2)]
    block = parse(tmp_path, "a.jsonl", "\n".join([*lines, ""]))
    assert block.table.column("t").to_pylist() == ["2024-01-01 00:00:00", "2024-01-02 00:00:00"]
    assert block.table.column("l").to_pylist() == [["2024-01-01"]] * 2
    assert kinds(block.evidence["t"]) == {"datetime"}


def test_broken_lines_of_json_are_named_and_the_others_kept(tmp_path: Path) -> None:
    data = b'{"a": 1}\n\n{"a": \n[1]\n{"a": "\xff"}\n{"a": "\\ud800"}\n{"a": 2}\n'
    block = parse(tmp_path, "a.jsonl", data)
    assert block.table.column("a").to_pylist() == [1, 2]
    assert block.rows.tolist() == [1, 7]
    assert [error.key for error in block.errors] == [f"a.jsonl:{line}" for line in (3, 4, 5, 6)]


def test_objects_and_keys_that_name_no_column_are_refused(tmp_path: Path) -> None:
    block = parse(tmp_path, "a.jsonl", '{"a": 1}\n{ }\n{"a": {}}\n')
    assert [str(error) for error in block.errors] == ["a.jsonl:2: an object without keys"]
    assert block.rows.tolist() == [1, 3]
    with pytest.raises(SampleError, match="a key that is the empty string"):
        parse(tmp_path, "b.jsonl", '{"": 1}\n')


def test_one_json_value_over_several_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="not JSON lines"):
        parse(tmp_path, "a.json", '[\n{"a": 1}\n]\n')


def test_a_line_of_json_that_is_too_long_is_named() -> None:
    raw = RawBlock(key="a.jsonl", kind="json", first=7, too_long=20_000_000)
    block = parse_block(raw, TableOptions())
    assert [error.key for error in block.errors] == ["a.jsonl:7"]


def test_types_of_parquet_are_kept_and_strange_ones_are_not_read(tmp_path: Path) -> None:
    when = datetime(2024, 1, 1, 12, tzinfo=UTC)
    table = pa.table(
        {
            "u": pa.array([2**64 - 1, None], pa.uint64()),
            "h": pa.array([1.5, None], pa.float16()),
            "d": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(10, 4)),
            "day": pa.array([date(2024, 1, 1), None], pa.date64()),
            "t": pa.array([when, None], pa.timestamp("ms", "Europe/Berlin")),
            "clock": pa.array([time(1), None], pa.time32("s")),
            "s": pa.array(["x", None], pa.string_view()),
            "c": pa.array(["x", None]).dictionary_encode(),
            "n": pa.nulls(2),
            "l": pa.array([[1.5], None], pa.list_(pa.float32(), 1)),
            "fine": pa.array([1, None], pa.timestamp("ns")),
            "m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
            "bytes": pa.array([b"x", None]),
            "blob": pa.array([None, b"\xff"]),
        }
    )
    block = parse(tmp_path, "a.parquet", table)
    found = {name: (str(e.kinds), e.minimum) for name, e in block.evidence.items()}
    assert list(found) == table.column_names
    assert found["u"][1] == 2**64 - 1
    assert (found["d"][1], block.evidence["d"].exponent) == (decimal.Decimal("1.5000"), 1)
    assert found["t"][1] == int(when.timestamp() * 1_000_000)
    assert block.table.schema.field("t").type == pa.timestamp("us", "UTC")
    assert block.table.schema.field("day").type == pa.date32()
    text = pa.dictionary(pa.int32(), pa.large_string())
    assert block.table.schema.field("s").type == block.table.schema.field("c").type == text
    assert block.evidence["s"].kinds == {"string"}
    assert block.table.schema.field("bytes").type == text
    assert (block.evidence["bytes"].kinds, block.evidence["bytes"].from_bytes) == ({"string"}, True)
    for name, kind, row in (("fine", "timestamp", 1), ("m", "map", 1), ("blob", "binary", 2)):
        (found_kind,) = block.evidence[name].kinds
        assert found_kind.startswith(f"other:{kind}")
        assert block.evidence[name].not_kind["string"][1] == f"a.parquet:{row}"


def test_missing_floats_are_counted_whether_null_or_nan(tmp_path: Path) -> None:
    table = pa.table({"x": pa.array([float("nan"), None, 0.1])})
    found = parse(tmp_path, "a.parquet", table).evidence["x"]
    assert (found.missing, found.minimum, found.maximum, found.float32_exact) == (
        2,
        0.1,
        0.1,
        False,
    )


def test_dictionaries_with_unused_repeated_and_null_values_become_distinct_ones() -> None:
    indices = pa.array([3, 1, 3, None, 4], pa.int8())
    values = pa.array(["unused", "a", "b", "c", None])
    column = pa.DictionaryArray.from_arrays(indices, values)
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 0, 1]), pa.array(["p", "p", "q"]))
    raw = RawBlock(key="a", kind="table", table=pa.table({"x": column, "y": twice}))
    block = parse_block(raw, TableOptions())
    x, y = (block.table.column(name).chunk(0) for name in "xy")
    assert (x.to_pylist(), x.dictionary.to_pylist()) == (["c", "a", "c", None, None], ["c", "a"])
    assert (y.to_pylist(), y.dictionary.to_pylist()) == (["p", "p", "q", "p", "p"], ["p", "q"])


def test_text_of_arrow_that_is_not_utf8_is_named_by_row() -> None:
    bad = pa.array([b"x", b"\xff", b"x"]).view(pa.string())
    raw = RawBlock(
        key="a.arrow", kind="table", first=11, table=pa.table({"s": bad, "n": [1, 2, 3]})
    )
    block = parse_block(raw, TableOptions())
    assert block.table.to_pydict() == {"s": ["x", "x"], "n": [1, 3]}
    assert block.rows.tolist() == [11, 13]
    assert [error.key for error in block.errors] == ["a.arrow:12"]


def test_memory_of_arrow_that_is_damaged_is_refused() -> None:
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 900, 3)))
    column = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"abc"))
    raw = RawBlock(key="a.arrow", kind="table", table=pa.table({"s": column}))
    with pytest.raises(SampleError, match=r"a\.arrow: damaged Arrow data in column 's'"):
        parse_block(raw, TableOptions())


def test_columns_of_types_that_exclude_each_other_are_of_no_kind() -> None:
    one = Evidence(count=1, missing=0, kinds=frozenset({"integer"}), minimum=1, maximum=1)
    two = Evidence(count=1, missing=0, kinds=frozenset({"boolean"}))
    empty = Evidence(count=3, missing=3, kinds=frozenset({"null"}))
    strange = Evidence(count=1, missing=1, kinds=frozenset({"other:map"}))
    assert one.merged(two).kinds == frozenset()
    assert empty.merged(one).kinds == one.merged(empty).kinds == {"integer"}
    assert one.merged(empty).minimum == 1
    assert one.merged(strange).kinds == strange.merged(two).kinds == {"other:map"}


def test_times_with_and_without_zones_are_all_utc() -> None:
    values = pa.array(["2024-01-01", "2024-01-01T01:00+0100", "2024-01-01 00:00Z"])
    found = to_datetimes(values.cast(pa.large_string()))
    assert len(set(found.to_pylist())) == 1
