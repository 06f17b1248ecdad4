"""Blocks to records: exact, or refused by file and line; never wrapped."""

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253
import pytest
from google_crc32c import value as crc32c

from loaders.format.table_schema import ColumnSpec, TableSchema
from preprocess.errors import SourceError
from preprocess.tables.block import Block
from preprocess.tables.codes import find_codes, looker
from preprocess.tables.encode import Chosen, Encoder, shifted
from preprocess.tables.options import TableOptions
from preprocess.tables.spill import Origin, write_block

VOCABULARY = "table/vocabulary/0000.json"


def column(kind: Any, dtype: Any, **own: Any) -> ColumnSpec:
    role = own.pop("role", "feature")
    return ColumnSpec(name=own.pop("name", "c"), kind=kind, role=role, dtype=dtype, **own)


def texts(values: list[str | None]) -> pa.DictionaryArray:
    return pa.array(values, pa.large_string()).dictionary_encode()


def encode(
    array: pa.Array,
    *specs: ColumnSpec,
    chosen: Chosen = slice(None),
    vocabulary: list[str] | None = None,
    **options: Any,
) -> np.ndarray:
    """Encode a column named "c" that lies in lines 2 on of a.csv."""
    block = Block("a.csv", pa.table({"c": array}), np.arange(2, 2 + len(array)), {})
    schema = TableSchema(specs)
    codes = {}
    for spec in specs:
        if spec.vocabulary is not None or spec.buckets is not None:
            file = json.dumps({"values": vocabulary, "counts": []}).encode()
            look = looker(spec, {VOCABULARY: file})
            inner = array.flatten() if spec.kind == "vector" else array
            found = look(
                inner.dictionary_encode().dictionary.cast(pa.large_string())
                if not pa.types.is_dictionary(inner.type)
                else inner.dictionary
            )
            codes[spec.name] = np.append(found, -1 if spec.role == "target" else 0).astype(np.int32)
    encoder = Encoder(schema=schema, options=TableOptions(**options))
    return encoder.encode(block, chosen, codes)


@pytest.mark.parametrize(
    ("array", "offset"),
    [
        (pa.array([-3, None, 200], pa.int16()), -3),
        (texts(["-3", None, "200"]), -3),
        (pa.array([(1 << 63) - 204, None, (1 << 63) - 1], pa.int64()), (1 << 63) - 204),
        (pa.array([-(1 << 63), None, -(1 << 63) + 203], pa.int64()), -(1 << 63)),
    ],
)
def test_whole_numbers_are_kept_by_their_distance_from_the_offset(
    array: pa.Array, offset: int
) -> None:
    records = encode(array, column("integer", "uint8", offset=offset))

    assert records["c"].tolist() == [1, 0, 204]


def test_numbers_over_the_whole_of_int64_are_kept() -> None:
    values = [-(1 << 62), None, (1 << 62) - 2]

    records = encode(pa.array(values, pa.int64()), column("integer", "int64", offset=-(1 << 62)))

    assert [None if c == 0 else c - 1 - (1 << 62) for c in records["c"].tolist()] == values


