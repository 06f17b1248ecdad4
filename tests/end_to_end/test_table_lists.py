"""Lists of several lengths: stored whole, told apart, batched with their lengths, served alike."""

import json
import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: TID253 - a test may load what it compares with
import pyarrow.parquet as pq  # noqa: TID253
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders import Loader, Mix, TableEncoder, open_table
from loaders.errors import FormatError, SelectionError
from loaders.table_lists import list_entries, padded_bytes
from loaders.tables import TableDataset
from loaders.views import fresh
from preprocess.plan import RunOptions
from preprocess.tables.fitted_column import PADDED_NBYTES
from preprocess.tables.options import TableOptions
from preprocess.tables.prepare import table_to_shards
from preprocess.texts import content as text_bytes
from tests.token_commands import call

LISTS = ("tags", "hist", "emb", "words", "steps")


def made_rows(count: int = 300, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows with short and long lists of texts, whole numbers and floats, and gaps."""
    rng = np.random.default_rng(seed)

    def some(most: int, one: Any, gap: float = 0.1) -> list[Any] | None:
        if rng.random() < 0.1:
            return None
        found = [one(int(number)) for number in rng.integers(0, 900, rng.integers(0, most))]
        return [None if rng.random() < gap else value for value in found]

    return [
        {
            "n": number,
            "tags": some(5, lambda v: f"tag {v % 7}"),
            "hist": some(90, lambda v: v * 1000 - 5),
            "emb": some(4, lambda v: v / 8),
            "words": some(150, lambda v: f"word {v}"),
            "steps": some(200, lambda v: v / 7),
        }
        for number in range(count)
    ]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=64)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def shown(ds: TableDataset, batch: dict[str, Any], name: str, row: int) -> list[Any] | None:
    """Return a list as it was before: what stands behind its end is checked to be missing."""
    length = int(batch[ds.length_names[name]][row])
    values, behind = batch[name][row][: max(length, 0)], batch[name][row][max(length, 0) :]
    if ds.schema.column(name).vocabulary is not None:
        assert not behind.any()
        known = [None, "unknown", *ds.vocabulary(name)]
        found = [known[code] for code in values.tolist()]
    else:
        assert behind.isnan().all()
        found = [None if math.isnan(v) else v for v in values.tolist()]
    return None if length < 0 else found


def check_rows(
    ds: TableDataset, rows: list[dict[str, Any]], names: tuple[str, ...] = LISTS
) -> None:
    """Check that a table holds these lists, in batches of a shuffled pass."""
    by_number = {row["n"]: row for row in rows}
    place = ds.numeric_names.index("n")
    seen = 0
    for batch in Loader(ds, 32, shuffle=True, drop_last=False):
        for row, number in enumerate(batch["numeric"][:, place].tolist()):
            seen += 1
            for name in names:
                expected = by_number[int(number)][name]
                if expected and isinstance(next(filter(None, expected), None), float):
                    expected = [None if v is None else float(np.float32(v)) for v in expected]
                assert shown(ds, batch, name, row) == expected, (name, number)
    assert seen == len(ds) == len(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("lists")
    write(found / "rows.jsonl", made_rows())
    write(found / "rows.parquet", made_rows())
    return found


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    "words", [(), ("--format", "zarr"), ("--shuffle", "3"), ("--shard-size", "4kB")], ids=str
)
def test_every_list_is_stored_and_shown_whole(
    folder: Path, tmp_path: Path, form: str, words: tuple[str, ...]
) -> None:
    result = call("table", folder / f"rows.{form}", tmp_path / "out", *words)
    assert result.exit_code == 0, result.output
    ds = open_table(tmp_path / "out")
    layouts = {spec.name: spec.layout for spec in ds.schema.columns}
    assert layouts == {
        "n": "fixed",
        **dict.fromkeys(("tags", "emb"), "padded"),
        **dict.fromkeys(("hist", "words", "steps"), "ragged"),
    }
    assert ds.manifest.version == 4
    check_rows(ds, made_rows())
    assert call("check", tmp_path / "out", "--full").exit_code == 0


def files(out: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(out.rglob("*")) if path.is_file()]
    timed = {"report.json", "items.jsonl"}
    return {str(p.relative_to(out)): p.read_bytes() for p in paths if p.name not in timed}


@pytest.mark.parametrize("shuffle", [(), ("--shuffle", "1")])
def test_neither_blocks_nor_workers_change_a_byte(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shuffle: tuple[str, ...]
) -> None:
    words = ("--validation", "0.2", "--shard-size", "20kB", *shuffle)
    for name, chunk, workers in (("one", 1 << 22, 1), ("two", 3000, 3)):
        monkeypatch.setattr(text_bytes, "BLOCK_NBYTES", chunk)
        out = tmp_path / name
        result = call("table", folder / "rows.jsonl", out, "--workers", workers, *words)
        assert result.exit_code == 0, result.output
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_splits_have_the_vocabulary_and_the_statistics_of_train(tmp_path: Path) -> None:
    rows = made_rows(400, 1)
    write(tmp_path / "rows.jsonl", rows)
    words = ("--split-by-time", "n", "--test", "0.25", "--min-count", "2")
    assert call("table", tmp_path / "rows.jsonl", tmp_path / "out", *words).exit_code == 0
    ds = open_table(tmp_path / "out")
    train = Counter(v for row in rows[:300] for v in row["words"] or () if v is not None)
    known = {word for word, count in train.items() if count > 1}
    assert set(ds.vocabulary("words")) == known
    numbers = [v for row in rows[:300] for v in row["hist"] or ()]
    there = [v for v in numbers if v is not None]
    found = ds.statistics["hist"]
    assert (found.count, found.missing) == (len(numbers), numbers.count(None))
    assert (found.minimum, found.maximum) == (min(there), max(there))
    assert found.mean == pytest.approx(sum(there) / len(there))
    test = open_table(tmp_path / "out", "test")
    rare = [v for row in rows[300:] for v in row["words"] or () if v is not None and v not in known]
    counts = ds.manifest.splits["test"].tallies["unknown_values"]
    assert counts[1] == len(rare)
    batch = test.__getitems__(range(100))
    assert int((batch["words"] == 1).sum()) == len(rare)


def test_numpy_alone_reads_a_ragged_list(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert call("table", folder / "rows.jsonl", out).exit_code == 0
    records = np.load(out / "train/00000.record.npy")
    values = np.load(out / "train/00000.list_0002.npy")
    offsets = np.load(out / "train/00000.list_0002_offsets.npy")
    columns = json.loads((out / "table/schema.json").read_bytes())["columns"]
    assert columns[2]["name"] == "hist"
    for number, row in enumerate(made_rows()):
        codes = values[offsets[number] : offsets[number + 1]].astype(int)
        found = [None if code == 0 else code - 1 + columns[2]["offset"] for code in codes.tolist()]
        assert records["hist_length"][number] == (0 if row["hist"] is None else len(found) + 1)
        assert found == (row["hist"] or [])


@pytest.mark.parametrize("numeric", ["values", "standardized"])
def test_serving_gives_the_bytes_and_batches_of_training(
    folder: Path, tmp_path: Path, numeric: Any
) -> None:
    out = tmp_path / "out"
    assert call("table", folder / "rows.parquet", out).exit_code == 0
    rows = made_rows()
    data = {name: [row[name] for row in rows] for name in rows[0]}
    encoder = TableEncoder(out, numeric=numeric)
    records, lists = encoder.encode(data), encoder.lists(data)
    assert records.tobytes() == np.load(out / "train/00000.record.npy").tobytes()
    assert list(lists) == ["hist", "words", "steps"]
    for place, name in ((2, "hist"), (4, "words"), (5, "steps")):
        values, offsets = lists[name]
        stored = np.load(out / f"train/00000.list_{place:04d}.npy")
        assert values.dtype == stored.dtype
        assert values.tobytes() == stored.tobytes()
        ends = np.load(out / f"train/00000.list_{place:04d}_offsets.npy")
        assert offsets.tobytes() == ends.tobytes()
    ds = open_table(out, numeric=numeric)
    trained, served = ds.__getitems__(range(len(rows))), encoder.batch(data)
    assert trained.keys() == served.keys()
    for name, values in trained.items():
        assert torch.allclose(served[name], values, rtol=0, atol=0, equal_nan=True), name
    frame = pa.Table.from_pylist(rows).to_pandas()
    assert encoder.encode(frame).tobytes() == records.tobytes()
    assert encoder.unknown(records) == {"tags": 0}
    assert encoder.unknown(records, lists) == {"tags": 0, "words": 0}
    new = {**{name: [values[0]] for name, values in data.items()}, "words": [["word 1", "new"]]}
    assert encoder.unknown(encoder.encode(new), encoder.lists(new))["words"] == 1


def test_new_lists_are_as_long_as_there_is_room_and_others_are_refused_by_line(
    folder: Path, tmp_path: Path
) -> None:
    known = tmp_path / "known"
    assert call("table", folder / "rows.jsonl", known).exit_code == 0
    rows = made_rows(40, 2)
    for row in rows:
        row["words"] = [*(row["words"] or []), *["never seen"] * 400]
        row["hist"] = (row["hist"] or []) * 4
    write(tmp_path / "new.jsonl", rows)
    result = call("table", tmp_path / "new.jsonl", tmp_path / "out", "--like", known)
    assert result.exit_code == 0, result.output
    assert "stored as unknown: words 16,000" in result.stdout
    ds = open_table(tmp_path / "out")
    assert ds.schema == open_table(known).schema
    check_rows(ds, rows, ("tags", "hist", "emb", "steps"))
    for name, value, said in (
        ("tags", ["tag 1"] * 5, "a list of 5 values, there is room for 4"),
        ("hist", [1000, 10**12], "'1000000000000' is outside what int32 holds"),
        ("hist", ["x"], "column 'hist': not all of kind integer"),
    ):
        bad = [dict(row) for row in rows]
        bad[7][name] = value
        write(tmp_path / "bad.jsonl", bad)
        for more in ((), ("--shuffle", "1")):
            words = ("--like", known, *more)
            result = call("table", tmp_path / "bad.jsonl", tmp_path / "bad", *words)
            assert result.exit_code == 1
            assert said in result.stderr
            assert "not all" in said or "bad.jsonl:8: column" in result.stderr
        encoder = TableEncoder(known)
        with pytest.raises(SelectionError, match=f"column '{name}', row 7"):
            encoder.batch({key: [row[key] for row in bad] for key in bad[0]})


def test_a_sample_has_its_list_and_its_length(folder: Path, tmp_path: Path) -> None:
    assert call("table", folder / "rows.jsonl", tmp_path / "out").exit_code == 0
    ds = open_table(tmp_path / "out")
    for number, row in enumerate(made_rows(12)):
        sample = ds[number]
        for name in LISTS:
            expected = -1 if row[name] is None else len(row[name])
            assert type(sample[f"{name}_length"]) is int
            assert sample[f"{name}_length"] == expected
        assert sample["hist"].shape == (max(0, len(row["hist"] or ())),)
        assert sample["tags"].shape == (4,)


@pytest.mark.parametrize("codes", ["int64", "int32"])
def test_a_device_shows_lists_as_the_host_does(folder: Path, tmp_path: Path, codes: Any) -> None:
    assert call("table", folder / "rows.jsonl", tmp_path / "out").exit_code == 0
    rows = made_rows(50)
    encoder = TableEncoder(tmp_path / "out")
    lists = encoder.lists({name: [row[name] for row in rows] for name in rows[0]})
    entries = list_entries(encoder.schema, codes)
    assert [entry.spec.name for entry in entries] == ["hist", "words", "steps"]
    for entry in entries:
        values, offsets = lists[entry.spec.name]
        stored = padded_bytes(values, np.diff(offsets.astype(np.int64)))
        flat = stored.reshape(-1, stored.shape[-1])
        found = entry.values.on_device(flat)
        expected = torch.from_numpy(entry.values.on_host(flat.numpy(), fresh))
        wanted = getattr(torch, codes) if entry.spec.name == "words" else torch.float32
        assert found.dtype == wanted
        assert torch.allclose(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("most", [PADDED_NBYTES // 4, PADDED_NBYTES // 4 + 1])
def test_the_longest_list_decides_where_the_values_are(tmp_path: Path, most: int) -> None:
    values = [[100_000] * most, [], None, [7]]
    table_to_shards(pa.table({"v": pa.array(values, pa.list_(pa.int32()))}), tmp_path / "out")
    spec = open_table(tmp_path / "out").schema.column("v")
    assert spec.dtype == "int32"
    assert spec.layout == ("padded" if most == PADDED_NBYTES // 4 else "ragged")


def test_lists_of_one_length_stay_as_they_were(tmp_path: Path) -> None:
    columns = {"one": [[5], None, [7]], "two": [["a", "b"], ["c", None], None]}
    table_to_shards(pa.table(columns), tmp_path / "out")
    ds = open_table(tmp_path / "out")
    assert (ds.manifest.version, ds.length_names) == (3, {})
    assert all(spec.layout == "fixed" for spec in ds.schema.columns)
    encoded = TableEncoder(tmp_path / "out").encode(columns)
    assert encoded.tobytes() == np.load(tmp_path / "out/train/00000.record.npy").tobytes()
    batch = ds.__getitems__([0, 1, 2])
    assert torch.nan_to_num(batch["one"], nan=-1).tolist() == [[5], [-1], [7]]
    assert batch["two"][2].tolist() == [0, 0]


def test_numbers_over_all_of_64_bits_have_no_code_for_what_fills_them_up(tmp_path: Path) -> None:
    for kind, low in ((pa.int64(), -(1 << 63)), (pa.uint64(), 0)):
        high = low + (1 << 64) - 1
        lists = [[low, high, 3], [], None, [high]]
        out = tmp_path / str(kind)
        table_to_shards(pa.table({"v": pa.array(lists, pa.list_(kind))}), out)
        ds = open_table(out)
        spec = ds.schema.column("v")
        assert (spec.layout, spec.nullable) == ("ragged", False)
        batch = ds.__getitems__([3, 2, 1, 0])
        assert batch["v_length"].tolist() == [1, -1, 0, 3]
        assert batch["v"].isnan().sum() == 8
        np.testing.assert_array_equal(batch["v"][3], np.array(lists[0], np.float64).astype("f4"))
        served = TableEncoder(out).batch({"v": lists})
        assert torch.equal(served["v"].nan_to_num(nan=0.5), batch["v"].flip(0).nan_to_num(nan=0.5))


def test_lists_with_missing_numbers_over_all_of_64_bits_are_filled_up_with_these(
    tmp_path: Path,
) -> None:
    lists = [[0, (1 << 64) - 1, None], [None], [], None]
    for longest in (3, 40):  # in the record, and beside it
        lists[0] = [0, (1 << 64) - 1, *[None] * (longest - 2)]
        out = tmp_path / str(longest)
        table_to_shards(pa.table({"v": pa.array(lists, pa.list_(pa.uint64()))}), out)
        ds = open_table(out)
        assert ds.schema.column("v").layout == ("padded" if longest == 3 else "ragged")
        batch = ds.__getitems__([0, 1, 2, 3])
        assert batch["v_length"].tolist() == [longest, 1, 0, -1]
        assert batch["v"][0, :2].tolist() == [0.0, 2.0**64]
        assert batch["v"].isnan().sum() == 4 * longest - 2
        served = TableEncoder(out).batch({"v": lists})
        assert torch.equal(served["v"].nan_to_num(nan=0.5), batch["v"].nan_to_num(nan=0.5))


def test_a_column_may_be_called_like_the_length_of_another(tmp_path: Path) -> None:
    columns = {"v": [[1], [2, 3]], "v_length": [[0.5] * 40, []], "v_length_": ["a", "b"]}
    columns["_padding"] = [[0.5] * 40, []]  # as a part of the record is called that is no column
    table_to_shards(pa.table(columns), tmp_path / "out")
    ds = open_table(tmp_path / "out")
    assert ds.length_names == {
        "v": "v_length__",
        "v_length": "v_length_length",
        "_padding": "_padding_length",
    }
    assert sorted(ds.vector_names) == ["_padding", "v", "v_length"]
    batch = ds.__getitems__([0, 1])
    assert batch["v_length__"].tolist() == [1, 2]
    assert batch["v_length_length"].tolist() == [40, 0]
    assert batch["v_length"].shape == (2, 40)


@pytest.mark.parametrize("kind", ["list<list<int64>>", "list<struct<a: int64>>"])
def test_what_no_list_may_hold_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    value = {"list<list<int64>>": [[1]], "list<struct<a: int64>>": [{"a": 1}]}
    table = pa.table({"v": [value[kind], None], "n": [1, 2]})
    pq.write_table(table, tmp_path / "rows.parquet")
    result = call("table", tmp_path / "rows.parquet", tmp_path / "out")
    assert result.exit_code == 1
    assert "column 'v': holds list<" in result.stderr
    assert (
        call("table", tmp_path / "rows.parquet", tmp_path / "out", "--ignore", "v").exit_code == 0
    )


def test_a_schema_asks_lists_for_a_type_and_says_which_row_does_not_fit(tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", [{"v": [1, 2]}, {"v": []}, {"v": [3, 300]}])
    schema = tmp_path / "schema.toml"
    for dtype, layout in (("int32", "padded"), ("float64", "padded"), ("float32", "padded")):
        schema.write_text(f'[columns.v]\nkind = "vector"\ndtype = "{dtype}"\n')
        out = tmp_path / dtype
        assert call("table", tmp_path / "rows.jsonl", out, "--schema", schema).exit_code == 0
        spec = open_table(out).schema.column("v")
        assert (spec.dtype, spec.layout) == (dtype, layout)
    schema.write_text('[columns.v]\nkind = "vector"\ndtype = "uint8"\n')
    result = call("table", tmp_path / "rows.jsonl", tmp_path / "bad", "--schema", schema)
    assert "rows.jsonl:3: column 'v': [3, 300] is beyond 1..255" in result.stderr


def test_info_and_a_dry_run_say_how_lists_are_stored(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    dry = call("table", folder / "rows.jsonl", out, "--dry-run").stdout
    assert call("table", folder / "rows.jsonl", out).exit_code == 0
    for text in (dry, call("info", out).stdout):
        assert "up to 4 values a row, 9 codes" in text
        assert "up to 149 values a row, beside the record" in text
    found = json.loads(call("info", out, "--json").stdout)
    assert [column.get("layout") for column in found["table"]["columns"]] == [
        *(None, "padded", "ragged", "padded", "ragged", "ragged")
    ]


def test_tables_of_ragged_lists_are_not_mixed(folder: Path, tmp_path: Path) -> None:
    assert call("table", folder / "rows.jsonl", tmp_path / "out").exit_code == 0
    ds = open_table(tmp_path / "out")
    with pytest.raises(SelectionError, match="a table with lists cannot be mixed"):
        Mix({ds: 1.0})


def test_offsets_that_lead_astray_are_refused(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert call("table", folder / "rows.jsonl", out).exit_code == 0
    path = out / "train/00000.list_0002_offsets.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(FormatError, match="list_0002_offsets"):
        open_table(out).__getitems__([0])


@st.composite
def columns_of_lists(draw: st.DrawFn) -> tuple[str, list[list[Any] | None]]:
    """Return lists of one kind, of any lengths, some of them missing."""
    kind, items = draw(
        st.sampled_from(
            [
                ("string", st.sampled_from(["a", "b", "", "é", "\U0001f600"])),
                ("int32", st.integers(-3, 70_000)),
                ("float", st.floats(width=32, allow_nan=False)),
            ]
        )
    )
    most = draw(st.sampled_from([2, 5, 60]))
    each = st.lists(st.one_of(st.none(), items), max_size=most)
    return kind, draw(st.lists(st.one_of(st.none(), each), min_size=1, max_size=12))


@settings(max_examples=40, deadline=None)
@given(columns_of_lists(), st.sampled_from([None, 5]), st.sampled_from(["tensor", "zarr"]))
def test_lists_of_any_kind_and_length_come_back_and_are_served_alike(
    column: tuple[str, list[list[Any] | None]], shuffle: int | None, container: Any
) -> None:
    kind, lists = column
    values = pa.array(lists, pa.list_(pa.type_for_alias(kind)))
    table = pa.table({"n": range(len(lists)), "v": values})
    with tempfile.TemporaryDirectory() as name:
        out = Path(name, "out")
        options = RunOptions(workers=1, container=container, shard_nbytes=200)
        table_to_shards(table, out, TableOptions(shuffle=shuffle), options)
        ds = open_table(out)
        if "v" not in {spec.name for spec in ds.schema.columns}:
            assert not any(lists)  # no list has a value
            return
        batch = ds.__getitems__(range(len(lists)))
        numbers = batch["numeric"][:, 0].int().tolist()
        assert sorted(numbers) == list(range(len(lists)))
        served = TableEncoder(out).batch({"n": numbers, "v": [lists[n] for n in numbers]})
        for entry, found in batch.items():
            assert torch.allclose(served[entry], found, rtol=0, atol=0, equal_nan=True)
        if "v" in ds.length_names:
            for row, number in enumerate(numbers):
                assert shown(ds, batch, "v", row) == lists[number]


def test_lists_are_selected_and_announced_with_their_rows(tmp_path: Path) -> None:
    rows = made_rows(120)
    table_to_shards(write(tmp_path / "rows.parquet", rows), tmp_path / "out")
    ds = open_table(tmp_path / "out")
    chosen = [7, 3, 100, 3]
    check_rows(ds.select(chosen), [rows[index] for index in chosen])
    announced = b"".join(part.tobytes() for (part,) in ds.stretches(np.array([5])))
    for part in ds._lists.parts():
        (values,) = part.columns.slices(part.name, np.array([5]))
        assert values.tobytes() in announced


def test_a_residency_that_lists_rule_out_names_their_columns(tmp_path: Path) -> None:
    write(tmp_path / "in.jsonl", made_rows(20))
    table_to_shards(tmp_path / "in.jsonl", tmp_path / "out")
    said = "'hist', 'words', 'steps' differ in length from sample to sample"
    with pytest.raises(SelectionError, match=said):
        Loader(open_table(tmp_path / "out"), 4, residency="device")
