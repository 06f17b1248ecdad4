"""What a dataset is: frozen records and their strict JSON form, `manifest.json`.

The manifest holds only what follows from the input and the options, so the same run gives the same
bytes. A reader takes its own FORMAT_VERSION and older ones, and refuses newer ones, unknown keys,
and values outside their range with the place at which they stand.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

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
from loaders.format.split_spec import CRC, SplitSpec
from loaders.format.strict import Place, parsing

FORMAT_NAME: Final = "prepshards"
_AGAIN: Final = "copy it again, or prepare the dataset again in an empty folder"
"""Remedy for a manifest: without it nothing can be removed or repaired."""

FORMAT_VERSION: Final = 5
"""The newest that this program reads. What it writes has the oldest that can hold it."""

Container = Literal["tensor", "zarr"]
SPLITS: Final = ("train", "validation", "test")

_RAGGED_SINCE: Final = 2
_RECORDS_SINCE: Final = 3
_NEWEST_SINCE: Final = 4
_ENCODED_SINCE: Final = 5

_HASH = re.compile(r"[0-9a-f]{64}")
_EXTRA = re.compile(r"[^\x00-\x1f\x7f]{1,4096}")


def needed_version(fields: Iterable[FieldSpec]) -> int:
    """Return the format version that can hold these fields, the same as before there were newer."""
    return max((_RAGGED_SINCE, *map(_since, fields)))


def _since(spec: FieldSpec) -> int:
    """Return the version since which there are such fields."""
    if spec.encoding is not None:
        return _ENCODED_SINCE
    named = spec.role == "tokens" and spec.name != spec.role
    if spec.role in NEWEST_ROLES or named or (spec.role == "image" and spec.ragged):
        return _NEWEST_SINCE
    return _RECORDS_SINCE if spec.record is not None else _RAGGED_SINCE


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
        place.at("crc32c").text(entry["crc32c"], CRC)
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
        in_chunks = [f.name for split in parsed.values() for f in split.fields if f.in_chunks]
        place.at("container").expect(
            container == "zarr" or not in_chunks, container, f"zarr, for {in_chunks} in chunks"
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
        parsed[name] = (nbytes, place.at(name).text(pair[1], CRC))
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
    with parsing(path, _AGAIN):
        value = read_json(path)
        manifest = Manifest.from_json(value, str(path))
        # Last: what is wrong in itself is said as such.
        expected = value.pop("crc32c")
        found = _checksum(value)
        if found != expected:
            raise FormatError(
                f"{path}: CRC-32C {found}, the file itself says {expected}: it was changed or "
                "damaged"
            )
    return manifest


def _checksum(value: dict[str, Any]) -> str:
    """Return the CRC-32C of the manifest without its own checksum, as 8 hexadecimal digits."""
    return f"{crc32c(to_json(value)):08x}"
