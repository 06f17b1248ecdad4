"""Writes the golden files: `python -m tests.golden.regenerate`. Look at the diff before it counts.

A change here is a change of the format's bytes: it belongs under "Format" in CHANGELOG.md.
"""

import hashlib
import json
import tempfile
from pathlib import Path

from loaders.format.fields import FieldSpec
from loaders.format.files import MANIFEST
from loaders.format.spec import Container, Manifest
from loaders.format.split_spec import ShardFiles, SplitSpec
from loaders.format.statistics import ChannelStatistics
from loaders.format.table_schema import TABLE_SCHEMA
from preprocess.plan import RunOptions
from preprocess.run import run
from preprocess.tables.options import TableOptions
from preprocess.tables.prepare import table_to_shards
from tests.recipes import (
    DigestRecipe,
    numbered_items,
    plan_digests,
    read_tree,
    row_nbytes,
    write_items,
)
from tests.record_recipes import SCHEMA, RecordRecipe, prepare_records

HERE = Path(__file__).parent
MANIFEST_FILE = HERE / "small.manifest.json"
DIGESTS_FILE = HERE / "digests.json"
RECORDS_FILE = HERE / "records.json"
LISTS_FILE = HERE / "lists.json"


def small_manifest() -> Manifest:
    """Return a manifest that has every kind of value in it, made of literals alone."""
    split = SplitSpec(
        fields=(
            FieldSpec(name="image_2", dtype="uint8", shape=(1, 2, 3), role="image"),
            FieldSpec(name="label", dtype="uint16", shape=(), role="label"),
            FieldSpec(name="key", dtype="uint8", shape=(5,), role="key"),
        ),
        capacity=2,
        items=3,
        counts=(1, 1),
        files={
            "image_2": ShardFiles(nbytes=(134, 134), crc32c=("0123abcd", "00000000")),
            "label": ShardFiles(nbytes=(130, 130), crc32c=("ffffffff", "00000001")),
            "key": ShardFiles(nbytes=(133, 133), crc32c=("89abcdef", "00000002")),
        },
        statistics={
            "image_2": ChannelStatistics(
                pixels=4, sums=(6, 0, 1020), squares=(14, 0, 260100), levels=255
            )
        },
        class_counts=(1, 1),
    )
    ragged = SplitSpec(
        fields=(
            FieldSpec(name="tokens", dtype="uint16", shape=(), role="tokens", ragged=True),
            FieldSpec(name="length", dtype="uint32", shape=(), role="length"),
        ),
        capacity=None,
        items=3,
        counts=(4,),
        values={"tokens": (9,)},
        files={
            "tokens": ShardFiles(nbytes=(146,), crc32c=("00000003",)),
            "tokens_offsets": ShardFiles(nbytes=(168,), crc32c=("00000004",)),
            "length": ShardFiles(nbytes=(144,), crc32c=("00000005",)),
        },
        statistics={},
        class_counts=None,
        tallies={"text_nbytes": (31,)},
    )
    return Manifest(
        container="tensor",
        kind="images",
        recipe={"side": 2, "names": ["a", None], "grey": False},
        recipe_hash="0123456789abcdef" * 4,
        source_hash="fedcba9876543210" * 4,
        classes=("Käfer", "\udcff \u2028"),
        skipped=1,
        splits={"train": split, "test": ragged},
        extras={"tokenizer/tokenizer.json": (12, "00000006")},
    )


def digests() -> dict[str, dict[str, str]]:
    """Return SHA-256 of every file of small datasets; for zarr, only of what prep itself writes."""
    recipes = {
        "uint8": DigestRecipe(),
        "uint16, sharded zarr": DigestRecipe(side=200, dtype="uint16"),
    }
    containers: tuple[Container, ...] = ("tensor", "zarr")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        items = {**numbered_items(7, bad=(1,)), "train/005": b"zero"}
        write_items(source, {**items, **numbered_items(2, split="validation")})
        for what, recipe in recipes.items():
            for container in containers:
                name = f"{container}, {what}"
                out = Path(folder, name)
                options = RunOptions(
                    container=container, shard_nbytes=3 * row_nbytes(recipe), workers=1
                )
                run(plan_digests(source, out, options, recipe), options)
                found[name] = {
                    path: hashlib.sha256(data).hexdigest()
                    for path, data in read_tree(out).items()
                    if not path.endswith("zarr.json")
                }
    return found


def record_files() -> dict[str, dict[str, str]]:
    """Return small datasets of records: text as it is, SHA-256 of the rest."""
    containers: tuple[Container, ...] = ("tensor", "zarr")
    found = {}
    for container in containers:
        for rows in (None, 3):
            with tempfile.TemporaryDirectory() as folder:
                options = RunOptions(container=container, shard_nbytes=250, workers=1)
                items = {**numbered_items(9, bad=(1,)), **numbered_items(1, split="test")}
                recipe = RecordRecipe(rows=rows)
                out = prepare_records(Path(folder), items, options, recipe, SCHEMA)
                found[f"{container}, {'planned' if rows is None else 'not planned'}"] = {
                    path: data.decode()
                    if path in {MANIFEST, TABLE_SCHEMA}
                    else hashlib.sha256(data).hexdigest()
                    for path, data in read_tree(out).items()
                    if not path.endswith("zarr.json")
                }
    return found


def list_files() -> dict[str, dict[str, str]]:
    """Return small tables with lists of several lengths: text as it is, SHA-256 of the rest.

    The manifest has all options, of which there may be new ones.
    """
    lists = [
        {"a": ["x", "é"], "b": [0.5] * 40, "c": [1, None]},
        {"a": [], "b": [], "c": None},
        {"a": None, "b": None, "c": [300]},
        {"a": [None], "b": [None, 2.5], "c": []},
    ]
    containers: tuple[Container, ...] = ("tensor", "zarr")
    found = {}
    for container in containers:
        with tempfile.TemporaryDirectory() as folder:
            source, out = Path(folder, "rows.jsonl"), Path(folder, "out")
            source.write_text("".join(f"{json.dumps(row)}\n" for row in lists))
            run_options = RunOptions(container=container, workers=1)
            table_to_shards(source, out, TableOptions(), run_options)
            found[container] = {
                path: data.decode() if path.endswith(".json") else hashlib.sha256(data).hexdigest()
                for path, data in read_tree(out).items()
                if path != MANIFEST and not path.endswith("zarr.json")
            }
    return found


if __name__ == "__main__":
    MANIFEST_FILE.write_bytes(small_manifest().to_bytes())
    DIGESTS_FILE.write_text(json.dumps(digests(), indent=1) + "\n")
    RECORDS_FILE.write_text(json.dumps(record_files(), indent=1) + "\n")
    LISTS_FILE.write_text(json.dumps(list_files(), indent=1) + "\n")
