"""What a dataset was made from, item by item and run by run: `items.jsonl`."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from loaders.errors import FormatError
from loaders.format.spec import SPLITS
from loaders.format.strict import Place
from preprocess.contents import parse_contents
from preprocess.items import Item

_BATCH: Final = 4096
"""Lines that are written at a time."""

_MAX: Final = 1 << 63

_HEADER: Final = frozenset({"listed", "splits"})


class RecordedItem(NamedTuple):
    """What tells an item from one that was changed since.

    Attributes:
        key: Path below the source.
        nbytes: Its size.
        times: Times of last change of all that it is made of.
        label: Class index, if it has one.
        start: Where in the file it begins.
        stop: Where it ends; None for the end of the file.
        paired: Digest of what belongs to it beside its file; "" for nothing.
        contents: What was read of each of its files, in the order of the times.
    """

    key: str
    nbytes: int
    times: tuple[int, ...]
    label: int | None
    start: int
    stop: int | None
    paired: str
    contents: tuple[str, ...] = ()


def record_item(item: Item, contents: tuple[str, ...] = ()) -> RecordedItem:
    """Return what is recorded of an item."""
    beside = "".join(part.identity for part in (item.mask, item.boxes, item.values) if part)
    digest = hashlib.blake2b(beside.encode(errors="surrogateescape"), digest_size=8)
    return RecordedItem(
        item.key,
        item.nbytes,
        tuple(item.times()),
        item.label,
        item.start,
        item.stop,
        digest.hexdigest() if beside else "",
        contents,
    )


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The items of the run that began a dataset, or of one that appended to it.

    Attributes:
        listed: Entries that were skipped before they were items, at the time of that run.
        splits: Split name -> its items in the order of their samples.
    """

    listed: int
    splits: Mapping[str, Sequence[RecordedItem]]

    @property
    def counts(self) -> dict[str, int]:
        """Items in each split."""
        return {name: len(items) for name, items in self.splits.items()}


def record_lines(runs: Iterable[RecordedRun]) -> Iterator[bytes]:
    """Yield the bytes of the file, many lines at a time."""
    for run in runs:
        yield _line({"listed": run.listed, "splits": run.counts})
        lines = (_line(item) for items in run.splits.values() for item in items)
        while batch := b"".join(islice(lines, _BATCH)):
            yield batch


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def read_record(path: Path) -> tuple[RecordedRun, ...] | None:
    """Read such a file; None if it is not there.

    Raises:
        FormatError: It is damaged.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error
    remaining = enumerate(lines, 1)
    runs = []
    for number, line in remaining:
        place = Place(f"{path}: line {number}")
        header = place.mapping(_parse(place, line), set(_HEADER))
        counts = place.at("splits").partial_mapping(header["splits"], set(SPLITS))
        splits = {}
        for name, count in counts.items():
            wanted = place.at("splits").integer(count, low=0, high=len(lines))
            found = [_item(Place(f"{path}: line {n}"), x) for n, x in islice(remaining, wanted)]
            place.expect(len(found) == wanted, len(found), f"{wanted} items of {name}")
            splits[name] = found
        runs.append(
            RecordedRun(place.at("listed").integer(header["listed"], low=0, high=_MAX), splits)
        )
    if not runs:
        raise FormatError(f"{path}: empty")
    return tuple(runs)


def _parse(place: Place, line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise place.wrong(line, "a line of JSON") from error


def _item(place: Place, line: bytes) -> RecordedItem:
    value = _parse(place, line)
    names = RecordedItem._fields
    if not isinstance(value, list) or len(value) not in {len(names) - 1, len(names)}:
        raise place.wrong(value, f"a list of {', '.join(names)}")
    key, nbytes, times, label, start, stop, paired, *more = value
    contents = parse_contents(place, more[0]) if more else ()  # none of earlier versions
    whole = [nbytes, start, *(n for n in (label, stop) if n is not None)]
    if not isinstance(times, list) or not all(type(n) is int for n in [*whole, *times]):
        raise place.wrong(value, "numbers")
    if not isinstance(key, str) or not isinstance(paired, str):
        raise place.wrong(value, "names")
    if len(contents) not in {0, len(times)}:
        raise place.wrong(value, "a checksum for each time")
    return RecordedItem(key, nbytes, tuple(times), label, start, stop, paired, contents)
