"""Hypothesis strategies: fields, and whole manifests whose parts agree."""

from typing import Any, get_args

import numpy as np
from hypothesis import strategies as st

from loaders.format.encoding import Chroma, Encoding
from loaders.format.fields import (
    DTYPES,
    FieldSpec,
    Role,
)
from loaders.format.records import RECORD_DTYPES, RecordPart, pack_record
from loaders.format.spec import SPLITS, Manifest
from loaders.format.split_spec import ShardFiles, SplitSpec
from loaders.format.statistics import ChannelStatistics

HASHES = st.text("0123456789abcdef", min_size=64, max_size=64)
CHECKSUMS = st.text("0123456789abcdef", min_size=8, max_size=8)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


COLUMN_NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6
) | st.sampled_from(["_padding", "_padding_", "a'b", "f0", "été", "年"])


@st.composite
def records(draw: st.DrawFn) -> tuple[RecordPart, ...]:
    """The parts of a record, with its padding."""
    names = draw(st.lists(COLUMN_NAMES, min_size=1, max_size=6, unique=True))
    return pack_record(
        (name, draw(st.sampled_from(RECORD_DTYPES)), draw(st.sampled_from([1, 1, 2, 5])))
        for name in names
    )


@st.composite
def record_fields(draw: st.DrawFn) -> FieldSpec:
    """A field of records."""
    record = draw(records())
    return FieldSpec(name=draw(NAMES), dtype="record", shape=(), role="record", record=record)


@st.composite
def field_specs(draw: st.DrawFn) -> FieldSpec:
    """Any field."""
    role: Role = draw(st.sampled_from(get_args(Role)))
    if role == "record":
        return draw(record_fields())
    side = st.integers(1, 7)
    row = st.tuples(st.integers(1, 40))
    shapes = {
        "image": st.tuples(side, side, st.integers(1, 4)),
        "label": st.just(()),
        "length": st.just(()),
        "page": st.just(()),
        "transform": st.just((10,)),
        "pixel_labels": st.tuples(side, side),
        "boxes": st.just((4,)),
    }
    pictured = {"image": ["uint8", "uint16"], "pixel_labels": ["uint8", "uint16"]}
    floats = {"boxes": ["float32"], "targets": ["float32"], "list": [*RECORD_DTYPES]}
    choices = {"tokens": ["uint16", "uint32"], "page": ["uint32"], "transform": ["uint32"]}
    choices |= {**pictured, **floats, "box_labels": ["uint8", "uint16"]}
    bytes_only = role in {"key", "mask", "metadata", "labels"}
    dtype = draw(st.sampled_from(["uint8"] if bytes_only else choices.get(role, DTYPES)))
    never = {"label", "page", "transform", "labels", "targets"}
    always = {"metadata", "boxes", "box_labels", "list"}
    ragged = role in always or (role not in never and draw(st.booleans()))
    if ragged and role in {"image", "pixel_labels"}:
        shapes |= {"image": st.tuples(st.integers(1, 4)), "pixel_labels": st.just(())}
    shape = draw(shapes.get(role, st.just(()) if ragged else row))
    encoding = draw(encodings(role, dtype, shape, ragged))
    return FieldSpec(
        name=draw(NAMES), dtype=dtype, shape=shape, role=role, ragged=ragged, encoding=encoding
    )


@st.composite
def encodings(
    draw: st.DrawFn, role: str, dtype: str, shape: tuple[int, ...], ragged: bool
) -> Encoding | None:
    """An encoding that a field can have, or none."""
    choices: list[Encoding | None] = [None]
    if role == "image" and dtype == "uint8" and shape[-1] in {1, 3}:
        chroma = draw(st.sampled_from(get_args(Chroma))) if shape[-1] == 3 else None
        choices.append(Encoding(codec="jpeg", level=draw(st.integers(1, 100)), chroma=chroma))
    if role in {"image", "pixel_labels"} and not ragged:
        choices.append(Encoding(codec="zstd", level=draw(st.integers(1, 22))))
        choices.append(Encoding(codec="blosc-lz4", level=draw(st.integers(1, 9))))
    return draw(st.sampled_from(choices))


@st.composite
def statistics_of(draw: st.DrawFn, field: FieldSpec, count: int) -> ChannelStatistics:
    """Possible sums of `count` samples of an image field."""
    channels = field.shape[-1]
    levels = int(np.iinfo(field.dtype).max)
    values = draw(
        st.lists(
            st.tuples(*[st.integers(0, levels)] * channels),
            min_size=1 if count else 0,
            max_size=3 if count else 0,
        )
    )
    return ChannelStatistics(
        pixels=len(values),
        sums=tuple(sum(value[c] for value in values) for c in range(channels)),
        squares=tuple(sum(value[c] ** 2 for value in values) for c in range(channels)),
        levels=levels,
    )


@st.composite
def split_specs(draw: st.DrawFn, classes: int) -> SplitSpec:
    """A split, possibly without items, possibly with labels."""
    fields = draw(st.lists(field_specs(), min_size=1, max_size=4, unique_by=lambda f: f.name))
    items = draw(st.integers(0, 12))
    capacity: int | None = draw(st.integers(1, min(5, max(1, items))) | st.none())
    if capacity is None:
        counts = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
    else:
        planned = [min(capacity, items - first) for first in range(0, items, capacity)]
        counts = tuple(draw(st.integers(0, most)) for most in planned)
    size = len(counts)
    nbytes = st.lists(st.integers(0, 1 << 40), min_size=size, max_size=size)
    digits = st.lists(CHECKSUMS, min_size=size, max_size=size)
    labelled = any(field.role == "label" for field in fields)
    if labelled and not classes:
        counts = (0,) * size
    class_counts = [0] * classes
    if labelled and classes:
        for _ in range(sum(counts)):
            class_counts[draw(st.integers(0, classes - 1))] += 1
    return SplitSpec(
        fields=tuple(fields),
        capacity=capacity,
        items=items,
        counts=counts,
        values={
            field.name: tuple(draw(st.integers(0, 50)) if count else 0 for count in counts)
            for field in fields
            if field.has_offsets
        },
        files={
            column.name: ShardFiles(nbytes=tuple(draw(nbytes)), crc32c=tuple(draw(digits)))
            for field in fields
            for column in field.columns()
        },
        tallies=draw(st.dictionaries(NAMES, st.lists(st.integers(0, 99)).map(tuple), max_size=2)),
        statistics={
            field.name: draw(statistics_of(field, sum(counts)))
            for field in fields
            if field.role == "image"
        },
        class_counts=tuple(class_counts) if labelled else None,
    )


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """A whole manifest."""
    classes = draw(st.lists(st.text(min_size=1, max_size=6), max_size=4, unique=True))
    names = draw(st.lists(st.sampled_from(SPLITS), min_size=1, unique=True))
    splits = {name: draw(split_specs(len(classes))) for name in SPLITS if name in names}
    in_chunks = any(field.in_chunks for split in splits.values() for field in split.fields)
    return Manifest(
        container=draw(st.sampled_from(["zarr"] if in_chunks else ["tensor", "zarr"])),
        kind=draw(NAMES),
        recipe=draw(st.dictionaries(st.text(max_size=6), JSON_VALUES, max_size=3)),
        recipe_hash=draw(HASHES),
        source_hash=draw(HASHES),
        classes=tuple(classes),
        skipped=draw(st.integers(0, 1000)),
        splits=splits,
        extras=draw(st.dictionaries(NAMES, st.tuples(st.integers(0, 99), CHECKSUMS), max_size=2)),
    )
