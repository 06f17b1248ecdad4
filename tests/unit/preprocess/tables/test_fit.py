"""Stored types hold every value of every split; statistics are of train alone."""

import datetime as dt
import statistics
from decimal import Decimal
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preprocess.errors import SourceError
from preprocess.tables import fit_numbers as table_fit_numbers
from preprocess.tables import quantiles as table_quantiles
from preprocess.tables.options import TableOptions
from preprocess.tables.schema import decide
from preprocess.tables.toml import Wish
from tests.table_parsed import csv_blocks, fit_blocks, spill_blocks, table_blocks


def column(values, name="a"):
    return f"{name},k\n" + "".join(f"{value},0\n" for value in values)


def spec_of(folder, values, size=1 << 20, wish=None, **options):
    wishes = {} if wish is None else {"a": wish}
    blocks = csv_blocks(column(values), size)
    return fit_blocks(folder, blocks, TableOptions(**options), wishes).schema.column("a")


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 254, "uint8"),
        (1000, 1254, "uint8"),
        (0, 255, "uint16"),
        (-5, 65529, "uint16"),
        (0, 65535, "int32"),
        (10**15, 10**15 + (1 << 31) - 2, "int32"),
        (0, (1 << 31) - 1, "int64"),
        (-(1 << 62), (1 << 62) - 2, "int64"),
    ],
)
def test_integers_have_the_narrowest_type_that_holds_their_range(tmp_path, low, high, dtype):
    spec = spec_of(tmp_path, [low, "", high])
    assert (spec.kind, spec.dtype, spec.offset) == ("integer", dtype, low)


def test_the_range_is_of_all_splits_and_the_statistics_of_train(tmp_path):
    values = [*range(100), 1000]
    fitted = fit_blocks(
        tmp_path,
        csv_blocks("t,a\n" + "".join(f"{v},{v}\n" for v in values), 9),
        TableOptions(test=0.1, split_by_time="t"),
    )
    spec = fitted.schema.column("a")
    train = values[: fitted.counts[0]]
    assert fitted.counts == (91, 0, 10)
    assert (spec.offset, spec.dtype) == (0, "uint16")
    assert (spec.statistics.count, spec.statistics.maximum) == (91, 90)
    assert spec.statistics.mean == statistics.mean(train)
    assert spec.statistics.std == statistics.pstdev(train)


def test_a_type_that_does_not_hold_a_value_is_refused_by_line_and_never_wraps(tmp_path):
    values = [*range(300), 70_000, 80_000]
    for kind in (None, "integer"):
        with pytest.raises(SourceError, match=r"^a.csv:302: column 'a': 70000 is beyond 0..65534"):
            spec_of(tmp_path, values, 50, wish=Wish(kind=kind, dtype="uint16"))
    assert spec_of(tmp_path, values, wish=Wish(dtype="int64")).dtype == "int64"
    assert spec_of(tmp_path, values, wish=Wish(dtype="float32")).kind == "float"
    with pytest.raises(SourceError, match="column 'a': uint8 is no type of kind float"):
        spec_of(tmp_path, ["1e5"], wish=Wish(dtype="uint8"))


def test_floats_are_float32_where_every_value_survives_or_it_is_asked_for(tmp_path):
    assert spec_of(tmp_path, ["0.5", "", "1e10"]).dtype == "float32"
    spec = spec_of(tmp_path, ["0.1", "0.5", "1e-300"])
    assert (spec.dtype, spec.losses) == ("float64", ())
    values = ["0.1", "0.5", "1234567.891", "0.1", "inf", ""]
    for options, wish in (
        ({"float32": ("a",)}, None),
        ({"float32": ("*",)}, None),
        ({}, Wish(dtype="float32")),
    ):
        spec = spec_of(tmp_path, values, 2, wish=wish, **options)
        (loss,) = spec.losses
        assert (spec.dtype, loss.what, loss.values) == ("float32", "rounded to float32", 3)
        assert loss.worst == abs(float(np.float32(1234567.891)) - 1234567.891)
    with pytest.raises(SourceError, match=r"^a.csv:3: column 'a': 1e200 is beyond the range"):
        spec_of(tmp_path, ["0.1", "1e200"], float32=("a",))
    assert spec_of(tmp_path, ["0.5"], wish=Wish(dtype="float64")).dtype == "float64"


