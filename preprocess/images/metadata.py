"""A table beside the photos: labels, several labels, numbers to be predicted, splits and groups."""

import csv
import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from preprocess.errors import SampleError, SourceError
from preprocess.images.beside import MetadataOptions, SplitOptions
from preprocess.items import Item, Listing
from preprocess.paired import Values, as_key
from preprocess.spelling import there_are

_LARGEST: Final = float(np.finfo(np.float32).max)

_BETWEEN: Final = "|"
"""Stands between several labels in one field of a CSV."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the table.

    Attributes:
        where: Names it in errors.
        columns: Column -> value as read.
    """

    where: str
    columns: Mapping[str, Any]


def read_metadata(options: MetadataOptions, splits: SplitOptions) -> dict[str, Entry]:
    """Read the table: key of a photo -> its row.

    Raises:
        SourceError: It cannot be read, lacks a column, or has a key twice.
    """
    path, key = options.path, options.key
    extra = (splits.column, splits.group_by)
    wanted = [*options.columns(), *(name for name in extra if name is not None)]
    found: dict[str, Entry] = {}
    try:
        for where, columns in _rows(path, frozenset(wanted)):
            missing = next((name for name in wanted if name not in columns), None)
            if missing is not None:
                shown = there_are(missing, list(columns))
                raise SourceError(f"{where}: no column {missing!r}; {shown}")
            name = columns[key]
            if not isinstance(name, str) or not name:
                raise SourceError(f"{where}: {key} is {name!r}, expected the path of a photo")
            name = as_key(name)
            if name in found:
                raise SourceError(f"{where}: {name} again, as in {found[name].where}")
            found[name] = Entry(where, columns)
    except UnicodeDecodeError as error:
        where = f"{path}: line {_line_of_other_bytes(path)}"
        raise SourceError(f"{where}: no UTF-8: {error.reason}") from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error
    return found


