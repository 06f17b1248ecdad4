"""Shard files: write -> open is identity, and the bytes are those of NumPy and of zarr-python."""

import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from loaders.errors import FormatError, MissingShardError
from loaders.format.containers import CONTAINERS
from loaders.format.fields import FieldSpec
from loaders.format.files import (
    REPORT,
    SKIPPED,
    checksum,
    read_json,
)
from loaders.format.row_writer import RowWriter
from loaders.format.spec import (
    Container,
    read_manifest,
)
from preprocess.plan import RunOptions
from preprocess.run import run
from tests.recipes import (
    DigestRecipe,
    numbered_items,
    plan_digests,
    read_tree,
    row_nbytes,
    write_items,
)
from tests.strategies import field_specs

quick = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
LARGE = FieldSpec(name="large", dtype="uint8", shape=(40, 40, 3), role="image")
DEEP = FieldSpec(name="deep", dtype="uint16", shape=(50, 50, 1), role="image")
SMALL = FieldSpec(name="small", dtype="uint16", shape=(3, 5, 1), role="image")
LABEL = FieldSpec(name="label", dtype="uint16", shape=(), role="label")
KEY = FieldSpec(name="key", dtype="uint8", shape=(7,), role="key")
FIELDS = [LARGE, DEEP, SMALL, LABEL, KEY]


RAW_FIELDS = field_specs().filter(lambda field: field.encoding is None) | st.sampled_from(FIELDS)


def random_rows(field: FieldSpec, count: int, seed: int = 0) -> NDArray[Any]:
    if field.record is not None or field.dtype.startswith("float"):
        data = np.random.default_rng(seed).bytes(count * field.nbytes)
        return np.frombuffer(data, field.numpy_dtype).reshape(count, *field.shape).copy()
    top = np.iinfo(field.dtype).max
    rows = np.random.default_rng(seed).integers(0, top, (count, *field.shape), endpoint=True)
    return rows.astype(field.numpy_dtype)


def write_rows(
    folder: Path, container: Container, field: FieldSpec, rows: NDArray[Any], capacity: int
) -> Path:
    layout = CONTAINERS[container]
    path = folder / "shard"
    writer = RowWriter(path, layout.prefix(field, capacity))
    for row in rows:
        writer.append(np.asarray(row)[None])
    suffix = layout.suffix(field, len(rows), capacity)
    assert writer.finish(layout.prefix(field, len(rows)), suffix) == path.stat().st_size
    assert writer.crc32c == checksum(path)
    assert writer.count == len(rows)
    return path


@pytest.mark.parametrize("container", ["tensor", "zarr"])
@quick
@given(data=st.data(), capacity=st.integers(1, 9))
def test_rows_that_are_written_are_the_rows_that_are_opened(
    container: Container, data: st.DataObject, capacity: int, tmp_path: Path
) -> None:
    field = data.draw(RAW_FIELDS)
    count = data.draw(st.sampled_from([0, 1, capacity - 1, capacity]))
    rows = random_rows(field, count)

    path = write_rows(tmp_path, container, field, rows, capacity)
    found = CONTAINERS[container].open_rows(path, field, count, capacity)

    assert path.stat().st_size == CONTAINERS[container].shard_nbytes(field, count, capacity)
    assert found.dtype == rows.dtype
    assert found.shape == rows.shape
    assert found.tobytes() == rows.tobytes()
    assert not found.flags.writeable
    assert found.flags.c_contiguous


@quick
@given(field=RAW_FIELDS, count=st.integers(0, 12))
def test_a_tensor_shard_is_what_numpy_saves(field: FieldSpec, count: int, tmp_path: Path) -> None:
    rows = random_rows(field, count)
    expected = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Stored array in format", UserWarning)
        np.lib.format.write_array(expected, rows, allow_pickle=False)

    path = write_rows(tmp_path, "tensor", field, rows, capacity=12)

    if all(name.isascii() for name, _, _ in field.record or ()):
        assert path.read_bytes() == expected.getvalue()
    found = np.load(path, allow_pickle=False)
    assert found.dtype == rows.dtype
    assert found.tobytes() == rows.tobytes()


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
@pytest.mark.parametrize(
    ("items", "counts"),
    [(8, (4, 4)), (6, (4, 2)), (1, (1,)), (8, (3, 4)), (9, (1, 4, 1)), (4, (4,))],
)
def test_a_zarr_shard_is_what_zarr_writes(
    field: FieldSpec, items: int, counts: tuple[int, ...], tmp_path: Path
) -> None:
    import zarr

    layout, capacity = CONTAINERS["zarr"], 4
    whole = (capacity, *field.shape)
    sharded = field.nbytes >= 4096
    array = zarr.create_array(
        tmp_path / "theirs" / "train" / field.name,
        shape=(items, *field.shape),
        dtype=field.numpy_dtype,
        chunks=(1, *field.shape) if sharded else whole,
        shards=whole if sharded else None,
        compressors=None,
        fill_value=0,
        config={"write_empty_chunks": True},
    )
    for index, count in enumerate(counts):
        rows = random_rows(field, count, seed=index)
        rows[0] = 0  # all zeros: not to be left out
        array[capacity * index : capacity * index + count] = rows
        (tmp_path / str(index)).mkdir()
        ours = write_rows(tmp_path / str(index), "zarr", field, rows, capacity)
        theirs = layout.shard_path(tmp_path / "theirs", "train", index, field, capacity)

        assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize("container", ["tensor", "zarr"])
