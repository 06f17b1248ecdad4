"""What columns become is decided by all their values; what cannot be is refused by name."""

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.errors import SourceError
from preprocess.tables.block import Evidence
from preprocess.tables.options import TableOptions
from preprocess.tables.schema import decide
from preprocess.tables.toml import KINDS, Wish, read_wishes, write_wishes
from tests.table_parsed import csv_blocks, fit_blocks, spill_blocks, table_blocks


def planned(folder, blocks, options=None, wishes=None):
    options = options or TableOptions()
    spilled = spill_blocks(folder, blocks, options)
    return {p.name: p for p in decide(spilled.evidence, spilled.columns, options, wishes)}


def kinds(folder, text, size=1 << 20, **options):
    found = planned(folder, csv_blocks(text, size), TableOptions(**options))
    return {name: plan.kind for name, plan in found.items()}


def test_kinds_follow_from_all_values_of_a_column(tmp_path):
    text = (
        "i,f,b,d,t,s,z,n,late\n"
        "1,1.5,true,2024-01-31,2024-01-31T10:00:00Z,x,007,0,1\n"
        "-2,2,False,2024-02-29,2024-01-31 10:00,1,008,1,2\n"
        ",1e5,TRUE,,,,,0,x\n"
    )
    for size in (1, 2, 3):
        assert kinds(tmp_path, text, size) == {
            "i": "integer",
            "f": "float",
            "b": "boolean",
            "d": "date",
            "t": "datetime",
            "s": "categorical",
            "z": "categorical",
            "n": "integer",
            "late": "categorical",
        }


