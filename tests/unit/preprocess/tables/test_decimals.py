"""Written decimals: whole numbers of units where that is narrower, and no value another one."""

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.errors import SourceError
from preprocess.tables.decimals import NO_MULTIPLE, places_of_floats, units_of
from preprocess.tables.options import TableOptions
from preprocess.tables.text import decimal_places
from preprocess.tables.toml import Wish
from tests.table_parsed import csv_blocks, fit_blocks

NONE = TableOptions()
DIGITS = st.integers(1 - 10**15, 10**15 - 1)


def spec_of(folder: Path, values: list[str], size: int = 1 << 20, **options: Any) -> Any:
    wish = options.pop("wish", None)
    text = "a,k\n" + "".join(f"{value},0\n" for value in values)
    wishes = {} if wish is None else {"a": wish}
    fitted = fit_blocks(folder, csv_blocks(text, size), TableOptions(**options), wishes)
    return fitted.schema.column("a")


@pytest.mark.parametrize(
    ("values", "kind", "dtype", "offset", "exponent"),
    [
        (["9.95", "10.00", "-3.5", ""], "decimal", "uint16", -350, -2),
        (["1.0", "31.0"], "decimal", "uint8", 1, 0),
        (["5", "0.5"], "decimal", "uint8", 5, -1),
        ([".5", "7."], "decimal", "uint8", 5, -1),
        (["1000000000.01", "1000000000.02"], "decimal", "uint8", 100000000001, -2),
        (["0.01", "21474836.47"], "decimal", "int32", 1, -2),
        (["0.00", "21474836.47"], "float", "float64", 0, 0),  # int64 would be as wide
        (["0.5", "1000.25"], "float", "float32", 0, 0),  # int32 would be as wide
        (["0.5", "100.25"], "decimal", "uint16", 50, -2),
        (["0.5", "1e-1"], "float", "float64", 0, 0),
        (["0.5", "inf"], "float", "float32", 0, 0),
        (["0.1", "-0.0"], "float", "float64", 0, 0),  # the sign would be lost
        (["0.1", "-0.000"], "float", "float64", 0, 0),
        (["9999999999999.95", "9999999999999.96"], "decimal", "uint8", 999999999999995, -2),
        (["99999999999999.95", "99999999999999.96"], "float", "float64", 0, 0),  # 16 digits
        (["0.0000000000000001", "0.1"], "float", "float64", 0, 0),
    ],
)
def test_numbers_with_few_places_are_units_where_that_is_narrower(
    tmp_path: Path, values: list[str], kind: str, dtype: str, offset: int, exponent: int
) -> None:
    spec = spec_of(tmp_path, values)
    found = (spec.kind, spec.dtype, spec.offset, spec.exponent)
    assert found == (kind, dtype, offset, exponent)
    assert spec.losses == ()


def test_what_is_asked_for_goes_before_what_is_narrower(tmp_path: Path) -> None:
    values = ["9.95", "10.00", ""]
    assert spec_of(tmp_path, values, float32=("a",)).dtype == "float32"
    assert spec_of(tmp_path, values, float32=("*",)).dtype == "float32"
    assert spec_of(tmp_path, values, wish=Wish(kind="float")).dtype == "float64"
    assert spec_of(tmp_path, values, wish=Wish(dtype="float64")).kind == "float"
    assert spec_of(tmp_path, values, numeric=("a",)).kind == "decimal"
    assert spec_of(tmp_path, values, categorical=("a",)).kind == "categorical"
    spec = spec_of(tmp_path, values, wish=Wish(dtype="int32"))
    assert (spec.kind, spec.dtype) == ("decimal", "int32")
    spec = spec_of(tmp_path, ["0.00", "21474836.47"], wish=Wish(kind="decimal"))
    assert (spec.kind, spec.dtype) == ("decimal", "int64")
    with pytest.raises(SourceError, match=r"is beyond 995\.\.1249"):
        spec_of(tmp_path, ["9.95", "70"], wish=Wish(dtype="uint8"))


