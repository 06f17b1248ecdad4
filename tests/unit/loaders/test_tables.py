import json
import multiprocessing
import pickle  # noqa: TID251
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Subset, default_collate

from loaders import (
    FormatError,
    Loader,
    MissingShardError,
    Mix,
    SelectionError,
    TableDataset,
    open_dataset,
    open_table,
    open_tokens,
)
from loaders.format.table_schema import ColumnSpec
from tests.table_stores import (
    CITIES,
    CLASSES,
    people_codes,
    people_specs,
    statistics,
    write_people,
    write_table,
)
from tests.token_stores import write_stream
from tests.waiting import SECONDS

COUNT = 50


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_people(tmp_path / "people", COUNT, shards=[20, 0, 1, 29])


def exact(spec: ColumnSpec, code: int) -> Fraction | None:
    """Say what a code stands for, by the definition."""
    if code == 0:
        return None
    return (code - 1 + spec.offset) * Fraction(10) ** spec.exponent


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    same = one.dtype == other.dtype and one.shape == other.shape
    return same and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def test_every_number_is_the_float_next_to_what_its_code_stands_for(path: Path) -> None:
    ds = open_table(path)
    specs, codes = {s.name: s for s in people_specs()}, people_codes(COUNT)
    batch = ds.__getitems__(range(COUNT))
    assert batch["numeric"].shape == (COUNT, len(ds.numeric_names)) == (COUNT, 7)
    assert batch["numeric"].dtype == torch.float32
    for column, name in enumerate(ds.numeric_names):
        for code, shown in zip(codes[name].tolist(), batch["numeric"][:, column], strict=True):
            if specs[name].kind == "float":
                expected = np.float32(code)
            else:
                value = exact(specs[name], code)
                expected = np.float32("nan" if value is None else float(value))
            assert np.array_equal(expected, shown.numpy(), equal_nan=True), (name, code)


def test_codes_targets_and_vectors_are_shown_as_stored(path: Path) -> None:
    ds = open_table(path)
    codes = people_codes(COUNT)
    batch = ds.__getitems__(range(COUNT))
    assert sorted(ds.categorical_names) == ["city", "zip"]
    for column, name in enumerate(ds.categorical_names):
        assert np.array_equal(batch["categorical"][:, column].numpy(), codes[name])
    assert batch["categorical"].dtype == batch["target"].dtype == torch.int64
    assert np.array_equal(batch["target"].numpy(), codes["bought"])
    assert np.array_equal(batch["face"].numpy(), codes["face"].astype(np.float32))
    assert np.array_equal(batch["tags"].numpy(), codes["tags"])
    assert batch["tags"].dtype == torch.int64
    steps = np.where(codes["steps"] == 0, np.nan, codes["steps"] - 6.0).astype(np.float32)
    assert np.array_equal(batch["steps"].numpy(), steps, equal_nan=True)
    assert [*batch] == ["numeric", "categorical", "face", "steps", "tags", "target"]


@pytest.mark.parametrize("numeric", ["values", "standardized"])
def test_a_device_makes_the_same_of_the_bytes_as_the_host(path: Path, numeric: Any) -> None:
    ds = open_table(path, numeric=numeric)
    (part,) = ds.views
    rows = np.empty(*part.layout(np.arange(COUNT)))
    ds.gather_into(np.arange(COUNT), {part.name: rows})
    shown = ds.show({part.name: torch.from_numpy(rows)})
    for entry in ds._entries:
        device = entry.on_device(torch.from_numpy(rows))
        assert device.is_contiguous()
        assert equal(device[:, 0] if entry.flat else device, shown[entry.name]), entry.name


def test_standardized_numbers_are_exact_to_float32(path: Path) -> None:
    ds = open_table(path, numeric="standardized")
    specs, codes = {s.name: s for s in people_specs()}, people_codes(COUNT)
    shown = ds.__getitems__(range(COUNT))["numeric"].numpy()
    assert not np.isnan(shown).any()
    for column, name in enumerate(ds.numeric_names):
        found = ds.statistics[name]
        assert found.mean is not None
        assert found.std is not None
        for code, z in zip(codes[name].tolist(), shown[:, column], strict=True):
            value = exact(specs[name], code) if specs[name].kind != "float" else None
            if specs[name].kind == "float" and not np.isnan(code):
                stored = np.float32(code) if specs[name].dtype == "float32" else code
                value = Fraction(float(stored))
            if value is None:
                assert z == 0
            else:
                expected = float((value - Fraction(found.mean)) / Fraction(found.std))
                assert z == pytest.approx(expected, rel=3e-7, abs=1e-7), (name, code)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "int64"])