def test_types_of_arrow_are_kept(tmp_path):
    import pyarrow as pa

    table = pa.table(
        {
            "b": [True, None],
            "d": pa.array([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(10, 2)),
            "day": [dt.date(2024, 1, 1), None],
            "time": pa.array([dt.time(1), None], pa.time64("us")),
            "v": [[1, 2], [3, 4]],
        }
    )
    found = planned(tmp_path, table_blocks(table))
    assert {name: plan.kind for name, plan in found.items()} == {
        "b": "boolean",
        "d": "decimal",
        "day": "date",
        "time": "integer",
        "v": "vector",
    }
    assert found["d"].exponent == -2
    assert found["time"].notes == ("column 'time': times of day, as whole microseconds",)


def test_empty_columns_are_left_out_with_a_note(tmp_path):
    found = planned(tmp_path, csv_blocks("a,b\n1,\n2,\n"))
    assert found["b"].kind == "left_out"
    fitted = fit_blocks(tmp_path, csv_blocks("a,b\n1,\n2,\n"))
    assert "columns 'b': no value in any row, and left out" in fitted.notes
    kept = planned(tmp_path, csv_blocks("a,b\n,\n,\n"))
    assert {plan.kind for plan in kept.values()} == {"integer"}
    with pytest.raises(SourceError, match="target 'b': missing in all 2 rows"):
        planned(tmp_path, csv_blocks("a,b\n1,\n2,\n"), TableOptions(target="b"))


def test_text_that_looks_like_numbers_says_why_it_is_text(tmp_path):
    text = "zero;comma;dots\n007;1,5;1.000.000\n008;2,5;2.000.000\n".replace(";", "\t")
    blocks = list(csv_blocks(text.replace("\t", "|").replace("|", "\t")))
    raw = [
        type(b)(
            key=b.key,
            kind="csv",
            first=b.first,
            data=b.data,
            names=("zero", "comma", "dots"),
            delimiter="\t",
        )
        for b in blocks
    ]
    found = planned(tmp_path, raw)
    assert "such as '007' at a.csv:2" in found["zero"].notes[0]
    assert found["comma"].notes == (
        "a.csv:2: column 'comma': text; if '1,5' is a number, say --decimal ,",
    )
    assert found["dots"].notes == (
        "a.csv:2: column 'dots': text; if '1.000.000' is a number, say --thousands",
    )


def test_what_the_user_says_goes_before_what_is_there(tmp_path):
    text = "a,b,c,d\n1,1,1,x\n2,2,2,y\n"
    found = planned(
        tmp_path,
        csv_blocks(text),
        TableOptions(categorical=("a",), ignore=("b",)),
        {"c": Wish(kind="float"), "a": Wish(kind="ignore"), "d": Wish(kind="ignore")},
    )
    assert {name: plan.kind for name, plan in found.items()} == {"a": "categorical", "c": "float"}


def test_words_in_a_column_that_must_be_numbers_are_refused_by_line(tmp_path):
    text = "a\n1\n2\nx\ny\n"
    for options, wishes in (
        (TableOptions(numeric=("a",)), {}),
        (TableOptions(), {"a": Wish(kind="float")}),
    ):
        with pytest.raises(SourceError, match=r"^a.csv:4: column 'a': 'x' is not a number"):
            planned(tmp_path, csv_blocks(text, 2), options, wishes)


def test_numbers_beyond_64_bits_are_refused_by_name_and_kept_as_categories(tmp_path):
    text = f"a,b\n{1 << 64},1\n2,2\n"
    with pytest.raises(SourceError, match="column 'a': 18446744073709551616 is beyond 64 bits"):
        planned(tmp_path, csv_blocks(text))
    fitted = fit_blocks(tmp_path, csv_blocks(text), TableOptions(categorical=("a",)))
    assert b'"18446744073709551616"' in fitted.vocabularies["table/vocabulary/0000.json"]


def test_columns_that_there_are_not_are_named_with_those_that_there_are(tmp_path):
    for options in (
        TableOptions(target="y"),
        TableOptions(numeric=("y",)),
        TableOptions(test=0.1, group_by="y"),
    ):
        with pytest.raises(SourceError, match="'y': no such column; there are 'a', 'b'"):
            planned(tmp_path, csv_blocks("a,b\n1,2\n"), options)


def test_what_no_number_stands_for_is_refused_with_the_remedy(tmp_path):
    import pyarrow as pa

    table = pa.table({"m": [[{"x": 1}], [{"x": 2}]], "n": [b"\x00", b"\xff"], "a": [1, 2]})
    with pytest.raises(SourceError) as caught:
        planned(tmp_path, table_blocks(table))
    said = str(caught.value)
    assert "column 'm': holds list<item: struct" in said
    assert "--ignore m" in said
    assert "a.parquet:2: column 'n': holds binary" in said
    found = planned(tmp_path, table_blocks(table), TableOptions(ignore=("m", "n")))
    assert list(found) == ["a"]


def test_types_that_exclude_each_other_are_refused():
    evidence = {"a": Evidence(count=2, missing=0, kinds=frozenset())}
    with pytest.raises(SourceError, match="column 'a': holds values of different types"):
        decide(evidence, ["a"], TableOptions())


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["x", "y"] * 10, "classification"),
        (["true", "false"] * 10, "classification"),
        ([str(n % 3) for n in range(40)], "classification"),
        ([str(n % 20 * 1000) for n in range(60)], "classification"),
        ([str(n % 21 * 1000) for n in range(63)], "regression"),
        ([f"{n}.5" for n in range(20)], "regression"),
    ],
)
def test_the_task_follows_from_the_target_and_a_note_says_which(tmp_path, values, task):
    text = "x,y\n" + "".join(f"{n},{value}\n" for n, value in enumerate(values))
    fitted = fit_blocks(tmp_path, csv_blocks(text, 7), TableOptions(target="y"))
    assert fitted.task == task
    assert f"target 'y': {task}; --task says otherwise" in fitted.notes
    spec = fitted.schema.column("y")
    assert (spec.kind == "categorical") == (task == "classification")
    asked = TableOptions(target="y", task="classification")
    assert fit_blocks(tmp_path, csv_blocks(text), asked).task == "classification"


def test_classes_are_in_ascending_order_and_of_all_splits(tmp_path):
    import json

    values = ["10", "9", "2"] * 10
    text = "x,y\n" + "".join(f"{n},{value}\n" for n, value in enumerate(values))
    options = TableOptions(target="y", test=0.4)
    fitted = fit_blocks(tmp_path, csv_blocks(text), options)
    found = json.loads(fitted.vocabularies["table/vocabulary/0001.json"])
    assert found["values"] == ["2", "9", "10"]
    assert sum(found["counts"]) == fitted.counts[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x,y\n1,2.5\n2,inf\n", r"^a.csv:3: target 'y': inf cannot be learned"),
        ("x,y\n1,2.5\n2,2.5\n", r"^a.csv:2: target 'y': constant: every row has '2.5'"),
        ("x,y\n1,a\n2,a\n3,\n", r"^a.csv:2: target 'y': constant: every row has 'a'"),
        ("x,y\n1,2\n", r"^a.csv:2: target 'y': constant"),
    ],
)
def test_targets_that_cannot_be_learned_are_refused_by_line(tmp_path, text, said):
    with pytest.raises(SourceError, match=said):
        fit_blocks(tmp_path, csv_blocks(text), TableOptions(target="y"))


