"""What a dataset is: frozen records and their strict JSON form, `manifest.json`.

The manifest holds only what follows from the input and the options, so the same run gives the same
bytes. A reader takes its own FORMAT_VERSION and older ones, and refuses newer ones, unknown keys,
and values outside their range with the place at which they stand.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
from google_crc32c import value as crc32c

from loaders.errors import FormatError, IncompleteError, VersionError
from loaders.format.files import MANIFEST, WORK, read_json, to_json
from loaders.format.strict import Place

FORMAT_NAME: Final = "prepshards"
FORMAT_VERSION: Final = 1

Container = Literal["tensor", "zarr"]
Role = Literal["image", "label", "key"]
SPLITS: Final = ("train", "validation", "test")
DTYPES: Final = ("uint8", "uint16")

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_CRC = re.compile(r"[0-9a-f]{8}")
_HASH = re.compile(r"[0-9a-f]{64}")
_MAX_COUNT: Final = 1 << 40
"""Samples in a split, bytes in a sample: far above any dataset, far below any overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSpec:
    """One named array of every sample.

    Attributes:
        name: Lower-case identifier; part of file names.
        dtype: Stored type; little-endian where it has an order.
        shape: Of one sample; () for a scalar, (H, W, C) for an image, (L,) for a key.
        role: What the values mean: an image, a class index, or UTF-8 bytes padded with zeros.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Role

    def __post_init__(self) -> None:
        """Refuse names, types and shapes outside the format."""
        place = Place(f"field {self.name!r}")
        place.expect(bool(_NAME.fullmatch(self.name)), self.name, f"a name like {_NAME.pattern}")
        place.expect(self.dtype in DTYPES, self.dtype, f"a dtype of {DTYPES}")
        place.expect(self.role in get_args(Role), self.role, f"a role of {get_args(Role)}")
        place.expect(
            len(self.shape) <= 8
            and all(type(side) is int and side >= 1 for side in self.shape)
            and math.prod(self.shape) <= _MAX_COUNT,
            self.shape,
            "up to 8 sides of at least 1",
        )
        suits = {
            "image": len(self.shape) >= 3,
            "label": self.shape == (),
            "key": len(self.shape) == 1 and self.dtype == "uint8",
        }
        place.expect(suits[self.role], self.shape, f"a shape for the role {self.role!r}")

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The stored dtype, with its byte order."""
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def nbytes(self) -> int:
        """Bytes of one sample."""
        return math.prod(self.shape) * self.numpy_dtype.itemsize

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "role": self.role,
        }

    @classmethod
    def from_json(cls, place: Place, value: Any) -> "FieldSpec":
        """Parse the JSON form; `place` names it in errors."""
        entry = place.mapping(value, {"name", "dtype", "shape", "role"})
        shape = place.at("shape").integers(entry["shape"], low=1, high=_MAX_COUNT)
        role = place.at("role").text(entry["role"])
        for known in get_args(Role):
            if role == known:
                name = place.at("name").text(entry["name"])
                dtype = place.at("dtype").text(entry["dtype"])
                return cls(name=name, dtype=dtype, shape=shape, role=known)
        raise place.at("role").wrong(role, f"one of {get_args(Role)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatistics:
    """Exact sums over all values of an image field, channel by channel.

    Attributes:
        pixels: Values summed per channel.
        sums: Sum of the stored integers, per channel.
        squares: Sum of their squares, per channel.
        levels: The value that stands for 1.0: 255 for uint8, 65535 for uint16.
    """

    pixels: int
    sums: tuple[int, ...]
    squares: tuple[int, ...]
    levels: int

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean per channel, in 0..1."""
        return tuple(total / (self.pixels * self.levels) for total in self.sums)

    @property
    def std(self) -> tuple[float, ...]:
        """Population standard deviation per channel, in 0..1."""
        # Integers until the last step: no cancellation.
        return tuple(
            math.sqrt(self.pixels * square - total * total) / (self.pixels * self.levels)
            for total, square in zip(self.sums, self.squares, strict=True)
        )

    def __add__(self, other: "ChannelStatistics") -> "ChannelStatistics":
        """Merge with the statistics of other samples of the same field."""
        if self.levels != other.levels or len(self.sums) != len(other.sums):
            raise ValueError(f"statistics of different fields: {self} and {other}")
        return ChannelStatistics(
            pixels=self.pixels + other.pixels,
            sums=tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)),
            squares=tuple(a + b for a, b in zip(self.squares, other.squares, strict=True)),
            levels=self.levels,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; mean and std stand there for human readers."""
        empty = self.pixels == 0
        return {
            "pixels": self.pixels,
            "sums": list(self.sums),
            "squares": list(self.squares),
            "levels": self.levels,
            "mean": None if empty else list(self.mean),
            "std": None if empty else list(self.std),
        }

    @classmethod
    def from_json(cls, place: Place, value: Any) -> "ChannelStatistics":
        """Parse the JSON form and check it against itself."""
        entry = place.mapping(value, {"pixels", "sums", "squares", "levels", "mean", "std"})
        found = cls(
            pixels=place.at("pixels").integer(entry["pixels"], low=0, high=1 << 62),
            sums=place.at("sums").integers(entry["sums"], low=0, high=1 << 80),
            squares=place.at("squares").integers(entry["squares"], low=0, high=1 << 96),
            levels=place.at("levels").integer(entry["levels"], low=1, high=65535),
        )
        place.expect(len(found.sums) == len(found.squares), entry, "one sum and square a channel")
        possible = all(
            # v <= v * v <= v * levels for every stored value v.
            total <= square <= total * found.levels <= found.pixels * found.levels**2
            and total * total <= found.pixels * square
            for total, square in zip(found.sums, found.squares, strict=True)
        )
        place.expect(possible and found.to_json() == entry, entry, "sums, mean and std that agree")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFiles:
    """The files of one field, one a shard, in order.

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
        nbytes = place.at("nbytes").integers(entry["nbytes"], low=0, high=_MAX_COUNT)
        digits = place.at("crc32c").texts(entry["crc32c"], _CRC)
        place.expect(len(nbytes) == len(digits) == shards, value, f"{shards} files")
        return cls(nbytes=nbytes, crc32c=digits)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSpec:
    """One split: its fields, shards and statistics.

    Attributes:
        fields: What every sample holds.
        capacity: Items planned for each shard (the last may have fewer).
        items: Items planned in all; the samples are those that could be read.
        counts: Samples in each shard: its first rows.
        files: Field name -> its files, one a shard.
        statistics: Image field name -> its exact statistics.
        class_counts: Samples of each class; None without labels.
    """

    fields: tuple[FieldSpec, ...]
    capacity: int
    items: int
    counts: tuple[int, ...]
    files: Mapping[str, ShardFiles]
    statistics: Mapping[str, ChannelStatistics]
    class_counts: tuple[int, ...] | None

    @property
    def count(self) -> int:
        """Samples in the split."""
        return sum(self.counts)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "fields": [field.to_json() for field in self.fields],
            "capacity": self.capacity,
            "items": self.items,
            "counts": list(self.counts),
            "files": {name: files.to_json() for name, files in self.files.items()},
            "statistics": {name: found.to_json() for name, found in self.statistics.items()},
            "class_counts": None if self.class_counts is None else list(self.class_counts),
        }

    @classmethod
    def from_json(cls, place: Place, value: Any) -> "SplitSpec":
        """Parse the JSON form and check that its parts agree."""
        keys = {"fields", "capacity", "items", "counts", "files", "statistics", "class_counts"}
        entry = place.mapping(value, keys)
        at = place.at("fields")
        fields = tuple(
            FieldSpec.from_json(at.at(str(index)), field)
            for index, field in enumerate(at.sequence(entry["fields"]))
        )
        names = [field.name for field in fields]
        at.expect(len(set(names)) == len(names) > 0, names, "different names, at least one")
        capacity = place.at("capacity").integer(entry["capacity"], low=1, high=_MAX_COUNT)
        items = place.at("items").integer(entry["items"], low=0, high=_MAX_COUNT)
        counts = place.at("counts").integers(entry["counts"], low=0, high=capacity)
        labelled = any(field.role == "label" for field in fields)
        place.at("class_counts").expect(
            labelled == (entry["class_counts"] is not None),
            entry["class_counts"],
            "counts exactly where there is a label field",
        )
        place.at("counts").expect(
            len(counts) == -(-items // capacity)
            and (not counts or counts[-1] <= items - capacity * (len(counts) - 1)),
            f"{len(counts)} shards",
            f"shards of {capacity} for {items} items",
        )
        at = place.at("files")
        found = at.mapping(entry["files"], set(names))
        files = {
            name: ShardFiles.from_json(at.at(name), found[name], len(counts)) for name in names
        }
        return cls(
            fields=fields,
            capacity=capacity,
            items=items,
            counts=counts,
            files=files,
            statistics=_parse_statistics(place.at("statistics"), entry["statistics"], fields),
            class_counts=_parse_class_counts(
                place.at("class_counts"), entry["class_counts"], sum(counts)
            ),
        )


def _parse_statistics(
    place: Place, value: Any, fields: tuple[FieldSpec, ...]
) -> dict[str, ChannelStatistics]:
    images = [field for field in fields if field.role == "image"]
    entry = place.mapping(value, {field.name for field in images})
    parsed = {}
    for field in images:
        found = ChannelStatistics.from_json(place.at(field.name), entry[field.name])
        place.at(field.name).expect(
            len(found.sums) == field.shape[-1] and found.levels == np.iinfo(field.dtype).max,
            entry[field.name],
            f"{field.shape[-1]} channels of {field.dtype}",
        )
        parsed[field.name] = found
    return parsed


def _parse_class_counts(place: Place, value: Any, samples: int) -> tuple[int, ...] | None:
    if value is None:
        return None
    counts = place.integers(value, low=0, high=_MAX_COUNT)
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
    """

    container: Container
    kind: str
    recipe: Mapping[str, Any]
    recipe_hash: str
    source_hash: str
    classes: tuple[str, ...]
    skipped: int
    splits: Mapping[str, SplitSpec]

    def to_bytes(self) -> bytes:
        """Return the file's bytes: the same for the same dataset."""
        value = {
            "format": FORMAT_NAME,
            "format_version": FORMAT_VERSION,
            "container": self.container,
            "kind": self.kind,
            "recipe": dict(self.recipe),
            "recipe_hash": self.recipe_hash,
            "source_hash": self.source_hash,
            "classes": list(self.classes),
            "skipped": self.skipped,
            "splits": {name: split.to_json() for name, split in self.splits.items()},
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
        keys = {"container", "kind", "recipe", "recipe_hash", "source_hash", "classes", "skipped"}
        entry = place.mapping(value, keys | {"format", "format_version", "splits", "crc32c"})
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
        for known in get_args(Container):
            if container == known:
                return cls(
                    container=known,
                    kind=place.at("kind").text(entry["kind"]),
                    recipe=place.at("recipe").partial_mapping(entry["recipe"], None),
                    recipe_hash=place.at("recipe_hash").text(entry["recipe_hash"], _HASH),
                    source_hash=place.at("source_hash").text(entry["source_hash"], _HASH),
                    classes=classes,
                    skipped=place.at("skipped").integer(entry["skipped"], low=0, high=_MAX_COUNT),
                    splits=parsed,
                )
        raise place.at("container").wrong(container, f"one of {get_args(Container)}")


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