def test_the_statistics_are_those_of_the_values(tmp_path: Path) -> None:
    found = spec_of(tmp_path, ["9.95", "10.05", "", "-3.5"]).statistics
    assert (found.count, found.missing, found.minimum, found.maximum) == (4, 1, -3.5, 10.05)
    assert found.mean == float(Decimal("16.5") / 3)


def test_marks_of_another_country_are_those_of_decimals_too(tmp_path: Path) -> None:
    text = "a;k\n1.234,50;0\n-0,05;0\n"
    blocks = csv_blocks(text.replace(";", "|"))
    raw = [type(b)(**{**_fields(b), "names": ("a", "k"), "delimiter": "|"}) for b in blocks]
    fitted = fit_blocks(tmp_path, raw, TableOptions(decimal=",", thousands="."))
    spec = fitted.schema.column("a")
    assert (spec.kind, spec.offset, spec.exponent) == ("decimal", -5, -2)


def _fields(block: Any) -> dict[str, Any]:
    return {name: getattr(block, name) for name in block.__dataclass_fields__}


@settings(deadline=None)
@given(st.lists(st.tuples(DIGITS, st.integers(0, 15)), min_size=1, max_size=80))
def test_units_give_back_the_very_float_and_decimal(pairs: list[tuple[int, int]]) -> None:
    places = max(places for _, places in pairs)
    whole = [units - int(math.fmod(units, 10 ** (places - own))) for units, own in pairs]
    numbers = [Decimal(units).scaleb(-places) for units in whole]
    texts = [f"{number:f}" for number in numbers]
    floats = np.array([float(text) for text in texts])
    for array in (pa.array(texts, pa.large_string()), pa.array(floats)):
        units, valid = units_of(array, -places, NONE)
        assert valid.all()
        assert units.tolist() == whole
    assert (units / 10**places).tolist() == floats.tolist()
    found = places_of_floats(floats)
    written = decimal_places(pa.array(texts, pa.large_string()), NONE)
    negative_zero = any(math.copysign(1, v) < 0 and v == 0 for v in floats.tolist())
    assert found == (None if negative_zero else written)


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=80))
def test_floats_have_the_places_that_they_are_written_with(values: list[float]) -> None:
    places = places_of_floats(np.array(values))
    if places is None:
        numbers = [Decimal(repr(value)) for value in values if math.isfinite(value)]
        needed = max((-int(n.normalize().as_tuple().exponent) for n in numbers if n), default=0)
        unfit = any(n.is_zero() and n.is_signed() for n in numbers) or len(numbers) < len(values)
        largest = max(map(abs, numbers), default=Decimal(0))
        assert unfit or needed > 15 or largest.scaleb(max(needed, 0)) >= 10**15 - 1
    else:
        units, _ = units_of(pa.array(values), -places, NONE)
        assert [float(Decimal(unit).scaleb(-places)) for unit in units.tolist()] == values


def test_what_is_no_multiple_of_the_unit_is_marked_however_near() -> None:
    texts = ["9.951", "9.9500000000000000001", "9.950000000000000000", "1e2", "inf", "nan"]
    units, _ = units_of(pa.array(texts, pa.large_string()), -2, NONE)
    assert units.tolist() == [NO_MULTIPLE, NO_MULTIPLE, 995, 10_000, NO_MULTIPLE, NO_MULTIPLE]
    units, valid = units_of(pa.array([9.951, 9.95, None, math.nan, math.inf]), -2, NONE)
    assert units.tolist() == [NO_MULTIPLE, 995, 0, 0, NO_MULTIPLE]
    assert valid.tolist() == [True, True, False, False, True]
    units, _ = units_of(pa.array([9.95, 167772.17, 0.1, 0.125], pa.float32()), -2, NONE)
    assert units.tolist() == [995, 16777217, 10, NO_MULTIPLE]


@pytest.mark.parametrize("value", ["92233720368547758.08", "1e40", "-1e4000"])
def test_decimals_beyond_64_bits_are_refused(value: str) -> None:
    with pytest.raises(OverflowError, match="beyond 64 bits"):
        units_of(pa.array(["1", value], pa.large_string()), -2, NONE)
    with pytest.raises(OverflowError, match="beyond 64 bits"):
        units_of(pa.array([1 << 62]), -2, NONE)
