from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loaders import SelectionError, TableEncoder, open_table
from loaders.format.table_schema import ColumnSpec
from tests.table_stores import people_codes, people_specs, write_people, write_table

PERSON: dict[str, Any] = {
    "age": [20],
    "city": ["Oslo"],
    "ok": [True],
    "zip": ["0150"],
    "born": ["1990-05-17"],
    "price": ["9.99"],
    "seen": ["2024-02-29T12:30:00Z"],
    "height": [1.8],
    "score": [5],
    "face": [[1, 2, 3]],
    "tags": [["blue"]],
    "steps": [[1, -5]],
    "bought": ["yes"],
}
INSTANT = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
NAN = float("nan")


class Frame:
    """What data frames have in common."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        return [*self._columns]

    def __getitem__(self, name: str) -> Any:
        return self._columns[name]


class NAType:
    """As pandas.NA: neither equal nor unequal to anything."""

    def __ne__(self, other: object) -> Any:
        raise TypeError("boolean value of NA is ambiguous")

    __eq__ = __ne__
    __hash__ = None  # type: ignore[assignment]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_people(tmp_path_factory.mktemp("people"))


@pytest.fixture(scope="module")
def encoder(path: Path) -> TableEncoder:
    return TableEncoder(path)


def stored(encoder: TableEncoder, name: str, values: Any) -> Any:
    """Encode the values of one column, the others as they are in PERSON."""
    data = {column: known * len(values) for column, known in PERSON.items()} | {name: values}
    return encoder.encode(data)[name].tolist()


def test_every_kind_is_stored_by_its_definition(encoder: TableEncoder) -> None:
    (record,) = encoder.encode(PERSON)
    assert record["age"] == 20 - 18 + 1
    assert record["city"] == 3
    assert record["ok"] == 2
    days = (date(1990, 5, 17) - date(1970, 1, 1)).days
    assert record["born"] == days + 10_000 + 1
    assert record["price"] == 999 + 100 + 1
    microseconds = int(INSTANT.timestamp()) * 10**6
    assert record["seen"] == microseconds - 1_600_000_000_000_000 + 1
    assert record["height"] == np.float32(1.8)
    assert record["score"] == 5.0
    assert record["face"].tolist() == [1, 2, 3]
    assert record["tags"].tolist() == [3, 0]
    assert record["steps"].tolist() == [7, 1]
    assert record["bought"] == 1
    assert encoder.encode(PERSON).dtype == encoder.schema.record_dtype


def test_a_batch_is_that_of_a_loader_with_the_same_records(
    path: Path, encoder: TableEncoder
) -> None:
    specs, codes = {s.name: s for s in people_specs()}, people_codes(50)
    ds = open_table(path)
    cities = [None, "Bergen", "Rom", "Oslo", ""]
    data: dict[str, Any] = {}
    for name in ("age", "born", "price", "seen", "ok"):
        spec = specs[name]
        whole = [None if c == 0 else c - 1 + spec.offset for c in codes[name].tolist()]
        if name == "price":
            data[name] = [None if v is None else Decimal(v).scaleb(-2) for v in whole]
        elif name == "born":
            data[name] = np.array([v if v is not None else "NaT" for v in whole], "M8[D]")
        elif name == "seen":
            data[name] = np.array([v if v is not None else "NaT" for v in whole], "M8[us]")
        else:
            data[name] = whole
    data["city"] = [cities[c] for c in codes["city"].tolist()]
    data["height"], data["score"] = codes["height"], codes["score"].tolist()
    data["face"] = codes["face"]
    data["tags"] = [[[None, "?", "red", "blue"][c] for c in row] for row in codes["tags"].tolist()]
    data["steps"] = [[None if c == 0 else c - 6 for c in row] for row in codes["steps"].tolist()]
    data["bought"] = [("no", "yes")[c] for c in codes["bought"].tolist()]
    data["zip"] = ["x"] * 50
    batch, expected = encoder.batch(data), ds.__getitems__(range(50))
    zips = ds.categorical_names.index("zip")
    batch["categorical"][:, zips] = expected["categorical"][:, zips]
    assert batch.keys() == expected.keys()
    for name, values in expected.items():
        assert batch[name].dtype == values.dtype
        assert torch.allclose(batch[name], values, rtol=0, atol=0, equal_nan=True), name


def test_a_batch_without_a_target_has_none(encoder: TableEncoder) -> None:
    data = {name: values for name, values in PERSON.items() if name != "bought"}
    assert "target" not in encoder.batch(data)
    assert "target" in encoder.batch(PERSON)
    assert encoder.encode(data)["bought"].tolist() == [0]


def test_numbers_can_be_standardized(path: Path) -> None:
    batch = TableEncoder(path, numeric="standardized").batch(PERSON)
    ds = open_table(path, numeric="standardized")
    age = batch["numeric"][0, ds.numeric_names.index("age")]
    assert age == pytest.approx(-1)


@pytest.mark.parametrize(
    "missing", [None, NAN, "", np.datetime64("NaT", "us"), NAType(), np.float32(NAN)]
)
def test_missing_values_are_0_or_nan(encoder: TableEncoder, missing: Any) -> None:
    for name in ("age", "ok", "zip", "born", "price", "seen"):
        assert stored(encoder, name, [missing]) == [0], name
    for name in ("height", "score"):
        assert np.isnan(stored(encoder, name, [missing])).all()
    assert stored(encoder, "face", [None, [1, 2, 3]])[1] == [1, 2, 3]
    assert np.isnan(stored(encoder, "face", [missing])).all()
    assert stored(encoder, "tags", [missing]) == [[0, 0]]
    assert stored(encoder, "steps", [missing]) == [[0, 0]]


def test_an_empty_text_of_the_vocabulary_is_no_missing_value(encoder: TableEncoder) -> None:
    assert stored(encoder, "city", ["", None, NAN]) == [4, 0, 0]


@pytest.mark.parametrize(
    "values",
    [
        [20, 107],
        [20.0, 107.0],
        ["20", " 107 "],
        [Decimal(20), Decimal("107.00")],
        [np.int8(20), np.float32(107)],
        np.array([20, 107], np.uint64),
        np.array([20, 107], np.float32),
        np.array(["20", "107"]),
        torch.tensor([20, 107]),
        (20, "107"),
    ],
)
def test_whole_numbers_may_come_in_any_type(encoder: TableEncoder, values: Any) -> None:
    assert stored(encoder, "age", values) == [3, 90]


@pytest.mark.parametrize(
    "values",
    [
        [INSTANT],
        [INSTANT.astimezone(timezone(timedelta(hours=5, minutes=30)))],
        [INSTANT.replace(tzinfo=None)],
        ["2024-02-29T12:30:00Z"],
        ["2024-02-29 12:30"],
        ["2024-02-29T14:30:00.000000+02:00"],
        ["2024-02-29T14:30:00+0200"],
        [np.datetime64("2024-02-29T12:30")],
        np.array(["2024-02-29T12:30:00"], "M8[ns]"),
        np.array(["2024-02-29T12:30:00"], "M8[s]"),
    ],
)
def test_times_may_come_in_any_form(encoder: TableEncoder, values: Any) -> None:
    assert stored(encoder, "seen", values) == stored(encoder, "seen", PERSON["seen"])


@pytest.mark.parametrize(
    "values",
    [
        ["1990-05-17"],
        [date(1990, 5, 17)],
        [datetime(1990, 5, 17)],
        [np.datetime64("1990-05-17")],
        np.array(["1990-05-17"], "M8[ns]"),
    ],
)
def test_dates_may_come_in_any_form(encoder: TableEncoder, values: Any) -> None:
    assert stored(encoder, "born", values) == stored(encoder, "born", PERSON["born"])


def test_truth_values_and_decimals_may_come_in_any_type(encoder: TableEncoder) -> None:
    truth = [True, False, "true", "FALSE", 1, 0.0, np.True_, "True"]
    assert stored(encoder, "ok", truth) == [2, 1, 2, 1, 2, 1, 2, 2]
    assert stored(encoder, "ok", np.array([True, False])) == [2, 1]
    decimals = [9.99, "9.99", Decimal("9.990"), 9.99, 10, "1e1", -0.99, np.float64(0.07)]
    assert stored(encoder, "price", decimals) == [1100, 1100, 1100, 1100, 1101, 1101, 2, 108]
    assert stored(encoder, "price", np.array([9.99, 0.07])) == [1100, 108]
    assert stored(encoder, "price", np.array([3, 4])) == [401, 501]


def test_values_of_categories_are_the_texts_that_files_hold(tmp_path: Path) -> None:
    words = ["true", "7", "1.5", "2020-01-02", "2020-01-02T03:04:05", "0.10", "03:04:05"]
    spec = ColumnSpec(
        name="c",
        kind="categorical",
        role="feature",
        dtype="int32",
        vocabulary="table/vocabulary/0000.json",
        values=len(words),
    )
    path = write_table(tmp_path / "t", [spec], {"c": [0]}, vocabularies={"c": words})
    encoder = TableEncoder(path)
    values = [True, 7, 1.5, date(2020, 1, 2), datetime(2020, 1, 2, 3, 4, 5), Decimal("0.10")]
    assert encoder.encode({"c": [*values, time(3, 4, 5)]})["c"].tolist() == [*range(2, 9)]
    assert encoder.encode({"c": [np.True_, np.int64(7), np.float32(1.5)]})["c"].tolist() == [
        2,
        3,
        4,
    ]
    assert encoder.encode({"c": np.array([7, 8, 7, 7])})["c"].tolist() == [3, 1, 3, 3]
    # pandas makes floats of whole numbers when some are missing.
    assert encoder.encode({"c": np.array([7, np.nan, 1.5])})["c"].tolist() == [3, 0, 4]
    assert encoder.encode({"c": [7.0, "7.0"]})["c"].tolist() == [3, 1]
    moments = np.array(["2020-01-02T03:04:05", "NaT"], "M8[s]")
    assert encoder.encode({"c": moments})["c"].tolist() == [6, 0]


def test_unknown_values_are_1_and_counted(encoder: TableEncoder) -> None:
    data = {name: values * 3 for name, values in PERSON.items()}
    records = encoder.encode(
        data | {"city": ["Bergen", "Rom", "rom"], "tags": [["red", "x"], [], None]}
    )
    assert records["city"].tolist() == [1, 2, 1]
    assert records["tags"].tolist() == [[2, 1], [0, 0], [0, 0]]
    assert encoder.unknown(records) == {"city": 2, "tags": 1}


def test_texts_are_hashed_as_utf_8(encoder: TableEncoder) -> None:
    # RFC 3720, appendix B.4: CRC-32C of 32 zero bytes is 0x8a9136aa.
    assert stored(encoder, "zip", ["\0" * 32]) == [1 + 0x8A9136AA % 1000]
    assert stored(encoder, "zip", ["7", 7]) == stored(encoder, "zip", [7, "7"])


def test_parts_of_times_are_made_of_the_times(tmp_path: Path) -> None:
    parts = {"year": 2024, "month": 2, "day": 29, "weekday": 3, "hour": 23}
    specs = [
        ColumnSpec(name="at", kind="datetime", role="feature", dtype="int64", offset=0),
        *(
            ColumnSpec(name=f"at.{part}", kind="integer", role="feature", dtype="int32", offset=0)
            for part in parts
        ),
    ]
    path = write_table(tmp_path / "t", specs, {spec.name: [1] for spec in specs})
    encoder = TableEncoder(path)
    (record, missing) = encoder.encode({"at": ["2024-02-29T23:59:59.5", None]})
    assert {part: record[f"at.{part}"] - 1 for part in parts} == parts
    assert all(missing[name] == 0 for name in ("at", *(f"at.{part}" for part in parts)))
    (given,) = encoder.encode({"at": ["2024-02-29"], "at.hour": [5]})
    assert given["at.hour"] == 6
    (before,) = encoder.encode({"at.hour": [0], "at": ["2023-12-31T23:30:00-01:00"]})
    assert before["at.year"] == 2025


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("age", "old", "is no whole number"),
        ("age", "007", "is no whole number"),
        ("age", 20.5, "is no whole number"),
        ("age", 17, r"is outside 18\.\.272, which uint8 holds"),
        ("age", 1 << 70, "is beyond 64 bits"),
        ("age", Decimal("1e999999"), "is beyond 64 bits"),
        ("age", float("inf"), "is no whole number|is beyond 64 bits|no finite"),
        ("age", b"20", "is no number"),
        ("age", np.datetime64("2020-01-01"), "is no number"),
        ("ok", "yes", "is neither true nor false"),
        ("ok", 2, "is neither true nor false"),
        ("born", "17.05.1990", "is no time like"),
        ("born", "1990-02-30", "day"),
        ("born", datetime(1990, 5, 17, 8), "is a time within a day"),
        ("born", 7440, "is no time"),
        ("born", "1900-01-01", r"is outside -10000\.\.55534"),
        ("seen", "2019-01-01", "is outside 1600000000000000"),
        ("seen", np.datetime64("2024-02-29T12:30:00.000000001"), "is finer than us"),
        ("price", "9.999", r"is no multiple of 10\*\*-2"),
        ("price", 9.995, r"is no multiple of 10\*\*-2"),
        ("price", -5, r"is outside -100\.\.2147483546 \* 10\*\*-2"),
        ("height", "tall", "is no number"),
        ("height", 1e300, "is beyond float32"),
        ("height", [1.8], "is no number"),
        ("city", b"Rom", "is no text"),
        ("face", [1, 2], "has 2 values, expected 3"),
        ("face", 5, "is no list"),
        ("face", [1, 2, "x"], "is no number"),
        ("tags", ["red", "red", "red"], "has 3 values, expected up to 2"),
        ("steps", [1, 1 << 20], r"is outside -5\.\.65529"),
        ("bought", "maybe", "is none of the 2 classes"),
        ("bought", None, "is missing"),
    ],
)
def test_what_a_column_cannot_hold_is_refused_by_column_row_and_value(
    encoder: TableEncoder, name: str, value: Any, reason: str
) -> None:
    with pytest.raises(SelectionError, match=rf"^column '{name}', row 1: .*(?:{reason})"):
        stored(encoder, name, [*PERSON[name], value])


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("age", np.array([20, 20.5]), "row 1: np.float64.20.5. is no whole number"),
        ("age", np.array([20, 1], np.uint8), "row 1: .* is outside"),
        ("age", np.array([20, 1 << 63], np.uint64), "row 1: .* beyond 64 bits"),
        ("age", np.array(["2020-01-01"] * 2, "M8[D]"), "row 0: .* is a time, not of kind integer"),
        ("seen", np.array([1, 2]), "row 0: .* is no time"),
        ("born", np.array(["2020-01-01", "2020-01-01T01"], "M8[h]"), "row 1: .* is finer than D"),
        ("age", np.array([[20], [20]]), r"has shape \(2, 1\), expected \[n\]"),
        ("city", {"Rom", "Oslo"}, None),
        ("city", "Rom", "is a str, expected a list"),
        ("city", 5, "is a int, expected a list"),
        ("city", ["Rom"] * 3, "columns of different lengths"),
        ("face", np.zeros((2, 4)), "has 4 values, expected 3"),
    ],
)
def test_columns_that_cannot_be_are_refused(
    encoder: TableEncoder, name: str, values: Any, reason: str | None
) -> None:
    data = {column: known * 2 for column, known in PERSON.items()} | {name: values}
    if reason is None:
        assert len(encoder.encode(data)) == 2
        return
    with pytest.raises(SelectionError, match=rf"'{name}'.*{reason}|{reason}"):
        encoder.encode(data)


def test_a_missing_column_is_named(encoder: TableEncoder) -> None:
    data = {name: values for name, values in PERSON.items() if name != "zip"}
    with pytest.raises(SelectionError, match="column 'zip' is missing; given are"):
        encoder.encode(data)
    with pytest.raises(SelectionError, match="data is a list"):
        encoder.encode([1, 2])  # type: ignore[arg-type]


def test_data_frames_are_taken_by_their_columns(encoder: TableEncoder) -> None:
    assert encoder.encode(Frame(PERSON)) == encoder.encode(PERSON)
    assert [*encoder.batch(Frame(PERSON | {"more": [1]}))] == [*encoder.batch(PERSON)]


def test_no_samples_give_no_records(encoder: TableEncoder) -> None:
    data: dict[str, Any] = {name: [] for name in PERSON}
    assert len(encoder.encode(data)) == 0
    assert encoder.batch(data)["numeric"].shape == (0, 7)