def test_whole_numbers_that_float64_does_not_hold_are_listed(tmp_path):
    for size in (1, 100):
        spec = spec_of(tmp_path, ["9007199254740993", "0.5", "9007199254740992", "0.5"], size)
        (loss,) = spec.losses
        assert (spec.dtype, loss.values, loss.worst) == ("float64", 1, 1.0)


def test_infinite_values_are_kept_and_left_out_of_the_statistics(tmp_path):
    fitted = fit_blocks(tmp_path, csv_blocks(column(["1.5", "inf", "2.5", "", "-inf"])))
    found = fitted.schema.column("a").statistics
    assert (found.count, found.missing, found.mean, found.maximum) == (5, 1, 2.0, 2.5)
    assert any(note.startswith("column 'a': 2 infinite values in train") for note in fitted.notes)


def test_dates_times_decimals_and_truth_values_are_whole_numbers_with_an_offset(tmp_path):
    import pyarrow as pa

    utc = dt.UTC
    table = pa.table(
        {
            "day": [dt.date(2024, 1, 1), None, dt.date(2024, 9, 1)],
            "time": pa.array(
                [
                    dt.datetime(2024, 1, 1, 12, tzinfo=utc),
                    None,
                    dt.datetime(2024, 1, 1, 12, 0, 0, 5, tzinfo=utc),
                ],
                pa.timestamp("us", "UTC"),
            ),
            "money": pa.array([Decimal("1.50"), Decimal("-0.25"), None], pa.decimal128(20, 3)),
            "flag": [True, None, False],
        }
    )
    fitted = fit_blocks(tmp_path, table_blocks(table, 2))
    day, time, money, flag = fitted.schema.columns
    assert (day.dtype, day.offset) == ("uint8", 19723)
    assert (time.dtype, time.offset) == ("uint8", 1704110400000000)
    assert (money.kind, money.dtype, money.offset, money.exponent) == ("decimal", "uint8", -25, -2)
    assert (money.statistics.mean, money.statistics.minimum) == (0.625, -0.25)
    assert (flag.dtype, flag.offset, flag.statistics.mean) == ("uint8", 0, 0.5)


def test_decimals_of_files_with_other_places_have_one_unit(tmp_path):
    import pyarrow as pa

    parts = [
        pa.table({"m": pa.array([Decimal("1.5")], pa.decimal128(5, 1))}),
        pa.table({"m": pa.array([Decimal("1.125")], pa.decimal128(9, 4))}),
    ]
    blocks = [block for n, part in enumerate(parts) for block in table_blocks(part, key=f"{n}.pq")]
    spec = fit_blocks(tmp_path, blocks).schema.column("m")
    assert (spec.exponent, spec.offset) == (-3, 1125)
    assert spec.statistics.maximum == 1.5


def test_decimals_beyond_64_bits_are_refused(tmp_path):
    import pyarrow as pa

    table = pa.table({"m": pa.array([Decimal(1 << 70), Decimal(1)], pa.decimal128(38, 0))})
    with pytest.raises(SourceError, match=r"column 'm': .* beyond 64 bits"):
        fit_blocks(tmp_path, table_blocks(table))


def test_vectors_have_the_narrowest_type_and_one_length(tmp_path):
    import pyarrow as pa

    table = pa.table(
        {
            "whole": [[1, 2], [3, None], None],
            "exact": [[0.5, 1.0], [2.0, None], None],
            "fine": [[0.1, 1.0], [2.0, None], None],
        }
    )
    whole, exact, fine = fit_blocks(tmp_path, table_blocks(table, 2)).schema.columns
    assert (whole.dtype, whole.offset, whole.length) == ("uint8", 1, 2)
    assert (exact.dtype, fine.dtype, fine.length) == ("float32", "float64", 2)


