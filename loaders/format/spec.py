"""What a dataset is: frozen records and their strict JSON form, `manifest.json`.

The manifest holds only what follows from the input and the options, so the same run gives the same
bytes. A reader takes its own FORMAT_VERSION and older ones, and refuses newer ones, unknown keys,
and values outside their range with the place at which they stand.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
from google_crc32c import value as crc32c

from loaders.errors import FormatError, IncompleteError, VersionError
from loaders.format.fields import MAX_COUNT, NEWEST_ROLES, FieldSpec
from loaders.format.files import (
    ITEMS,
    MANIFEST,
    REPORT,
    SKIPPED,
    WORK,
    expect_inside,
    read_json,
    to_json,
)
from loaders.format.statistics import ChannelStatistics
from loaders.format.strict import Place

FORMAT_NAME: Final = "prepshards"
FORMAT_VERSION: Final = 4
"""The newest that this program reads. What it writes has the oldest that can hold it."""

Container = Literal["tensor", "zarr"]
SPLITS: Final = ("train", "validation", "test")

_RAGGED_SINCE: Final = 2
_RECORDS_SINCE: Final = 3
_NEWEST_SINCE: Final = 4

_CRC = re.compile(r"[0-9a-f]{8}")
_HASH = re.compile(r"[0-9a-f]{64}")
_EXTRA = re.compile(r"[^\x00-\x1f\x7f]{1,4096}")


def needed_version(fields: Iterable[FieldSpec]) -> int:
    """Return the format version that can hold these fields, the same as before there were newer."""
    needed = _RAGGED_SINCE
    for spec in fields:
        named = spec.role == "tokens" and spec.name != spec.role
        if spec.role in NEWEST_ROLES or named or (spec.role == "image" and spec.ragged):
            return _NEWEST_SINCE
        if spec.record is not None:
            needed = _RECORDS_SINCE
    return needed


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
        digits = place.at("crc32c").texts(entry["crc32c"], _CRC)
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
        values: Ragged field name -> its values in each shard.
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
    place.expect(len(set(names)) == len(names) > 0, names, "different names, at least one")
    return fields


def _parse_values(
    place: Place, value: Any, fields: tuple[FieldSpec, ...], counts: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    names = {spec.name for spec in fields if spec.ragged}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The committed description of a dataset.

    Attributes:
        container: How a shard's bytes are laid out.
        kind: Which recipe made it; the loader picks the reading side by it.
        recipe: The recipe's options, as they were used.
        recipe_hash: SHA-256 over all that changes bytes, apart from the input.
        source_hash: SHA-256 over the keys and sizes of the input.
        classes: Class names in label order; empty without labels.
        skipped: Items that could not become samples (listed in `skipped.jsonl`).
        splits: Split name -> its shards, in the order train, validation, test.
        extras: Files that belong to the dataset beside its shards: path -> (bytes, CRC-32C).
    """

    container: Container
    kind: str
    recipe: Mapping[str, Any]
    recipe_hash: str
    source_hash: str
    classes: tuple[str, ...]
    skipped: int
    splits: Mapping[str, SplitSpec]
    extras: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The format version that its fields need."""
        return needed_version(spec for split in self.splits.values() for spec in split.fields)

    def to_bytes(self) -> bytes:
        """Return the file's bytes: the same for the same dataset."""
        value = {
            "format": FORMAT_NAME,
            "format_version": self.version,
            "container": self.container,
            "kind": self.kind,
            "recipe": dict(self.recipe),
            "recipe_hash": self.recipe_hash,
            "source_hash": self.source_hash,
            "classes": list(self.classes),
            "skipped": self.skipped,
            "splits": {name: split.to_json() for name, split in self.splits.items()},
            "extras": {name: list(facts) for name, facts in self.extras.items()},
        }
        return to_json({**value, "crc32c": _checksum(value)})

    @classmethod
    def from_json(cls, value: Any, where: str) -> "Manifest":
        """Parse the JSON form; whether its checksum holds is left to `read_manifest`.

        Args:
            value: What `json.loads` returned.
            where: Names the file in errors.

        Raises:
            VersionError: A newer format wrote it.
            FormatError: It is not a manifest.
        """
        place = Place(where)
        if not isinstance(value, dict) or value.get("format") != FORMAT_NAME:
            raise FormatError(f"{where}: not a {FORMAT_NAME} manifest")
        version = place.at("format_version").integer(value.get("format_version"), low=1, high=9999)
        if version > FORMAT_VERSION:
            raise VersionError(
                f"{where}: format version {version}, this program reads up to {FORMAT_VERSION}; "
                "upgrade prepshards"
            )
        if version == 1:
            value = _upgrade(value)
        keys = {"container", "kind", "recipe", "recipe_hash", "source_hash", "classes", "skipped"}
        own = {"format", "format_version", "splits", "extras", "crc32c"}
        entry = place.mapping(value, keys | own)
        place.at("crc32c").text(entry["crc32c"], _CRC)
        container = place.at("container").text(entry["container"])
        splits = place.at("splits").partial_mapping(entry["splits"], set(SPLITS))
        place.at("splits").expect(bool(splits), splits, "at least one split")
        classes = place.at("classes").texts(entry["classes"], re.compile(r".+", re.DOTALL))
        parsed: dict[str, SplitSpec] = {
            name: SplitSpec.from_json(place.at(f"splits.{name}"), splits[name])
            for name in SPLITS
            if name in splits
        }
        for name, split in parsed.items():
            place.at(f"splits.{name}.class_counts").expect(
                split.class_counts is None or len(split.class_counts) == len(classes),
                split.class_counts,
                f"one count for each of {len(classes)} classes",
            )
        needed = needed_version(spec for split in parsed.values() for spec in split.fields)
        place.at("format_version").expect(
            max(version, _RAGGED_SINCE) == needed,
            version,
            f"{needed}, for the fields that there are",
        )
        for known in get_args(Container):
            if container == known:
                return cls(
                    container=known,
                    kind=place.at("kind").text(entry["kind"]),
                    recipe=place.at("recipe").partial_mapping(entry["recipe"], None),
                    recipe_hash=place.at("recipe_hash").text(entry["recipe_hash"], _HASH),
                    source_hash=place.at("source_hash").text(entry["source_hash"], _HASH),
                    classes=classes,
                    skipped=place.at("skipped").integer(entry["skipped"], low=0, high=MAX_COUNT),
                    splits=parsed,
                    extras=_parse_extras(place.at("extras"), entry["extras"]),
                )
        raise place.at("container").wrong(container, f"one of {get_args(Container)}")


