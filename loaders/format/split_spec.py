"""What a split is: its fields, its shards and their files, its statistics; and its JSON form."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from loaders.format.fields import MAX_COUNT, FieldSpec
from loaders.format.statistics import ChannelStatistics
from loaders.format.strict import Place

CRC: Final = re.compile(r"[0-9a-f]{8}")
"""A checksum, as the manifest has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFiles:
    """The files of one column, one a shard, in order.

    Attributes:
        nbytes: Size of each file.
        crc32c: Checksum of each file, 8 hexadecimal digits.
    """

    nbytes: tuple[int, ...]
    crc32c: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: two columns."""
        return {"nbytes": list(self.nbytes), "crc32c": list(self.crc32c)}

    @classmethod
    def from_json(cls, place: Place, value: Any, shards: int) -> "ShardFiles":
        """Parse the JSON form of `shards` files."""
        entry = place.mapping(value, {"nbytes", "crc32c"})
        nbytes = place.at("nbytes").integers(entry["nbytes"], low=0, high=MAX_COUNT)
        digits = place.at("crc32c").texts(entry["crc32c"], CRC)
        place.expect(len(nbytes) == len(digits) == shards, value, f"{shards} files")
        return cls(nbytes=nbytes, crc32c=digits)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSpec:
    """One split: its fields, shards and statistics.

    Attributes:
        fields: What every sample holds.
        capacity: Items planned for each shard (the last may have fewer), each one sample or none;
            None where an item becomes any number of samples.
        items: Places planned for items in all, `capacity` in every shard but the last; those that
            nothing took hold no sample.
        counts: Samples in each shard.
        values: Field with a column of offsets -> its values, or encoded bytes, in each shard.
        files: Column name -> its files, one a shard.
        statistics: Image field name -> its exact statistics.
        class_counts: Samples of each class; None without labels.
        tallies: What the recipe has counted, each a row of sums over all samples.
    """

    fields: tuple[FieldSpec, ...]
    capacity: int | None
    items: int
    counts: tuple[int, ...]
    files: Mapping[str, ShardFiles]
    statistics: Mapping[str, ChannelStatistics]
    class_counts: tuple[int, ...] | None
    values: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tallies: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Samples in the split."""
        return sum(self.counts)

    def columns(self) -> Iterator[tuple[FieldSpec, tuple[int, ...]]]:
        """Yield every stored column, and its rows in each shard; 0 where there is no file."""
        for spec in self.fields:
            for column in spec.columns():
                if column.role == "offsets":
                    yield column, tuple(count + 1 if count else 0 for count in self.counts)
                elif column.role == "values":
                    yield column, self.values[spec.name]
                else:
                    yield column, self.counts

    def column(self, name: str) -> tuple[FieldSpec, tuple[int, ...]]:
        """Return a stored column and its rows in each shard.

        The offsets of a field in chunks have no column of their own: it is that of the field.
        """
        found = {column.name: (column, rows) for column, rows in self.columns()}
        return found.get(name) or found[name.removesuffix("_offsets")]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "fields": [spec.to_json() for spec in self.fields],
            "capacity": self.capacity,
            "items": self.items,
            "counts": list(self.counts),
            "values": {name: list(counts) for name, counts in self.values.items()},
            "files": {name: files.to_json() for name, files in self.files.items()},
            "statistics": {name: found.to_json() for name, found in self.statistics.items()},
            "class_counts": None if self.class_counts is None else list(self.class_counts),
            "tallies": {name: list(sums) for name, sums in self.tallies.items()},
        }

    @classmethod
    def from_json(cls, place: Place, value: Any) -> "SplitSpec":
        """Parse the JSON form and check that its parts agree."""
        keys = {"fields", "capacity", "items", "counts", "files", "statistics", "class_counts"}
        entry = place.mapping(value, keys | {"values", "tallies"})
        fields = _parse_fields(place.at("fields"), entry["fields"])
        capacity = entry["capacity"]
        if capacity is not None:
            capacity = place.at("capacity").integer(capacity, low=1, high=MAX_COUNT)
        items = place.at("items").integer(entry["items"], low=0, high=MAX_COUNT)
        if capacity is not None:
            place.at("capacity").expect(
                capacity <= max(1, items), capacity, f"at most the {items} items"
            )
        most = MAX_COUNT if capacity is None else capacity
        counts = place.at("counts").integers(entry["counts"], low=0, high=most)
        labelled = any(spec.role == "label" for spec in fields)
        place.at("class_counts").expect(
            labelled == (entry["class_counts"] is not None),
            entry["class_counts"],
            "counts exactly where there is a label field",
        )
        if capacity is not None:
            place.at("counts").expect(
                len(counts) == -(-items // capacity)
                and (not counts or counts[-1] <= items - capacity * (len(counts) - 1)),
                f"{len(counts)} shards",
                f"shards of {capacity} for {items} items",
            )
        at = place.at("files")
        names = [column.name for spec in fields for column in spec.columns()]
        found = at.mapping(entry["files"], set(names))
        files = {
            name: ShardFiles.from_json(at.at(name), found[name], len(counts)) for name in names
        }
        sums = place.at("tallies").partial_mapping(entry["tallies"], None)
        return cls(
            fields=fields,
            capacity=capacity,
            items=items,
            counts=counts,
            values=_parse_values(place.at("values"), entry["values"], fields, counts),
            files=files,
            statistics=_parse_statistics(place.at("statistics"), entry["statistics"], fields),
            class_counts=_parse_class_counts(
                place.at("class_counts"), entry["class_counts"], sum(counts)
            ),
            tallies={
                name: place.at("tallies").at(name).integers(sums[name], low=0, high=1 << 62)
                for name in sums
            },
        )


def _parse_fields(place: Place, value: Any) -> tuple[FieldSpec, ...]:
    fields = tuple(
        FieldSpec.from_json(place.at(str(index)), entry)
        for index, entry in enumerate(place.sequence(value))
    )
    names = [column.name for spec in fields for column in spec.columns()]
    names += [f"{spec.name}_offsets" for spec in fields if spec.in_chunks]  # of its index
    place.expect(len(set(names)) == len(names) > 0, names, "different names, at least one")
    return fields


def _parse_values(
    place: Place, value: Any, fields: tuple[FieldSpec, ...], counts: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    names = {spec.name for spec in fields if spec.has_offsets}
    entry = place.mapping(value, names)
    parsed = {}
    for name in names:
        parsed[name] = place.at(name).integers(entry[name], low=0, high=MAX_COUNT)
        place.at(name).expect(
            len(parsed[name]) == len(counts)
            and not any(n for n, count in zip(parsed[name], counts, strict=True) if not count),
            entry[name],
            f"values of {len(counts)} shards, none where there is no sample",
        )
    return parsed


def _parse_statistics(
    place: Place, value: Any, fields: tuple[FieldSpec, ...]
) -> dict[str, ChannelStatistics]:
    images = [spec for spec in fields if spec.role == "image"]
    entry = place.mapping(value, {spec.name for spec in images})
    parsed = {}
    for spec in images:
        found = ChannelStatistics.from_json(place.at(spec.name), entry[spec.name])
        place.at(spec.name).expect(
            len(found.sums) == spec.shape[-1] and found.levels == np.iinfo(spec.dtype).max,
            entry[spec.name],
            f"{spec.shape[-1]} channels of {spec.dtype}",
        )
        parsed[spec.name] = found
    return parsed


def _parse_class_counts(place: Place, value: Any, samples: int) -> tuple[int, ...] | None:
    if value is None:
        return None
    counts = place.integers(value, low=0, high=MAX_COUNT)
    place.expect(sum(counts) == samples, value, f"counts that add up to {samples}")
    return counts
