"""Laws of reading tables: every value and every line number is what Python's own readers say."""

import csv
import io
import json
import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loaders.format.value_texts import number_text
from preprocess.errors import SampleError
from preprocess.item_contents import ItemFiles
from preprocess.items import Item
from preprocess.tables import read as table_read
from preprocess.tables.block import Block, Evidence
from preprocess.tables.columns import as_integers
from preprocess.tables.from_csv import Guess
from preprocess.tables.options import TableOptions
from preprocess.tables.parse import parse_block
from preprocess.tables.read import read_blocks
from preprocess.tables.text import decimal_places, first_not
from preprocess.texts import content as text_bytes

LAW = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def read(path: Path, **options: object) -> list[Block]:
    status = path.stat()
    item = Item(path.name, status.st_size, status.st_mtime_ns)
    chosen = TableOptions(**options)  # type: ignore[arg-type]
    return [parse_block(raw, chosen) for raw in read_blocks(ItemFiles(path.parent), item, chosen)]


def values_of(blocks: list[Block], name: str) -> list[object]:
    found: list[object] = []
    for block in blocks:
        block.table.validate(full=True)
        found += block.table.column(name).to_pylist()
    return found


def evidence_of(blocks: list[Block], name: str) -> Evidence:
    found = blocks[0].evidence[name]
    for block in blocks[1:]:
        found = found.merged(block.evidence[name])
    return found


FIELDS = st.one_of(
    st.integers(-(1 << 64), 1 << 64).map(str),
    st.integers(-99, 99).map(str),
    st.sampled_from(["007", "-0", "+5", "0x1F", "0", "-", "1.5", "1e3", "NA", "null", "true", ""]),
    st.text("ab\"',;\n\r \t0é", max_size=6),
)


def quoted(field: str) -> str:
    escaped = field.replace('"', '""')
    return f'"{escaped}"'


@st.composite
def tables(draw: st.DrawFn) -> str:
    """Return the text of a table of three columns."""
    count = draw(st.integers(0, 8))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    lines = ["x,y,z"]
    kinds = [draw(st.sampled_from(["integer", "any"])) for _ in range(3)]
    for _ in range(count):
        if draw(st.integers(0, 5)) == 0:
            lines.append("")
        fields = []
        width = draw(st.sampled_from([3, 3, 3, 3, 2, 4]))
        for index in range(width):
            integer = kinds[index % 3] == "integer"
            field = draw(st.integers(-500, 500).map(str) if integer else FIELDS)
            needs = any(mark in field for mark in '",\r\n')
            fields.append(quoted(field) if needs or draw(st.integers(0, 5)) == 0 else field)
        lines.append(",".join(fields))
    text = end.join(lines)
    return text + (end if draw(st.booleans()) else "")


def expected_csv(text: str) -> tuple[list[list[str]], list[int], list[int]]:
    """Return rows, the lines at which they begin, and those of records of another width."""
    rows, lines, wrong = [], [], []
    reader = csv.reader(io.StringIO(text, ""))
    before = 0
    for number, row in enumerate(reader):
        line, before = before + 1, reader.line_num
        if number == 0 or not row:
            continue
        if len(row) == 3:
            rows.append(row)
            lines.append(line)
        else:
            wrong.append(line)
    return rows, lines, wrong


@LAW
@given(
    text=tables(),
    chunk=st.sampled_from([1, 2, 3, 5, 16, 1 << 22]),
    block=st.sampled_from([1, 20, 1 << 22]),
)
def test_every_value_and_line_of_csv_is_what_pythons_reader_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, chunk: int, block: int
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    monkeypatch.setattr(table_read, "CHUNK_NBYTES", chunk)
    monkeypatch.setattr(table_read, "BLOCK_NBYTES", block)
    rows, lines, wrong = expected_csv(text)
    blocks = read(path, null_values=())
    assert [int(line) for parsed in blocks for line in parsed.rows] == lines
    assert [error.key for parsed in blocks for error in parsed.errors] == [
        f"a.csv:{line}" for line in wrong
    ]
    for index, name in enumerate("xyz"):
        found = values_of(blocks, name)
        assert [str(value) for value in found] == [row[index] for row in rows]
        for parsed in blocks:
            column = parsed.table.column(name)
            canonical = all(
                re.fullmatch("0|-?[1-9][0-9]*", str(v)) and -(1 << 63) <= int(v) < 1 << 63
                for v in column.to_pylist()
            )
            kind = str(column.type)
            assert (kind in {"int8", "int16", "int32", "int64"}) == (canonical and len(column) > 0)


