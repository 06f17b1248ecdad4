"""What a dataset says that its items held, beside what is in their files."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from google_crc32c import value

from preprocess.item_record import RecordedItem, read_record


def crc32c(data: bytes) -> str:
    """Return the CRC-32C of some bytes."""
    return f"{value(data):08x}"


def recorded_items(out: Path) -> list[RecordedItem]:
    """Return all items that a dataset was made from."""
    runs = read_record(out / "items.jsonl")
    assert runs is not None
    return [item for run in runs for items in run.splits.values() for item in items]


def assert_contents(out: Path, source: Path, masks: Path | None = None) -> list[RecordedItem]:
    """Check that a dataset says of whole files, and of their masks, what is in them."""
    items = recorded_items(out)
    for item in items:
        paths = [source / item.key]
        if len(item.times) > 1 and masks is not None:
            paths.append((masks / item.key).with_suffix(".png"))
        assert item.contents == tuple(crc32c(path.read_bytes()) for path in paths), item.key
    return items


def rewritten(out: Path, change: Callable[[list[Any]], list[Any]]) -> None:
    """Write what a dataset says of its items otherwise, as another version has perhaps."""
    path = out / "items.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    changed = [change(line) if isinstance(line, list) else line for line in lines]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in changed))


def write_as_it_was(path: Path, data: bytes, mtime_ns: int) -> None:
    """Write a file as at another time."""
    path.write_bytes(data)
    os.utime(path, ns=(mtime_ns, mtime_ns))