def _rows(path: Path, wanted: Collection[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    readers = {".csv": _csv_rows, ".jsonl": _json_rows, ".ndjson": _json_rows}
    ending = path.suffix.lower()
    if ending in readers:
        yield from readers[ending](path)
    elif ending == ".parquet":
        yield from _parquet_rows(path, wanted)
    else:
        raise SourceError(f"{path}: expected a .csv, .jsonl or .parquet")


def _csv_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            _refuse_twice(f"{path}: line 1", reader.fieldnames or ())
            for row in reader:
                where = f"{path}: line {reader.line_num}"
                if None in row or None in row.values():
                    raise SourceError(f"{where}: another number of fields than the header")
                yield where, row
        except csv.Error as error:
            raise SourceError(f"{path}: line {reader.reader.line_num}: {error}") from error


def _json_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}: line {number}"

            def once(pairs: list[tuple[str, Any]], where: str = where) -> dict[str, Any]:
                _refuse_twice(where, [name for name, _ in pairs])
                return dict(pairs)

            try:
                value = json.loads(line.rstrip("\r\n"), object_pairs_hook=once)
            except json.JSONDecodeError as error:
                raise SourceError(f"{where}, column {error.colno}: {error.msg}") from error
            except (ValueError, RecursionError) as error:
                raise SourceError(f"{where}: {error}") from error
            if not isinstance(value, dict):
                raise SourceError(f"{where}: no JSON object")
            if "\\u" in line and not _is_text(value):
                raise SourceError(f"{where}: half of a surrogate pair, which is no text")
            yield where, value


def _is_text(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _parquet_rows(path: Path, wanted: Collection[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield rows of the wanted columns alone; all names where one of these is not there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            _refuse_twice(str(path), names)
            if not set(wanted) <= set(names):
                yield str(path), dict.fromkeys(names)
            for batch in file.iter_batches(columns=sorted(wanted)):
                for row in batch.to_pylist():
                    yield f"{path}: row {number}", row
                    number += 1
    except pa.ArrowException as error:
        raise SourceError(f"{path}: cannot be read: {error}") from error


def _refuse_twice(where: str, names: Sequence[str]) -> None:
    again = [name for name, count in Counter(names).items() if count > 1]
    if again:
        raise SourceError(f"{where}: {again[0]!r} names two columns")


def _line_of_other_bytes(path: Path) -> int:
    """Return the number of the first line that is no UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


def pair_metadata(
    listing: Listing, options: MetadataOptions, table: Mapping[str, Entry]
) -> tuple[Listing, tuple[str, ...]]:
    """Give every photo what the table says of it.

    A photo that the table does not list, or whose label is empty, is skipped by name.

    Returns:
        The listing, with classes of its own where a column of labels is named; and the names of
        classes of which a photo may have several.

    Raises:
        SourceError: A value cannot be what it is taken for.
    """
    kept, skipped = _listed(listing, options, table)
    entries = [entry for pairs in kept.values() for _, entry in pairs]
    if not entries:
        raise SourceError(f"{options.path}: lists none of the photos in {listing.root}")
    classes = listing.classes
    if options.label is not None:
        classes = _sorted({_text(entry, options.label) for entry in entries})
    several: tuple[str, ...] = ()
    if options.labels is not None:
        several = _sorted({name for e in entries for name in _texts(e, options.labels)})
    number = {name: label for label, name in enumerate(classes)}
    place = {name: label for label, name in enumerate(several)}

    def paired(item: Item, entry: Entry) -> Item:
        label = item.label if options.label is None else number[_text(entry, options.label)]
        labels: tuple[int, ...] = ()
        if options.labels is not None:
            labels = tuple(sorted({place[name] for name in _texts(entry, options.labels)}))
        targets = tuple(_number(entry, name) for name in options.targets)
        return replace(item, label=label, values=Values(labels, targets))

    splits = {split: tuple(paired(*pair) for pair in pairs) for split, pairs in kept.items()}
    unused = len(table) - len(entries)
    note = (f"{unused:,} rows of {options.path} are of no photo that is taken",) if unused else ()
    whole = replace(
        listing,
        splits={split: items for split, items in splits.items() if items},
        classes=classes,
        skipped=tuple(skipped),
        notes=(*listing.notes, *note),
    )
    return whole, several


def _listed(
    listing: Listing, options: MetadataOptions, table: Mapping[str, Entry]
) -> tuple[dict[str, list[tuple[Item, Entry]]], list[SampleError]]:
    """Return the photos that the table lists, and why others are skipped."""
    kept: dict[str, list[tuple[Item, Entry]]] = {}
    skipped = list(listing.skipped)
    for split, items in listing.splits.items():
        kept[split] = []
        for item in items:
            entry = table.get(item.key)
            if entry is None:
                skipped.append(SampleError(item.key, f"{options.path.name} does not list it"))
            elif options.label is not None and _text(entry, options.label) == "":
                # The file's name alone: what is listed may not depend on where things lie.
                where = entry.where.replace(str(options.path), options.path.name, 1)
                skipped.append(SampleError(item.key, f"{where}: {options.label} is empty"))
            else:
                kept[split].append((item, entry))
    return kept, skipped


def _sorted(names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=lambda name: name.encode(errors="surrogatepass")))


def _text(entry: Entry, column: str) -> str:
    value = entry.columns[column]
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise SourceError(f"{entry.where}: {column} is {value!r}, expected a text or an integer")
    return str(value)


def _texts(entry: Entry, column: str) -> list[str]:
    value = entry.columns[column]
    if isinstance(value, str):
        return [name for name in value.split(_BETWEEN) if name]
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise SourceError(f"{entry.where}: {column} is {value!r}, expected a list of texts")
    return value


def _number(entry: Entry, column: str) -> float:
    value = entry.columns[column]
    found = math.nan
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            found = math.nan if "_" in str(value) else float(value)
    if not abs(found) <= _LARGEST:
        raise SourceError(f"{entry.where}: {column} is {value!r}, expected a number in float32")
    return found