AS_INTEGERS = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1).map(str),
    st.integers(0, (1 << 64) - 1).map(hex),
    st.integers(0, 1 << 34).map(lambda number: f"{number:#X}"),
    st.integers(-99, 99).map(str),
    st.integers(-99, 99).map(lambda number: f"{number:04}"),
    st.sampled_from(["", "NA", "-0", "+5", " 5", "5 ", '"5"', '""', "1e3", "5.0", str(1 << 63)]),
)
"""What Arrow takes for whole numbers, and what looks like them."""

BESIDE = st.sampled_from(["a", "ab", "", "0x1", "x", '"a"', '"a\nb"', '"\n\n"', '"\n\n\n"'])


@LAW
@given(
    rows=st.lists(st.tuples(AS_INTEGERS, BESIDE, AS_INTEGERS), max_size=6),
    end=st.sampled_from(["\n", "\r\n", "\n\n", "\r"]),
    last=st.booleans(),
)
def test_numbers_that_are_read_as_such_are_what_their_texts_say(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[tuple[str, str, str]],
    end: str,
    last: bool,
) -> None:
    text = end.join(["x,y,z", "1,a,2", *map(",".join, rows)])
    (tmp_path / "a.csv").write_bytes((text + end * last).encode())
    found = []
    for plain in (True, False):
        # What the first record looks like is all that is known of the others.
        guess = Guess(frozenset({0, 2}), plain)
        monkeypatch.setattr(table_read, "guess_columns", lambda *_, guess=guess: guess)
        found.append(read(tmp_path / "a.csv"))
    for one, other in zip(*found, strict=True):
        assert one.table.equals(other.table)
        assert one.table.schema == other.table.schema
        assert one.evidence == other.evidence
        assert one.rows.tolist() == other.rows.tolist()
        assert one.errors == other.errors


@LAW
@given(text=tables())
def test_unquoted_fields_alone_are_missing_values(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    rows, _, _ = expected_csv(text)
    marked = re.sub('""', "\0", text)
    blocks = read(path)
    for index, name in enumerate("xyz"):
        found = values_of(blocks, name)
        for row, value in zip(rows, found, strict=True):
            if value is None:
                assert row[index] in TableOptions().null_values
            else:
                assert str(value) == row[index]
                quotes = '"' in marked or "\0" in marked
                assert row[index] not in TableOptions().null_values or quotes


JSON_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.integers(-9, 9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4).filter(lambda text: text.isprintable()),
    st.sampled_from(["2024-01-01", "2024-01-01 10:00:00", "2024-01-01T00:00:00Z", "1", "true"]),
)


@st.composite
def json_columns(draw: st.DrawFn) -> list[dict[str, object]]:
    kinds = {
        "a": JSON_VALUES,
        "b": st.integers(-5, 1 << 60),
        "c": st.one_of(st.none(), st.floats(-1e6, 1e6)),
        "d": st.sampled_from(["2024-01-01", "x", "2024-01-01 00:00:00"]),
        "e": st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=3),
        "f": st.lists(st.sampled_from([None, "p", "2024-01-01"]), max_size=2),
        "g": st.lists(st.one_of(st.none(), st.floats(-9, 9)), max_size=3),
    }
    names = draw(st.lists(st.sampled_from(sorted(kinds)), unique=True, min_size=1))
    return [
        {name: draw(kinds[name]) for name in names if draw(st.integers(0, 9))}
        for _ in range(draw(st.integers(1, 8)))
    ]


