"""The receipt: a finished shard's facts, in a small file, until the manifest takes them up."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from loaders.errors import FormatError
from loaders.format.files import read_json, to_json
from loaders.format.statistics import ChannelStatistics
from loaders.format.strict import Place
from preprocess.contents import Contents, parse_contents

REMEDY: Final = "remove this receipt, and the shard is made again"

_MAX_COUNT: Final = 1 << 62
"""Bytes, items: anything larger is no count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A finished shard's facts, before the manifest.

    Attributes:
        run_hash: The run that wrote it.
        split: The split's name.
        index: The shard's number.
        items: Items of the shard.
        count: Samples in it; the rest were skipped.
        files: Column name -> (path below the dataset, size in bytes, CRC-32C); empty for a shard
            without samples.
        skipped: (key, reason) of items that could not become samples.
        statistics: Image field name -> exact sums.
        class_counts: (class index, samples) of the classes that occur.
        values: Ragged field name -> its values.
        tallies: What the recipe has counted: name -> a row of sums.
        contents: What was read of each item; empty where its items are no files.
    """

    run_hash: str
    split: str
    index: int
    items: int
    count: int
    files: dict[str, tuple[str, int, str]]
    skipped: tuple[tuple[str, str], ...]
    statistics: dict[str, ChannelStatistics]
    class_counts: tuple[tuple[int, int], ...]
    values: dict[str, int]
    tallies: dict[str, tuple[int, ...]]
    contents: Contents

    @property
    def nbytes(self) -> int:
        """Bytes in the shard's files."""
        return sum(size for _, size, _ in self.files.values())

    def to_bytes(self) -> bytes:
        """Return the file's bytes."""
        return to_json(
            {
                "run_hash": self.run_hash,
                "split": self.split,
                "index": self.index,
                "items": self.items,
                "count": self.count,
                "files": {name: list(facts) for name, facts in self.files.items()},
                "skipped": [list(pair) for pair in self.skipped],
                "statistics": {name: found.to_json() for name, found in self.statistics.items()},
                "class_counts": [list(pair) for pair in self.class_counts],
                "values": self.values,
                "tallies": {name: list(sums) for name, sums in self.tallies.items()},
                "contents": [list(found) for found in self.contents],
            }
        )


def parse_receipt(path: Path) -> Receipt:
    """Read a receipt file.

    Raises:
        MissingShardError: It is not there.
        FormatError: It is damaged.
    """
    place = Place(str(path))
    keys = {"run_hash", "split", "index", "items", "count", "files", "skipped", "statistics"}
    keys |= {"class_counts", "values", "tallies"}
    entry = place.partial_mapping(read_json(path), keys | {"contents"})
    contents = place.at("contents").sequence(entry.pop("contents", []))  # none of earlier versions
    place.mapping(entry, keys)
    values = place.at("values").partial_mapping(entry["values"], None)
    tallies = place.at("tallies").partial_mapping(entry["tallies"], None)
    sums = place.at("statistics").partial_mapping(entry["statistics"], None)
    files = place.at("files").partial_mapping(entry["files"], None)
    try:
        return Receipt(
            run_hash=place.at("run_hash").text(entry["run_hash"]),
            split=place.at("split").text(entry["split"]),
            index=place.at("index").integer(entry["index"], low=0, high=_MAX_COUNT),
            items=place.at("items").integer(entry["items"], low=0, high=_MAX_COUNT),
            count=place.at("count").integer(entry["count"], low=0, high=_MAX_COUNT),
            files={name: _parse_file(place.at(name), facts) for name, facts in files.items()},
            skipped=tuple(
                (place.at("skipped").text(key), place.at("skipped").text(reason))
                for key, reason in place.at("skipped").sequence(entry["skipped"])
            ),
            statistics={
                name: ChannelStatistics.from_json(place.at(name), found)
                for name, found in sums.items()
            },
            class_counts=tuple(
                (label, count)
                for label, count in (
                    place.at("class_counts").integers(pair, low=0, high=_MAX_COUNT)
                    for pair in place.at("class_counts").sequence(entry["class_counts"])
                )
            ),
            values={
                name: place.at(name).integer(count, low=0, high=_MAX_COUNT)
                for name, count in values.items()
            },
            tallies={
                name: place.at(name).integers(found, low=0, high=_MAX_COUNT)
                for name, found in tallies.items()
            },
            contents=[parse_contents(place.at("contents"), found) for found in contents],
        )
    except (TypeError, ValueError) as error:
        raise FormatError(f"{path}: not a receipt ({error}); {REMEDY}") from error


def _parse_file(place: Place, value: Any) -> tuple[str, int, str]:
    name, nbytes, digits = place.sequence(value)
    size = place.integer(nbytes, low=0, high=_MAX_COUNT)
    return place.text(name), size, place.text(digits)
