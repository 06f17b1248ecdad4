"""Records: fields of them, their headers, what zarr makes of them, and manifests with them."""

import json
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loaders.errors import FormatError
from loaders.format.containers import CONTAINERS
from loaders.format.fields import FieldSpec
from loaders.format.files import MANIFEST
from loaders.format.records import MAX_PARTS, MAX_RECORD_NBYTES, RecordPart
from loaders.format.spec import Manifest, read_manifest
from loaders.format.strict import Place
from preprocess import check_dataset
from preprocess.plan import RunOptions
from tests.recipes import numbered_items
from tests.record_recipes import SCHEMA, RecordRecipe, prepare_records


def record_field(*parts: RecordPart) -> FieldSpec:
    return FieldSpec(name="record", dtype="record", shape=(), role="record", record=parts)


def test_the_dtype_of_a_record_is_structured_little_endian_and_packed() -> None:
    field = record_field(("x", "float64", 1), ("v", "float32", 3), ("c", "uint16", 2))

    assert field.numpy_dtype.descr == [("x", "<f8"), ("v", "<f4", (3,)), ("c", "<u2", (2,))]
    assert field.nbytes == 24


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((), "got 0, expected 1 to"),
        ((("", "uint8", 1),), "got '', expected a name"),
        ((("a\0", "uint8", 1),), "none of them NUL"),
        ((("a\udc00", "uint8", 1),), "expected a name"),
        ((("n" * 5000, "uint8", 1),), "expected a name"),
        ((("a", "uint8", 1), ("a", "uint8", 1)), "got 'a', expected different names"),
        ((("a", "uint64", 1),), "'a': got 'uint64', expected a dtype of"),
        ((("a", "object", 1),), "'a': got 'object', expected a dtype of"),
        ((("a", "uint8", 0),), "'a': got 0, expected an integer in 1.."),
        ((("a", "uint8", True),), "'a': got True, expected an integer"),
        ((("a", "uint8", 2), ("b", "int32", 1)), "'b': got 2, expected an offset that is a mult"),
        ((("a", "int32", 1), ("b", "uint8", 1)), "got 5, expected a size that is a multiple of 4"),
        ((("a", "int64", MAX_RECORD_NBYTES),), "expected up to"),
    ],
)  # fmt: skip
def test_parts_that_are_no_record_are_refused(parts: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        record_field(*parts)


@pytest.mark.parametrize(
    "changed",
    [
        {"dtype": "uint8"},
        {"role": "key", "dtype": "uint8", "shape": (4,)},
        {"shape": (2,)},
        {"ragged": True},
        {"record": None},
    ],
)
def test_a_field_has_parts_exactly_where_it_is_of_records(changed: dict[str, Any]) -> None:
    facts: dict[str, Any] = {"name": "record", "dtype": "record", "shape": (), "role": "record"}

    with pytest.raises(FormatError, match=r"^field 'record': got"):
        FieldSpec(**{**facts, "record": (("a", "uint8", 1),), **changed})


@pytest.mark.parametrize(
    "record",
    [
        None,
        {},
        [],
        [["a", "uint8"]],
        [["a", "uint8", 1, 1]],
        [["a", "uint8", 1.0]],
        [[1, "uint8", 1]],
        [["a", 8, 1]],
        ["a"],
        [{"name": "a"}],
        [["a", "uint8", 10**30]],
    ],
)
def test_json_that_is_no_record_is_refused(record: Any) -> None:
    value = {**record_field(("a", "uint8", 1)).to_json(), "record": record}

    with pytest.raises(FormatError):
        FieldSpec.from_json(Place("here"), value)


def test_only_the_json_of_a_record_has_parts() -> None:
    key = FieldSpec(name="key", dtype="uint8", shape=(3,), role="key").to_json()
    assert "record" not in key

    with pytest.raises(FormatError, match="got 'record', expected no key but"):
        FieldSpec.from_json(Place("here"), {**key, "record": [["a", "uint8", 3]]})


def test_a_header_with_names_of_ascii_is_the_one_that_numpy_writes_however_long() -> None:
    for count in (1, 500, 3000, 4095, MAX_PARTS):
        field = record_field(*((f"column {index}", "uint8", 1) for index in range(count)))
        expected = BytesIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Stored array in format 2.0", UserWarning)
            np.lib.format.write_array(expected, np.zeros(2, field.numpy_dtype))

        header = CONTAINERS["tensor"].prefix(field, 2)

        assert header == expected.getvalue()[: -2 * field.nbytes]
        assert header[6] == (1 if len(header) < 1 << 16 else 2)


def test_a_wide_table_opens_with_numpy_once_it_is_told_how_long_a_header_may_be(
    tmp_path: Path,
) -> None:
    field = record_field(*((f"Spalte ä {index}", "int32", 1) for index in range(4000)))
    rows = np.arange(8000, dtype="<i4").view(field.numpy_dtype)
    path = tmp_path / "wide.npy"
    path.write_bytes(CONTAINERS["tensor"].prefix(field, 2) + rows.tobytes())

    with pytest.raises(ValueError, match="max_header_size"):
        np.load(path, mmap_mode="r")
    found = np.load(path, mmap_mode="r", max_header_size=1 << 24)

    assert found["Spalte ä 3999"].tolist() == [3999, 7999]


@pytest.mark.parametrize("rows", [None, 5], ids=["planned", "not planned"])
def test_zarr_reads_the_records_of_a_zarr_dataset(rows: int | None, tmp_path: Path) -> None:
    import zarr

    recipe = RecordRecipe(rows=rows)
    options = RunOptions(container="zarr", shard_nbytes=3 * 32 * (rows or 1), workers=1)
    contents = numbered_items(7, bad=(1, 3, 4, 5))
    out = prepare_records(tmp_path, contents, options, recipe, SCHEMA)
    split = read_manifest(out).splits["train"]
    good = [data for key, data in sorted(contents.items()) if not data.startswith(b"bad")]
    expected = b"".join(recipe.records(data).tobytes() for data in good)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        root: Any = zarr.open(out, mode="r")
        if rows is None:
            found = root["train/record"][:]
            assert not found[~root["train/valid"][:]].tobytes().strip(b"\0")
            found = found[root["train/valid"][:]]
        else:
            shards = [index for index, count in enumerate(split.counts) if count]
            found = np.concatenate([root[f"train/record/{i:05d}"][:] for i in shards])

    assert found.tobytes() == expected
    ours = found.view(SCHEMA.record_dtype)
    assert found["y"].tolist() == ours["y"].tolist()
    assert found["embedding"].view(("<f4", (3,))).tobytes() == ours["embedding"].tobytes()
    assert check_dataset(out, full=True).problems == ()


@pytest.mark.parametrize("length", [1, 3, 2001])
def test_chunks_and_data_type_are_those_that_zarr_writes(length: int, tmp_path: Path) -> None:
    import zarr

    field = record_field(("a", "int64", 1), ("größe", "float32", length), ("c", "uint8", 4))
    parts: list[Any] = [("a", "<i8"), ("größe", f"V{4 * length}"), ("c", "V4")]
    if length == 1:
        parts[1] = ("größe", "<f4")
    rows = np.frombuffer(np.random.default_rng(0).bytes(7 * field.nbytes), np.dtype(parts))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        array = zarr.create_array(
            tmp_path / "theirs",
            shape=(7,),
            dtype=rows.dtype,
            chunks=(4,),
            compressors=None,
            fill_value=bytes(field.nbytes),
        )
        array[:] = rows
    recipe = RecordRecipe(record=field.record or ())
    options = RunOptions(container="zarr", shard_nbytes=4 * field.nbytes, workers=1)
    out = prepare_records(tmp_path, numbered_items(7), options, recipe)

    ours = json.loads((out / "train/record/zarr.json").read_text())
    theirs = json.loads((tmp_path / "theirs/zarr.json").read_text())
    # The order of bytes is said too: later versions of zarr warn where it is not.
    assert ours.pop("codecs") == [{"name": "bytes", "configuration": {"endian": "little"}}]
    assert theirs.pop("codecs") == [{"name": "bytes"}]
    assert ours == theirs
    layout = CONTAINERS["zarr"]
    for index, count in enumerate((4, 3)):
        shard = rows[4 * index : 4 * index + count].tobytes()
        written = layout.prefix(field, count) + shard + layout.suffix(field, count, 4)
        assert written == (tmp_path / f"theirs/c/{index}").read_bytes()


def test_the_version_rises_only_where_there_are_records(tmp_path: Path) -> None:
    options = RunOptions(shard_nbytes=64, workers=1)
    out = prepare_records(tmp_path, numbered_items(3), options, RecordRecipe())
    value = json.loads((out / MANIFEST).read_bytes())

    assert value["format_version"] == 3
    for wrong in (1, 2):
        with pytest.raises(FormatError):
            Manifest.from_json({**value, "format_version": wrong}, "here")
    value["splits"]["train"]["fields"] = [
        FieldSpec(name="record", dtype="uint8", shape=(32,), role="key").to_json()
    ]
    with pytest.raises(FormatError, match="format_version: got 3, expected 2, for the fields"):
        Manifest.from_json(value, "here")
    assert Manifest.from_json({**value, "format_version": 2}, "here").version == 2


def test_records_of_another_dtype_are_a_fault_of_the_recipe(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"field record is \|V1 .*promised was .*'age'"):
        prepare_records(
            tmp_path, numbered_items(2), RunOptions(workers=1), RecordRecipe(wrong=True)
        )