@LAW
@given(records=json_columns(), chunk=st.sampled_from([1, 40, 1 << 22]))
def test_every_value_and_line_of_json_is_what_pythons_reader_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: list[dict[str, object]], chunk: int
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(record) for record in records))
    monkeypatch.setattr(text_bytes, "BLOCK_NBYTES", chunk)
    blocks = read(path)
    lines = [line for line, record in enumerate(records, 1) if record]
    records = [record for record in records if record]
    assert [line for block in blocks for line in block.rows.tolist()] == lines
    for name in sorted({name for record in records for name in record}):
        found: list[object] = []
        for block in blocks:
            if name in block.table.column_names:
                found += block.table.column(name).to_pylist()
            else:
                found += [None] * len(block.rows)
        for record, value in zip(records, found, strict=True):
            expected = record.get(name)
            if isinstance(value, str) and not isinstance(expected, str):
                # A whole float is one category with the whole number.
                is_float = isinstance(expected, float)
                said = number_text(expected) if is_float else json.dumps(expected)  # type: ignore[arg-type]
                assert value == said
            else:
                assert value == expected
                assert isinstance(value, bool) == isinstance(expected, bool)


@LAW
@given(st.lists(st.lists(FIELDS, max_size=4), min_size=3, max_size=3))
def test_evidence_is_merged_in_any_grouping(parts: list[list[str]]) -> None:
    import pyarrow as pa

    from preprocess.tables.evidence import text_evidence

    options = TableOptions()
    found = []
    for number, part in enumerate(parts):
        column = pa.array(part, pa.large_string()).dictionary_encode()
        found.append(text_evidence(column, f"{number}:{{}}".format, options))
    one, two, three = found
    assert one.merged(two).merged(three) == one.merged(two.merged(three))
    together = pa.array([v for part in parts for v in part], pa.large_string())
    whole = text_evidence(together.dictionary_encode(), str, options)
    merged = one.merged(two).merged(three)
    exact = ["float32_exact"] if "float" in whole.kinds else []
    for name in ["count", "missing", "kinds", "minimum", "maximum", "exponent", *exact]:
        assert getattr(merged, name) == getattr(whole, name), name
    assert {k: v[0] for k, v in merged.not_kind.items()} == {
        k: v[0] for k, v in whole.not_kind.items()
    }


def test_a_file_of_quotes_that_are_not_paired_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('x,y\n1,2\n3,"4\n5,6\n')
    with pytest.raises(SampleError, match="line 3: a quote that is never closed"):
        read(path)


NUMBERISH = st.one_of(
    st.text("0123456789.", min_size=1, max_size=5),
    st.text("01.9-+eE xif", min_size=1, max_size=5),
    st.floats().map(repr),
    st.decimals(-1000, 1000, places=3).map(str),
)
FLOAT = (
    r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
    r"|(?i:-?(?:inf|infinity)|nan)"
)


@LAW
@given(values=st.lists(NUMBERISH, min_size=1, max_size=4))
def test_floats_are_found_as_the_pattern_says(values: list[str]) -> None:
    import pyarrow as pa

    # Behind as many as are looked at one by one.
    column = pa.array([*["1.5"] * 16, *values], pa.large_string())
    wrong = [index for index, value in enumerate(values) if re.fullmatch(FLOAT, value) is None]
    expected = 16 + wrong[0] if wrong else None
    assert first_not(column, "float", TableOptions()) == expected


@LAW
@given(values=st.lists(st.decimals(-1000, 1000, places=3), min_size=1, max_size=6))
def test_decimal_places_are_those_that_are_needed(values: list[Decimal]) -> None:
    import pyarrow as pa

    needed = [max(0, -int(value.normalize().as_tuple().exponent)) for value in values]
    column = pa.array([str(value) for value in values], pa.large_string())
    assert decimal_places(column, TableOptions()) == max(needed)
    assert decimal_places(column[1:], TableOptions()) == max(needed[1:], default=0)


@LAW
@given(values=st.lists(st.one_of(NUMBERISH, st.integers().map(str)), min_size=1, max_size=3))
def test_whole_numbers_are_those_that_str_gives_back(values: list[str]) -> None:
    import pyarrow as pa

    canonical = [re.fullmatch("0|-?[1-9][0-9]*", value) is not None for value in values]
    fits = all(canonical) and all(-(1 << 63) <= int(value) < 1 << 63 for value in values)
    for kind in (pa.string(), pa.large_string()):
        found = as_integers(pa.array([None, *values, None], kind))
        assert (found is not None) == fits
        if found is not None:
            assert found.to_pylist() == [None, *map(int, values), None]