@pytest.mark.parametrize("offset", [-(1 << 63), -(1 << 40), -5, 0, 1, 1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("exponent", [-15, -3, 0, 6])
def test_values_of_any_offset_and_scale_are_rounded_once(
    tmp_path: Path, dtype: Any, offset: int, exponent: int
) -> None:
    spec = ColumnSpec(
        name="n", kind="decimal", role="feature", dtype=dtype, offset=offset, exponent=exponent
    )
    top = int(np.iinfo(dtype).max)
    codes = [0, 1, 2, 200, top - 1, top]
    path = write_table(tmp_path / "t", [spec], {"n": codes})
    shown = open_table(path).__getitems__(range(len(codes)))["numeric"][:, 0].numpy()
    assert np.isnan(shown[0])
    for code, value in zip(codes[1:], shown[1:], strict=True):
        known = exact(spec, code)
        assert known is not None
        nearest = np.float32(float(known))
        assert abs(value - nearest) <= np.spacing(np.abs(nearest)), (code, value, nearest)
        if exponent == 0 and abs(known) <= 1 << 24:
            assert value == nearest


def test_constants_and_columns_without_values_standardize_to_differences(tmp_path: Path) -> None:
    specs = [
        ColumnSpec(
            name=name, kind="integer", role="feature", dtype="uint8", offset=5, statistics=found
        )
        for name, found in (("same", statistics([7, 7])), ("none", statistics([], 2)))
    ]
    path = write_table(tmp_path / "t", specs, {"same": [3, 4], "none": [0, 0]})
    shown = open_table(path, numeric="standardized").__getitems__([0, 1])["numeric"]
    assert shown.tolist() == [[0, 0], [1, 0]]


def test_a_batch_is_the_stack_of_its_samples(path: Path) -> None:
    ds = open_table(path)
    indices = [49, 3, 3, 0, -1, 20, 19, 21]
    batch = ds.__getitems__(indices)
    expected = default_collate([ds[index] for index in indices])
    assert batch.keys() == expected.keys()
    assert all(equal(batch[name], expected[name]) for name in batch)
    assert type(ds[0]["target"]) is int
    assert ds.__getitems__([])["numeric"].shape == (0, 7)
    assert ds.__getitems__([])["target"].shape == (0,)
    with pytest.raises(IndexError, match="50 is out of range for 50"):
        ds[50]


@pytest.mark.parametrize("shards", [[50], [1] * 50, [0, 25, 0, 25, 0], [3, 40, 7]])
def test_batches_do_not_depend_on_how_rows_lie_in_shards(
    tmp_path: Path, path: Path, shards: list[int]
) -> None:
    ds = open_table(write_people(tmp_path / "other", COUNT, shards=shards))
    order = np.random.default_rng(1).permutation(COUNT)
    for indices in (order, np.arange(COUNT), np.sort(order[:20]), order[:1]):
        ours, theirs = ds.__getitems__(indices), open_table(path).__getitems__(indices)
        assert all(equal(ours[name], theirs[name]) for name in ours)


def test_many_samples_in_uneven_shards_are_found(tmp_path: Path) -> None:
    spec = ColumnSpec(name="n", kind="integer", role="feature", dtype="int32", offset=0)
    shards = [1, 7, 0, 9000, 2, 2, 2, 11_000, 1]
    count = sum(shards)
    path = write_table(tmp_path / "t", [spec], {"n": np.arange(count) + 1}, shards=shards)
    order = np.random.default_rng(0).permutation(count)
    shown = open_table(path).__getitems__(order)["numeric"][:, 0]
    assert np.array_equal(shown.numpy(), order.astype(np.float32))


def test_zarr_shards_serve_the_same(tmp_path: Path, path: Path) -> None:
    ds = open_table(write_people(tmp_path / "zarr", COUNT, shards=[20, 30], container="zarr"))
    ours, theirs = ds.__getitems__([40, 2]), open_table(path).__getitems__([40, 2])
    assert all(equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_plain_data_loader_needs_no_collate_function(path: Path, workers: int) -> None:
    ds = open_table(path)
    batches = list(DataLoader(ds, batch_size=20, num_workers=workers))
    assert [len(batch["target"]) for batch in batches] == [20, 20, 10]
    whole = ds.__getitems__(range(COUNT))
    joined = torch.cat([batch["numeric"] for batch in batches])
    assert equal(joined, whole["numeric"])
    subset = Subset(ds, [4, 8])
    (batch,) = DataLoader(ConcatDataset([subset, subset]), batch_size=4)
    assert batch["numeric"].shape == (4, 7)
    assert batch["target"].dtype == torch.int64


def _numbers_of(ds: TableDataset, queue: Any) -> None:
    queue.put(ds.__getitems__([0, 7])["categorical"].tolist())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_table_opened_and_read_travels_to_other_processes(path: Path, method: str) -> None:
    ds = open_table(path, numeric="standardized")
    expected = ds.__getitems__([0, 7])["categorical"].tolist()
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_numbers_of, args=(ds, queue))
    process.start()
    found = queue.get(timeout=SECONDS)
    process.join()
    assert found == expected
    data = pickle.dumps(ds)
    assert len(data) < 2000
    assert pickle.loads(data).numeric == "standardized"
    write_people(path, COUNT, seed=1)
    with pytest.raises(FormatError, match="replaced"):
        pickle.loads(data)


@pytest.mark.parametrize("last", ["drop", "wrap", "pad"])
def test_a_loader_serves_every_sample_once(path: Path, last: Any) -> None:
    ds = open_table(path)
    batches = list(Loader(ds, 8, seed=3, last=last))
    assert len(batches) == (6 if last == "drop" else 7)
    assert batches[0]["numeric"].shape == (8, 7)
    if last == "pad":
        kept = torch.cat([batch["face"][batch["valid"]] for batch in batches])
        whole = ds.__getitems__(range(COUNT))["face"]
        assert torch.equal(kept[:, 0].sort().values, whole[:, 0].sort().values)


def test_a_loader_resumes_with_the_next_sample(path: Path) -> None:
    ds = open_table(path)
    loader = Loader(ds, 8, seed=3)
    run = iter(loader)
    for _ in range(2):
        next(run)
    state = loader.state_dict()
    expected = [batch["face"] for batch in run]
    again = Loader(open_table(path), 8, seed=3)
    again.load_state_dict(state)
    assert all(torch.equal(a, b["face"]) for a, b in zip(expected, again, strict=True))


def test_tables_with_the_same_coding_can_be_mixed(tmp_path: Path, path: Path) -> None:
    other = open_table(write_people(tmp_path / "other", 30, seed=2))
    mix = Mix({open_table(path): 0.5, other: 0.5}, epoch_size=40)
    batches = list(Loader(mix, 10))
    known = torch.cat(
        [open_table(path).__getitems__(range(50))["face"], other.__getitems__(range(30))["face"]]
    )
    for batch in batches:
        assert batch["numeric"].shape == (10, 7)
        assert (batch["face"][:, None] == known[None]).all(-1).any(-1).all()


def test_tables_with_another_coding_are_not_mixed(tmp_path: Path, path: Path) -> None:
    specs = people_specs()
    moved = [
        ColumnSpec(name="age", kind="integer", role="feature", dtype="uint8", offset=17),
        *specs[1:],
    ]
    words = {"city": CITIES, "tags": ("red", "blue"), "bought": CLASSES}
    codes = people_codes(10)
    other = write_table(tmp_path / "moved", moved, codes, vocabularies=words)
    with pytest.raises(SelectionError, match=r"columns \[\('age', 'integer'.* 17, 0"):
        Mix({open_table(path): 1, open_table(other): 1})
    words["city"] = ("Oslo", "Rom", "")
    other = write_table(tmp_path / "words", specs, codes, vocabularies=words)
    with pytest.raises(SelectionError, match=r"vocabularies \[\('city'"):
        Mix({open_table(path): 1, open_table(other): 1})
    with pytest.raises(SelectionError, match="columns"):
        Mix({open_table(path): 1, open_table(path, numeric="standardized"): 1})


def test_names_sizes_and_classes_come_from_the_schema(path: Path) -> None:
    ds = open_table(path)
    assert ds.numeric_names == ("seen", "score", "price", "height", "born", "age", "ok")
    assert ds.categorical_names == ("zip", "city")
    assert ds.cardinalities == (1001, 5)
    assert ds.embedding_sizes == ((1001, 77), (5, 4))
    assert ds.classes == CLASSES
    assert ds.target_name == "bought"
    assert ds.vector_names == ("face", "steps", "tags")
    assert ds.vocabulary("city") == CITIES
    assert ds.vocabulary("zip") == ()
    assert ds.statistics["age"].missing == 1
    assert "50 samples, 7 numeric and 2 categorical columns, target 'bought'" in repr(ds)


def test_numbers_and_truth_values_can_be_targets(tmp_path: Path) -> None:
    def target(**options: Any) -> dict[str, Any]:
        spec = ColumnSpec(name="y", role="target", **options)
        path = write_table(tmp_path / spec.kind, [spec], {"y": [1, 2, 2]})
        ds = open_table(path, numeric="standardized")
        return {"classes": ds.classes, **ds.__getitems__([0, 1, 2]), "first": ds[0]["target"]}

    number = target(kind="integer", dtype="uint8", offset=40, statistics=statistics([40, 41]))
    assert number["target"].tolist() == [40, 41, 41]
    assert number["target"].dtype == number["first"].dtype == torch.float32
    assert number["classes"] == ()
    boolean = target(kind="boolean", dtype="uint8")
    assert boolean["target"].tolist() == [0, 1, 1]
    assert boolean["target"].dtype == torch.int64
    assert boolean["classes"] == ("false", "true")
    assert [*number] == ["classes", "target", "first"]


def test_floats_beyond_float32_and_infinities_are_infinite_without_a_warning(
    tmp_path: Path,
) -> None:
    spec = ColumnSpec(
        name="x", kind="float", role="feature", dtype="float64", statistics=statistics([1, 3])
    )
    path = write_table(tmp_path / "t", [spec], {"x": [1e300, -np.inf, np.nan, 5]})
    shown = open_table(path).__getitems__(range(4))["numeric"][:, 0]
    assert shown[:2].tolist() == [np.inf, -np.inf]
    assert torch.isnan(shown[2])
    shown = open_table(path, numeric="standardized").__getitems__(range(4))["numeric"][:, 0]
    assert shown.tolist() == [np.inf, -np.inf, 0, 3]


def test_changing_a_batch_never_reaches_the_files(path: Path) -> None:
    before = {file: file.read_bytes() for file in path.rglob("*.npy")}
    ds = open_table(path)
    for value in ds.__getitems__([0, 1]).values():
        value.fill_(1)
    assert {file: file.read_bytes() for file in path.rglob("*.npy")} == before


def test_what_is_no_table_or_not_stored_is_refused(tmp_path: Path, path: Path) -> None:
    tokens = write_stream(tmp_path / "tokens", [[[1, 2]]])
    with pytest.raises(SelectionError, match=r"'tokens' is no table: .*open_tokens"):
        open_table(tokens)
    with pytest.raises(SelectionError, match=r"holds a table; .*open_table"):
        open_dataset(path)
    with pytest.raises(SelectionError, match="no tokens"):
        open_tokens(path)
    with pytest.raises(SelectionError, match="no split 'test'; stored are train"):
        open_table(path, "test")
    with pytest.raises(SelectionError, match="numeric='raw'"):
        open_table(path, numeric="raw")  # type: ignore[arg-type]


def test_a_vector_called_like_another_entry_is_refused(tmp_path: Path) -> None:
    spec = ColumnSpec(name="numeric", kind="vector", role="feature", dtype="float32", length=2)
    path = write_table(tmp_path / "t", [spec], {"numeric": [[1, 2]]})
    with pytest.raises(SelectionError, match="a vector column is called 'numeric'"):
        open_table(path)


def test_several_targets_are_refused(tmp_path: Path) -> None:
    specs = [ColumnSpec(name=n, kind="float", role="target", dtype="float32") for n in "ab"]
    path = write_table(tmp_path / "t", specs, {"a": [1], "b": [1]})
    with pytest.raises(FormatError, match="several targets"):
        open_table(path)


def test_damaged_files_are_named(path: Path) -> None:
    vocabulary = path / "table/vocabulary/0012.json"
    whole = vocabulary.read_bytes()
    vocabulary.write_bytes(whole.replace(b"yes", b"YES"))
    with pytest.raises(FormatError, match=r"0012\.json: got .*CRC-32C"):
        open_table(path)
    vocabulary.write_bytes(whole)
    schema = path / "table/schema.json"
    data = schema.read_bytes()
    value = json.loads(data)
    value["columns"][0]["offset"] = 19
    schema.write_text(json.dumps(value))
    with pytest.raises(FormatError, match=r"schema\.json"):
        open_table(path)
    schema.write_bytes(data)
    shard = next((path / "train").glob("00003.*"))
    rows = shard.read_bytes()
    ds = open_table(path)
    shard.write_bytes(rows[:-1])
    with pytest.raises(FormatError, match=r"00003\.record\.npy"):
        ds.__getitems__([0, 49])
    shard.unlink()
    with pytest.raises(MissingShardError, match=r"00003\.record\.npy"):
        ds.__getitems__([49])