def test_lists_of_several_lengths_are_fitted_by_their_values(tmp_path):
    import pyarrow as pa

    lists = [[1, 2], [3], None, [], [None, 300]]
    table = pa.table({"v": lists, "long": [[0.1] * (7 * n) for n in range(5)]})
    short, long = fit_blocks(tmp_path, table_blocks(table, 2)).schema.columns
    assert (short.dtype, short.offset, short.length, short.layout) == ("uint16", 1, 2, "padded")
    assert (long.dtype, long.length, long.layout) == ("float64", 28, "ragged")
    found = short.statistics
    assert (found.count, found.missing, found.mean, found.maximum) == (5, 1, 76.5, 300)
    assert long.statistics.count == 70


@pytest.mark.parametrize("more", [[], [0.25]])
def test_whole_numbers_in_lists_of_floats_that_float64_does_not_hold_are_listed(tmp_path, more):
    import pyarrow as pa

    whole = pa.table({"v": [[(1 << 53) + 1, 3], [None, 1 << 53]]})
    floats = pa.table({"v": [[0.5, 1.0], [*more, 2.0]]})
    blocks = [*table_blocks(whole), *table_blocks(floats, key="b.parquet")]
    spec = fit_blocks(tmp_path, blocks, TableOptions()).schema.column("v")
    assert (spec.dtype, spec.layout) == ("float64", "fixed" if more else "padded")
    assert [(loss.values, loss.worst) for loss in spec.losses] == [(1, 1.0)]


def test_parts_of_times_are_columns_of_their_own(tmp_path):
    text = "d,x\n2024-02-29,1\n,2\n1969-12-31,3\n"
    fitted = fit_blocks(tmp_path, csv_blocks(text), TableOptions(datetime_parts=True))
    year, weekday = (fitted.schema.column(f"d.{part}") for part in ("year", "weekday"))
    assert (year.offset, year.statistics.maximum, year.statistics.missing) == (1969, 2024, 1)
    assert weekday.statistics.mean == 2.5  # a Thursday and a Wednesday
    assert fitted.sources["d.year"] == ("d", "year")


def test_a_constant_has_no_deviation_and_is_named(tmp_path):
    fitted = fit_blocks(tmp_path, csv_blocks(column(["5", "5", "5"])))
    assert fitted.schema.column("a").statistics.std == 0.0
    said = "columns 'a', 'k': the same value in all rows of train that have one, and no deviation"
    assert said in fitted.notes


INTEGERS = st.integers(-(10**18), 10**18).map(str)
FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(repr)
NUMBERS = st.one_of(
    st.lists(INTEGERS, min_size=1, max_size=40),
    st.lists(st.one_of(st.just(""), INTEGERS, FLOATS), min_size=1, max_size=40),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(NUMBERS, st.integers(1, 40), st.integers(0, 5))
def test_statistics_of_a_table_are_exact_whatever_is_held(tmp_path, values, size, held):
    floats = any("." in value or "e" in value for value in values)
    exact = [Fraction(float(value)) if floats else Fraction(value) for value in values if value]
    blocks = list(csv_blocks(column(values), size))
    whole = fit_blocks(tmp_path / "a", csv_blocks(column(values))).schema
    with (
        mock.patch.object(table_fit_numbers, "HELD", held),
        mock.patch.object(table_quantiles, "HELD", held),
    ):
        cut = fit_blocks(tmp_path / "b", blocks).schema
    assert cut == whole
    found = cut.columns[0].statistics if cut.columns[0].name == "a" else None
    if not exact:
        assert found is None
        return
    assert found.missing == len(values) - len(exact)
    assert found.mean == float(sum(exact) / len(exact))
    assert found.std == statistics.pstdev(exact)
    assert (found.minimum, found.maximum) == (min(exact), max(exact))


def test_a_column_that_some_records_lack_is_missing_there(tmp_path):
    from preprocess.tables.raw_block import RawBlock

    blocks = [
        RawBlock(key="a.jsonl", kind="json", first=1, data=b'{"a": 1}\n{"a": 2, "b": "x"}\n'),
        RawBlock(key="a.jsonl", kind="json", first=3, data=b'{"a": 3}\n'),
    ]
    options = TableOptions()
    spilled = spill_blocks(tmp_path, blocks, options)
    assert decide(spilled.evidence, ["a", "b"], options)[1].kind == "categorical"
    fitted = fit_blocks(tmp_path, blocks)
    assert fitted.schema.column("a").statistics.count == 3