def test_a_target_that_is_not_a_number_is_refused_and_a_missing_one_skipped(tmp_path):
    import pyarrow as pa

    table = pa.table({"x": [1, 2, 3, 4], "y": [1.0, None, 2.5, float("nan")]})
    with pytest.raises(SourceError, match=r"^a.parquet:4: target 'y': nan cannot be learned"):
        fit_blocks(tmp_path, table_blocks(table), TableOptions(target="y"))
    fitted = fit_blocks(tmp_path, table_blocks(table[:3]), TableOptions(target="y"))
    assert (fitted.skipped, fitted.counts) == (1, (2, 0, 0))
    assert fitted.splits[0].tolist() == [0, 255, 0]
    with pytest.raises(SourceError, match="target 'v': expected one number or class"):
        fit_blocks(tmp_path, table_blocks(pa.table({"v": [[1], [2]]})), TableOptions(target="v"))


def test_parts_of_times_stand_behind_them_and_no_column_is_taken_for_one(tmp_path):
    text = "d,t,x\n2024-01-31,2024-01-31T10:00:00Z,1\n2024-02-29,2024-01-31 10:00,2\n"
    found = planned(tmp_path, csv_blocks(text), TableOptions(datetime_parts=True))
    assert list(found) == [
        "d", "d.year", "d.month", "d.day", "d.weekday",
        "t", "t.year", "t.month", "t.day", "t.weekday", "t.hour", "x",
    ]  # fmt: skip
    with pytest.raises(SourceError, match=r"column 'd.year': named like a part of 'd'"):
        planned(tmp_path, csv_blocks("d,d.year\n2024-01-31,1\n"))


NAMES = st.text(min_size=1).filter(lambda s: not any(0xD800 <= ord(c) <= 0xDFFF for c in s))
CODED = st.builds(
    Wish,
    kind=st.sampled_from([None, "categorical"]),
    dtype=st.sampled_from([None, "uint16"]),
    buckets=st.one_of(st.none(), st.integers(1, 1 << 20)),
)
WISHES = st.one_of(
    CODED,
    st.builds(Wish, kind=st.just("categorical"), min_count=st.integers(1, 9)),
    st.builds(Wish, kind=st.sampled_from([None, *KINDS]), dtype=st.sampled_from([None, "int64"])),
)


@given(wishes=st.dictionaries(NAMES, WISHES, max_size=5))
def test_a_schema_file_is_read_as_it_was_written(tmp_path_factory, wishes):
    path = tmp_path_factory.mktemp("wishes") / "schema.toml"
    path.write_bytes(write_wishes(wishes).encode())
    assert read_wishes(path) == wishes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", r"expected tables \[columns.NAME\]"),
        ("[columns.a]\nkind = 3", 'columns."a".kind: got 3'),
        ("[columns.a]\nkind = 'number'", "expected one of"),
        ("[columns.a]\ndtype = 'uint32'", "expected one of"),
        ("[columns.a]\nbuckets = true", 'columns."a".buckets: got True'),
        ("[columns.a]\ncolour = 3", r"got \['colour'\]"),
        ("[columns.a]\nkind = 'float'\nbuckets = 3", "of kind categorical alone"),
        ("[columns.a]\nbuckets = 3\nmin_count = 3", "drop min_count"),
        ("[columns", "not TOML"),
        ("[columns]\na = 3", "got 3"),
    ],
)
def test_a_schema_file_that_asks_for_what_there_is_not_is_refused_by_key(tmp_path, text, said):
    path = tmp_path / "schema.toml"
    path.write_text(text)
    with pytest.raises(SourceError, match=said):
        read_wishes(path)
    with pytest.raises(SourceError, match="cannot be read"):
        read_wishes(tmp_path / "absent.toml")
