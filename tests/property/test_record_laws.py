"""Records: what is written is what is opened, in every container, and nothing else is taken."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google_crc32c import value
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from loaders.errors import FormatError
from loaders.format.columns import open_column
from loaders.format.containers import CONTAINERS
from loaders.format.crc32c import with_other_start
from loaders.format.fields import FieldSpec
from loaders.format.records import RECORD_DTYPES, RecordPart, pack_record, record_dtype
from loaders.format.row_writer import RowWriter
from loaders.format.spec import Container, Manifest, read_manifest
from loaders.format.strict import Place
from loaders.format.table_schema import ColumnSpec, TableSchema
from preprocess import check_dataset
from preprocess.plan import RunOptions
from tests.recipes import numbered_items
from tests.record_recipes import RecordRecipe, prepare_records
from tests.strategies import COLUMN_NAMES, record_fields, records

quick = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def write_shard(path: Path, container: Container, field: FieldSpec, rows: Any) -> None:
    layout = CONTAINERS[container]
    writer = RowWriter(path, layout.prefix(field, 99))
    writer.append(rows)
    writer.finish(layout.prefix(field, len(rows)), layout.suffix(field, len(rows), 5000))


@pytest.mark.parametrize("container", ["tensor", "zarr"])
@quick
@given(field=record_fields(), count=st.sampled_from([0, 1, 2, 1000, 5000]), seed=st.integers(0, 9))
def test_records_that_are_written_are_the_records_that_are_opened(
    container: Container, field: FieldSpec, count: int, seed: int, tmp_path: Path
) -> None:
    data = np.random.default_rng(seed).bytes(count * field.nbytes)
    rows = np.frombuffer(data, field.numpy_dtype)

    write_shard(tmp_path / "shard", container, field, rows)
    found = CONTAINERS[container].open_rows(tmp_path / "shard", field, count, 5000)

    assert found.dtype == field.numpy_dtype
    assert found.shape == (count,)
    assert found.tobytes() == data
    assert not found.flags.writeable


@quick
@given(field=record_fields(), count=st.sampled_from([1, 3]))
def test_numpy_alone_opens_every_column_by_its_name(
    field: FieldSpec, count: int, tmp_path: Path
) -> None:
    rows = np.frombuffer(np.random.default_rng(0).bytes(count * field.nbytes), field.numpy_dtype)

    write_shard(tmp_path / "shard.npy", "tensor", field, rows)
    found = np.load(tmp_path / "shard.npy", mmap_mode="r", allow_pickle=False)

    for name, dtype, length in field.record or ():
        expected = (count,) if length == 1 else (count, length)
        assert found[name].shape == expected
        assert found[name].dtype == np.dtype(dtype).newbyteorder("<")
        assert found[name].tobytes() == rows[name].tobytes()


@quick
@given(parts=records(), data=st.data())
def test_a_record_of_other_parts_is_never_taken_for_this_one(
    parts: tuple[RecordPart, ...], data: st.DataObject, tmp_path: Path
) -> None:
    place = data.draw(st.integers(0, len(parts) - 1))
    name, dtype, length = parts[place]
    other = data.draw(
        st.tuples(COLUMN_NAMES, st.just(dtype), st.just(length))
        | st.tuples(st.just(name), st.sampled_from(RECORD_DTYPES), st.just(length))
        | st.tuples(st.just(name), st.just(dtype), st.integers(1, 6))
    )
    assume(other != parts[place])
    assume(other[0] == name or other[0] not in {taken for taken, _, _ in parts})
    changed = pack_record((*parts[:place], other, *parts[place + 1 :]))
    ours, theirs = (
        FieldSpec(name="record", dtype="record", shape=(), role="record", record=record)
        for record in (parts, changed)
    )
    write_shard(tmp_path / "shard", "tensor", ours, np.zeros(3, ours.numpy_dtype))

    with pytest.raises(FormatError):
        CONTAINERS["tensor"].open_rows(tmp_path / "shard", theirs, 3, None)


@quick
@given(field=record_fields(), data=st.data())
def test_a_flipped_bit_in_the_header_is_never_taken(
    field: FieldSpec, data: st.DataObject, tmp_path: Path
) -> None:
    write_shard(tmp_path / "shard", "tensor", field, np.zeros(3, field.numpy_dtype))
    changed = bytearray((tmp_path / "shard").read_bytes())
    bit = data.draw(st.integers(0, 8 * len(CONTAINERS["tensor"].prefix(field, 3)) - 1))
    changed[bit // 8] ^= 1 << bit % 8
    (tmp_path / "shard").write_bytes(changed)

    with pytest.raises(FormatError, match="is not that of 3 rows"):
        CONTAINERS["tensor"].open_rows(tmp_path / "shard", field, 3, None)


@quick
@given(parts=records(), count=st.integers(0, 10**12))
def test_a_header_has_one_length_for_every_count(parts: tuple[RecordPart, ...], count: int) -> None:
    field = FieldSpec(name="record", dtype="record", shape=(), role="record", record=parts)

    lengths = {len(CONTAINERS["tensor"].prefix(field, n)) for n in (0, 1, count)}

    assert len(lengths) == 1
    assert lengths.pop() % 64 == 0


@quick
@given(parts=records())
def test_a_record_is_aligned_and_implies_no_byte(parts: tuple[RecordPart, ...]) -> None:
    dtype = record_dtype(parts)

    assert dtype.itemsize == sum(dtype[index].itemsize for index in range(len(parts)))
    assert list(dtype.names or ()) == [name for name, _, _ in parts]
    for name, stored, _ in parts:
        size = np.dtype(stored).itemsize
        assert (dtype.fields or {})[name][1] % size == 0
        assert dtype.itemsize % size == 0
    assert pack_record(parts) == parts


@quick
@given(field=record_fields())
def test_a_record_field_survives_its_json(field: FieldSpec) -> None:
    value = json.loads(json.dumps(field.to_json()))

    assert FieldSpec.from_json(Place("here"), value) == field


@quick
@given(
    names=st.lists(COLUMN_NAMES, min_size=1, max_size=8, unique=True),
    data=st.data(),
)
def test_a_schema_lays_out_its_columns_and_survives_its_bytes(
    names: list[str], data: st.DataObject
) -> None:
    columns = tuple(
        ColumnSpec(
            name=name,
            kind="vector",
            role="feature",
            dtype=data.draw(st.sampled_from(RECORD_DTYPES)),  # type: ignore[arg-type]
            length=data.draw(st.integers(1, 9)),
            layout=data.draw(st.sampled_from(["fixed", "fixed", "padded", "ragged"])),
        )
        for name in names
    )
    schema = TableSchema(columns)

    assert TableSchema.from_json(json.loads(schema.to_bytes()), "here") == schema
    found, lengths = set(schema.record_dtype.names or ()), schema.length_names
    assert found >= {spec.name for spec in columns if spec.layout != "ragged"}
    assert lengths.keys() == {spec.name for spec in columns if spec.layout != "fixed"}
    assert len({*lengths.values(), *names}) == len(lengths) + len(names)
    assert found >= set(lengths.values())
    assert schema.list_fields.keys() == {s.name for s in columns if s.layout == "ragged"}
    sizes = [np.dtype(dtype).itemsize for _, dtype, _ in schema.record]
    assert sizes == sorted(sizes, reverse=True)
    stored = [spec.name for spec in columns if spec.layout != "ragged"]
    assert sorted(stored) == sorted(n for n, _, _ in schema.record if n in set(stored))


@pytest.mark.parametrize("container", ["tensor", "zarr"])
@pytest.mark.parametrize("rows", [None, 1, 700])
@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(parts=records(), items=st.integers(1, 7), shard=st.integers(1, 4))
def test_a_run_of_several_shards_gives_every_record_back(
    container: Container,
    rows: int | None,
    parts: tuple[RecordPart, ...],
    items: int,
    shard: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    recipe = RecordRecipe(record=parts, rows=rows)
    contents = numbered_items(items, bad=() if items == 1 else (0,))
    nbytes = recipe.fields()[0].nbytes * (rows or 1) * shard
    options = RunOptions(container=container, shard_nbytes=max(1, nbytes), workers=2)
    out = prepare_records(tmp_path_factory.mktemp("run"), contents, options, recipe)

    manifest: Manifest = read_manifest(out)
    found = b"".join(
        open_column(out, manifest, "train", "record", index).tobytes()
        for index, count in enumerate(manifest.splits["train"].counts)
        if count
    )

    good = [data for _, data in sorted(contents.items()) if not data.startswith(b"bad")]
    assert found == b"".join(recipe.records(data).tobytes() for data in good)
    assert manifest.version == 3
    assert check_dataset(out, full=True).problems == ()


@given(st.binary(max_size=40), st.integers(0, 2**32 - 1), st.binary(max_size=5_000))
def test_a_checksum_follows_when_the_first_bytes_change(
    start: bytes, mask: int, rest: bytes
) -> None:
    other = bytes(byte ^ (mask >> index % 4 * 8) & 255 for index, byte in enumerate(start))
    whole = value(start + rest)
    assert with_other_start(whole, start, other, len(rest)) == value(other + rest)