def _parse_extras(place: Place, value: Any) -> dict[str, tuple[int, str]]:
    parsed = {}
    for name, facts in place.partial_mapping(value, None).items():
        parts = name.split("/")
        inside = bool(_EXTRA.fullmatch(name)) and not {"", ".", ".."} & set(parts)
        inside = inside and parts[0] not in {MANIFEST, REPORT, SKIPPED, ITEMS, WORK, *SPLITS}
        place.expect(inside, name, "a path inside the dataset")
        pair = place.at(name).sequence(facts)
        place.at(name).expect(len(pair) == 2, facts, "bytes and CRC-32C")
        nbytes = place.at(name).integer(pair[0], low=0, high=MAX_COUNT)
        parsed[name] = (nbytes, place.at(name).text(pair[1], _CRC))
    return parsed


def _upgrade(value: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest of version 1, which knew no ragged fields, in the form of version 2.

    Anything that is not as expected stays as it is: the parser names it.
    """
    splits = value.get("splits")
    if not isinstance(splits, dict):
        return value
    upgraded = {}
    for name, split in splits.items():
        if isinstance(split, dict):
            fields = split.get("fields")
            if isinstance(fields, list):
                fields = [{**f, "ragged": False} if isinstance(f, dict) else f for f in fields]
            split = {**split, "fields": fields, "values": {}, "tallies": {}}  # noqa: PLW2901
        upgraded[name] = split
    return {**value, "splits": upgraded, "extras": {}}


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of the dataset in `root`.

    Raises:
        IncompleteError: There is none: not a dataset, or a run that did not finish.
        FormatError: It is damaged.
        VersionError: A newer format wrote it.
    """
    path = root / MANIFEST
    if not path.exists():
        if not root.exists():
            raise IncompleteError(f"{root}: no such folder")
        if (root / WORK).exists():
            raise IncompleteError(
                f"{root}: shards and no {MANIFEST}: the run that writes here has not finished; "
                "give the same prep command again to finish it"
            )
        raise IncompleteError(f"{root}: no {MANIFEST}: not a dataset that prep wrote")
    expect_inside(root, path)
    value = read_json(path)
    manifest = Manifest.from_json(value, str(path))
    # Last: what is wrong in itself is said as such.
    expected = value.pop("crc32c")
    found = _checksum(value)
    if found != expected:
        raise FormatError(
            f"{path}: CRC-32C {found}, the file itself says {expected}: it was changed or damaged; "
            "copy it again or prepare the dataset again"
        )
    return manifest


def _checksum(value: dict[str, Any]) -> str:
    """Return the CRC-32C of the manifest without its own checksum, as 8 hexadecimal digits."""
    return f"{crc32c(to_json(value)):08x}"