@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_a_shard_that_is_not_as_promised_is_refused(
    container: Container, field: FieldSpec, tmp_path: Path
) -> None:
    layout = CONTAINERS[container]
    path = write_rows(tmp_path, container, field, random_rows(field, 3), 4)
    whole = path.read_bytes()

    with pytest.raises(MissingShardError, match="nowhere"):
        layout.open_rows(tmp_path / "nowhere", field, 3, 4)
    with pytest.raises(FormatError):
        layout.open_rows(tmp_path, field, 3, 4)
    for damaged in (b"", whole[:-1], whole + b"\0"):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match=f"shard: {len(damaged)} bytes, manifest says"):
            layout.open_rows(path, field, 3, 4)


@pytest.mark.parametrize(("container", "position"), [("tensor", 60), ("zarr", -10)])
def test_a_damaged_header_or_index_is_refused(
    container: Container, position: int, tmp_path: Path
) -> None:
    path = write_rows(tmp_path, container, LARGE, random_rows(LARGE, 3), 4)
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)

    with pytest.raises(FormatError, match="is not that of 3 rows"):
        CONTAINERS[container].open_rows(path, LARGE, 3, 4)


def test_a_discarded_file_is_gone(tmp_path: Path) -> None:
    writer = RowWriter(tmp_path / "shard", b"header")
    writer.append(np.zeros(5, np.uint8))

    writer.discard()

    assert not list(tmp_path.iterdir())


def test_a_prefix_may_not_change_its_length(tmp_path: Path) -> None:
    writer = RowWriter(tmp_path / "shard", b"header")

    with pytest.raises(ValueError, match="prefix of 3 bytes, not 6"):
        writer.finish(b"abc", b"")
    writer.discard()


@pytest.fixture
def zarr_dataset(tmp_path: Path) -> Path:
    items = numbered_items(11, bad=(1, 4, 5, 6, 7)) | {"train/009": b"zero"}
    write_items(tmp_path / "source", {**items, **numbered_items(1, split="validation")})
    recipe = DigestRecipe(side=400)
    options = RunOptions(container="zarr", shard_nbytes=4 * row_nbytes(recipe), workers=2)
    run(plan_digests(tmp_path / "source", tmp_path / "out", options, recipe), options)
    return tmp_path / "out"


def test_zarr_reads_every_sample_of_a_zarr_dataset(zarr_dataset: Path) -> None:
    import zarr

    manifest = read_manifest(zarr_dataset)
    assert manifest.splits["train"].counts == (3, 0, 3)
    root: Any = zarr.open(zarr_dataset, mode="r")

    for name, split in manifest.splits.items():
        valid = np.zeros(split.items, bool)
        for shard, count in enumerate(split.counts):
            valid[shard * split.capacity : shard * split.capacity + count] = True
        assert root[name]["valid"][:].tolist() == valid.tolist()
        for field in split.fields:
            rows = root[name][field.name][:]
            assert rows.shape == (split.items, *field.shape)
            assert rows.dtype == field.numpy_dtype
            assert not rows[~valid].any()
            for shard, count in enumerate(split.counts):
                if count:
                    path = CONTAINERS["zarr"].shard_path(
                        zarr_dataset, name, shard, field, split.capacity
                    )
                    ours = CONTAINERS["zarr"].open_rows(path, field, count, split.capacity)
                    first = shard * split.capacity
                    assert np.array_equal(rows[first : first + count], ours)
    keys = [bytes(key).rstrip(b"\0").decode() for key in root["train"]["key"][:]]
    images = root["train"]["image_4"][:]
    assert not images[keys.index("train/009")].any()
    assert images[keys.index("train/010")].any()


def test_opening_and_listing_a_zarr_dataset_warns_of_nothing(zarr_dataset: Path) -> None:
    import zarr

    assert (zarr_dataset / REPORT).exists()
    assert (zarr_dataset / SKIPPED).exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        root: Any = zarr.open(zarr_dataset, mode="r")
        assert sorted(name for name, _ in root.members()) == ["train", "validation"]
        assert sorted(name for name, _ in root["train"].members()) == [
            "image_4",
            "key",
            "label",
            "valid",
        ]
        assert len(root.members(max_depth=None)) == 10


def test_the_root_group_carries_what_zarr_itself_would_consolidate(zarr_dataset: Path) -> None:
    import zarr

    ours = read_json(zarr_dataset / "zarr.json")
    before = read_tree(zarr_dataset)
    (zarr_dataset / "manifest.json").unlink()
    (zarr_dataset / REPORT).unlink()
    (zarr_dataset / SKIPPED).unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        zarr.consolidate_metadata(str(zarr_dataset))

    assert read_json(zarr_dataset / "zarr.json") == ours
    after = read_tree(zarr_dataset)
    assert {name: before[name] for name in after if name != "zarr.json"} == {
        name: data for name, data in after.items() if name != "zarr.json"
    }