@pytest.mark.parametrize("value", [0, 256, -1, 70000, (1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("written", [True, False])
def test_a_number_that_does_not_fit_is_refused_by_line_and_never_wraps(
    value: int, written: bool
) -> None:
    values = [5, value]
    array = texts([str(v) for v in values]) if written else pa.array(values, pa.int64())

    with pytest.raises(SourceError, match=rf"a.csv:3: column 'c': '{value}' is outside .*1\.\.255"):
        encode(array, column("integer", "uint8", offset=1))


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "int64"])
def test_whole_numbers_of_any_width_have_the_same_codes_in_any_width(kind: str, dtype: str) -> None:
    numbers = [100, 0, 127, 3]
    stored = pa.array(numbers, kind)
    # What is stored where a value is missing is anything.
    holes = pa.Array.from_buffers(stored.type, 4, [pa.py_buffer(b"\x0d"), stored.buffers()[1]])
    for first in (-3, 0) if kind.startswith("i") else (0,):
        found = shifted(holes[1:], first, 127, np.dtype(dtype))
        assert found is not None
        assert found.dtype == dtype
        assert found.tolist() == [0, 128 - first, 4 - first]
        assert shifted(holes, first, 126, np.dtype(dtype)) is None
    assert shifted(pa.array([1.0]), 0, 5, np.dtype(dtype)) is None


def test_codes_that_are_shifted_reach_both_ends_of_their_types() -> None:
    low, high = -(1 << 63), (1 << 63) - 1
    found = shifted(pa.array([low, None, low + 254], "int64"), low, low + 254, np.dtype("uint8"))
    assert found is not None
    assert found.tolist() == [1, 0, 255]
    found = shifted(pa.array([1, high], "int64"), 1, high, np.dtype("int64"))
    assert found is not None
    assert found.tolist() == [1, high]


def test_rows_that_are_not_chosen_do_not_matter() -> None:
    array = pa.array([5, 70000, 7], pa.int64())
    spec = column("integer", "uint8", offset=1)

    assert encode(array, spec, chosen=np.array([2, 0]))["c"].tolist() == [7, 5]
    assert encode(array, spec, chosen=slice(2, 3))["c"].tolist() == [7]
    with pytest.raises(SourceError, match=r"a.csv:3:"):
        encode(array, spec, chosen=np.array([0, 1]))


def test_times_dates_booleans_and_decimals_are_codes_with_an_offset() -> None:
    day, moment = date(2020, 1, 2), datetime(2020, 1, 2, 3, 4, 5, 6)
    days = (day - date(1970, 1, 1)).days
    microseconds = int((moment - datetime(1970, 1, 1)).total_seconds()) * 1_000_000 + 6
    decimals = pa.array([Decimal("1.50"), None], pa.decimal128(9, 2))

    for array, spec, code in (
        (pa.array([day, None]), column("date", "uint8", offset=days), 1),
        (texts(["2020-01-02", None]), column("date", "uint8", offset=days - 1), 2),
        (
            pa.array([moment, None], pa.timestamp("us")),
            column("datetime", "int64", offset=microseconds - 7),
            8,
        ),
        (
            texts(["2020-01-02T04:04:05.000006+01:00", None]),
            column("datetime", "uint8", offset=microseconds),
            1,
        ),
        (pa.array([False, None]), column("boolean", "uint8"), 1),
        (texts(["true", None]), column("boolean", "uint8"), 2),
        (decimals, column("decimal", "uint8", offset=100, exponent=-2), 51),
        (decimals, column("decimal", "uint16", offset=1000, exponent=-3), 501),
    ):
        assert encode(array, spec)["c"].tolist() == [code, 0], (array.type, spec)


def test_parts_of_times_are_made_of_their_column() -> None:
    array = texts(["2020-02-29 13:00:00", None, "1969-12-31 23:59:59"])
    parts = ("year", "month", "day", "weekday", "hour")
    specs = [column("integer", "int32", name=f"c.{part}") for part in parts]

    records = encode(array, column("datetime", "int64", offset=-(1 << 62)), *specs)

    found = [[int(row[f"c.{part}"]) - 1 for part in parts] for row in records]
    assert found == [[2020, 2, 29, 5, 13], [-1] * 5, [1969, 12, 31, 2, 23]]


def test_floats_are_the_nearest_and_missing_ones_nan() -> None:
    values = ["3.5215257120407011", None, "1e-320", "-inf", "0.1"]
    array = texts(values)

    records = encode(array, column("float", "float64"))
    narrow = encode(array, column("float", "float32"))

    expected = np.array([float("nan") if v is None else float(v) for v in values])
    np.testing.assert_array_equal(records["c"], expected)
    np.testing.assert_array_equal(narrow["c"], expected.astype(np.float32))


def test_a_float_beyond_float32_is_refused_and_never_becomes_infinite() -> None:
    with pytest.raises(SourceError, match=r"a.csv:3: column 'c': '1e300' is beyond .* float32"):
        encode(texts(["1", "1e300"]), column("float", "float32"))


def test_texts_are_codes_missing_zero_unknown_one() -> None:
    spec = column("categorical", "uint8", vocabulary=VOCABULARY, values=2)
    known = ["b", "ä"]

    assert encode(texts(["ä", None, "x", "b"]), spec, vocabulary=known)["c"].tolist() == [
        3,
        0,
        1,
        2,
    ]
    numbers = pa.array([7, None, 5], pa.int64())
    assert encode(numbers, spec, vocabulary=["5", "7"])["c"].tolist() == [3, 0, 2]


def test_a_class_is_its_place_and_a_new_one_is_refused() -> None:
    spec = column("categorical", "uint8", role="target", vocabulary=VOCABULARY, values=2)
    array = texts(["no", "yes", "maybe"])

    assert encode(array, spec, vocabulary=["no", "yes"], chosen=slice(0, 2))["c"].tolist() == [0, 1]
    with pytest.raises(SourceError, match=r"a.csv:4: column 'c': 'maybe' is none of the 2 classes"):
        encode(array, spec, vocabulary=["no", "yes"])


def test_hashed_values_fall_in_buckets_by_the_checksum_of_their_text() -> None:
    spec = column("categorical", "int32", buckets=1000)

    found = encode(texts(["ä", None, "x"]), spec)["c"].tolist()

    assert found == [1 + crc32c("ä".encode()) % 1000, 0, 1 + crc32c(b"x") % 1000]


def test_lists_are_rows_of_values() -> None:
    lists = pa.array([[1.5, None], None, [2.0, 3.0]], pa.list_(pa.float32()))
    records = encode(lists, column("vector", "float32", length=2))
    np.testing.assert_array_equal(records["c"], [[1.5, np.nan], [np.nan, np.nan], [2, 3]])

    words = pa.array([["a"], None, [], ["b", None], ["x", "a"]], pa.list_(pa.string()))
    spec = column("vector", "uint8", length=2, vocabulary=VOCABULARY, values=2)
    found = encode(words, spec, vocabulary=["a", "b"])["c"]
    assert found.tolist() == [[2, 0], [0, 0], [0, 0], [3, 0], [1, 2]]
    with pytest.raises(SourceError, match=r"a.csv:2: column 'c': .* there is room for 2"):
        encode(pa.array([["a", "b", "a"]]), spec, vocabulary=["a", "b"])


def test_codes_of_many_blocks_are_those_of_each_alone(tmp_path: Path) -> None:
    spec = column("categorical", "uint8", vocabulary=VOCABULARY, values=2)
    schema = TableSchema((spec,))
    vocabularies = {VOCABULARY: b'{"values": ["b", "a"], "counts": [2, 1]}'}
    blocks = [
        write_block(
            Block("a.csv", pa.table({"c": array}), np.arange(len(array)), {}),
            tmp_path,
            Origin(number, "a.csv", "train"),
        )
        for number, array in enumerate(
            [texts(["a", "x"]), pa.array([None, None]), texts(["b", None, "a"])]
        )
    ]

    codes = find_codes(blocks, schema, vocabularies, tmp_path, 2)

    found = [codes.of_block(number)["c"].tolist() for number in range(3)]
    assert found == [[3, 1, 0], [0], [2, 3, 0]]
