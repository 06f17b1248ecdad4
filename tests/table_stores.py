"""Small tables out of arrays of codes, written through the format alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google_crc32c import value as crc32c
from numpy.typing import NDArray

from loaders.format.containers import CONTAINERS
from loaders.format.fields import FieldSpec
from loaders.format.files import crc32c_digits, to_json
from loaders.format.spec import Container, Manifest
from loaders.format.split_spec import ShardFiles, SplitSpec
from loaders.format.table_schema import TABLE_SCHEMA, ColumnSpec, TableSchema
from loaders.format.table_statistics import QUANTILES, ColumnStatistics

Codes = Mapping[str, Any]
"""Column -> what is stored of it, one entry a sample."""


def write_table(
    root: Path,
    specs: Sequence[ColumnSpec],
    codes: Codes,
    *,
    shards: Sequence[int] | None = None,
    vocabularies: Mapping[str, Sequence[str]] | None = None,
    container: Container = "tensor",
    splits: Sequence[str] = ("train",),
    recipe: Mapping[str, Any] | None = None,
) -> Path:
    """Write a dataset of kind "table" whose splits all hold the same samples.

    Args:
        root: The dataset's folder; made if absent.
        specs: The columns.
        codes: What is stored.
        shards: Samples in each; one of all by default.
        vocabularies: Column -> its values; their path is that of the column's spec.
        container: How shards are stored.
        splits: Their names.
        recipe: Options in the manifest.

    Returns:
        The folder.
    """
    schema = TableSchema(tuple(specs))
    records = packed(schema, codes)
    extras = {TABLE_SCHEMA: schema.to_bytes()}
    for spec in specs:
        if spec.vocabulary is not None:
            values = [*(vocabularies or {})[spec.name]]
            extras[spec.vocabulary] = to_json({"values": values, "counts": [1] * len(values)})
    counts = [len(records)] if shards is None else [*shards]
    manifest = Manifest(
        container=container,
        kind="table",
        recipe=dict(recipe or {}),
        recipe_hash="0" * 64,
        source_hash="0" * 64,
        classes=(),
        skipped=0,
        splits={
            name: _write_split(root, name, schema, records, counts, container) for name in splits
        },
        extras={name: (len(data), crc32c_digits(data)) for name, data in extras.items()},
    )
    for name, data in {**extras, **CONTAINERS[container].group_files(manifest)}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "manifest.json").write_bytes(manifest.to_bytes())
    return root


def packed(schema: TableSchema, codes: Codes) -> NDArray[Any]:
    """Return records [n] of columns of codes."""
    count = len(next(iter(codes.values())))
    records = np.zeros(count, schema.record_dtype)
    for name, values in codes.items():
        records[name] = values
    return records


def _write_split(
    root: Path,
    split: str,
    schema: TableSchema,
    records: NDArray[Any],
    counts: Sequence[int],
    container: Container,
) -> SplitSpec:
    form = CONTAINERS[container]
    field = FieldSpec(name="record", dtype="record", shape=(), role="record", record=schema.record)
    files: list[tuple[int, str]] = []
    start = 0
    for index, count in enumerate(counts):
        rows = records[start : start + count]
        start += count
        if not count:
            files.append((0, f"{0:08x}"))
            continue
        path = form.shard_path(root, split, index, field, None)
        path.parent.mkdir(parents=True, exist_ok=True)
        data = form.prefix(field, count) + rows.tobytes() + form.suffix(field, count, None)
        path.write_bytes(data)
        files.append((len(data), f"{crc32c(data):08x}"))
    return SplitSpec(
        fields=(field,),
        capacity=None,
        items=max(1, len(counts)),
        counts=tuple(counts),
        files={
            "record": ShardFiles(
                nbytes=tuple(nbytes for nbytes, _ in files),
                crc32c=tuple(digits for _, digits in files),
            )
        },
        statistics={},
        class_counts=None,
    )


def statistics(values: Sequence[float], missing: int = 0) -> ColumnStatistics:
    """Return statistics with the mean and deviation of some values."""
    found = np.array(values, np.float64)
    known = len(found) > 0
    return ColumnStatistics(
        count=len(found) + missing,
        missing=missing,
        mean=float(found.mean()) if known else None,
        std=float(found.std()) if known else None,
        minimum=float(found.min()) if known else None,
        maximum=float(found.max()) if known else None,
        quantiles=tuple(np.quantile(found, QUANTILES).tolist()) if known else (),
    )


CITIES = ("Rom", "Oslo", "")
CLASSES = ("no", "yes")


def people_specs() -> list[ColumnSpec]:
    """Return columns of every kind; those of one dtype are of several kinds."""

    def feature(**options: Any) -> ColumnSpec:
        return ColumnSpec(role="feature", **options)

    return [
        feature(
            name="age",
            kind="integer",
            dtype="uint8",
            offset=18,
            statistics=statistics([20, 40], missing=1),
        ),
        feature(
            name="city",
            kind="categorical",
            dtype="uint8",
            vocabulary="table/vocabulary/0001.json",
            values=3,
        ),
        feature(name="ok", kind="boolean", dtype="uint8", statistics=statistics([0, 1, 1])),
        feature(name="zip", kind="categorical", dtype="uint16", buckets=1000),
        feature(
            name="born",
            kind="date",
            dtype="uint16",
            offset=-10_000,
            statistics=statistics([0, 100, 7000]),
        ),
        feature(
            name="price",
            kind="decimal",
            dtype="int32",
            offset=-100,
            exponent=-2,
            statistics=statistics([1.5, 2.5, 9.99]),
        ),
        feature(
            name="seen",
            kind="datetime",
            dtype="int64",
            offset=1_600_000_000_000_000,
            statistics=statistics([1.6e15, 1.6e15 + 2e9]),
        ),
        feature(name="height", kind="float", dtype="float32", statistics=statistics([1.7, 1.8], 2)),
        feature(name="score", kind="float", dtype="float64", statistics=statistics([1e9, 1e9 + 2])),
        feature(name="face", kind="vector", dtype="float32", length=3),
        feature(
            name="tags",
            kind="vector",
            dtype="uint8",
            length=2,
            vocabulary="table/vocabulary/0010.json",
            values=2,
        ),
        feature(name="steps", kind="vector", dtype="uint16", length=2, offset=-5),
        ColumnSpec(
            name="bought",
            kind="categorical",
            role="target",
            dtype="uint8",
            vocabulary="table/vocabulary/0012.json",
            values=2,
        ),
    ]


def people_codes(count: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Return random codes of `people_specs`; about one in ten is missing."""
    rng = np.random.default_rng(seed)
    known = rng.random((count, 13)) > 0.1

    def codes(column: int, low: int, high: int) -> NDArray[Any]:
        return np.where(known[:, column], rng.integers(low, high, count), 0)

    return {
        "age": codes(0, 1, 90),
        "city": codes(1, 1, 5),
        "ok": codes(2, 1, 3),
        "zip": codes(3, 1, 1001),
        "born": codes(4, 1, 30_000),
        "price": codes(5, 1, 1 << 30),
        "seen": codes(6, 1, 1 << 50),
        "height": np.where(known[:, 7], rng.normal(1.7, 0.2, count), np.nan),
        "score": np.where(known[:, 8], rng.normal(1e9, 10, count), np.nan),
        "face": rng.normal(size=(count, 3)),
        "tags": rng.integers(0, 4, (count, 2)),
        "steps": rng.integers(0, 60_000, (count, 2)),
        "bought": rng.integers(0, 2, count),
    }


def write_people(root: Path, count: int = 50, *, seed: int = 0, **options: Any) -> Path:
    """Write a table of `people_specs`."""
    vocabularies = {"city": CITIES, "tags": ("red", "blue"), "bought": CLASSES}
    codes = people_codes(count, seed)
    return write_table(root, people_specs(), codes, vocabularies=vocabularies, **options)
