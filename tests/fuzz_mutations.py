"""Changes to the files of a dataset, as a stranger would make them who knows the format."""

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaders.format.files import crc32c_digits, to_json

_NUMBERS = [
    0,
    -1,
    1,
    2,
    7,
    255,
    1 << 16,
    1 << 31,
    1 << 32,
    (1 << 40) - 1,
    1 << 40,
    1 << 62,
    1 << 63,
]
_NUMBERS += [(1 << 64) - 1, 1 << 64, 10**30, -(1 << 63)]
_OTHERS: list[Any] = [None, True, False, 0.5, 1e308, "", "x", "../../x", "/etc/passwd", "a\0b", []]
_OTHERS += [{}, [[]], "\ud800", "é" * 300, "tensor", "zarr", "uint16", "record", "key", "train"]


def mutated_json(value: Any, rng: random.Random) -> Any:
    """Return a JSON value with a few of its parts changed, doubled, moved or left out."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = list(_places(value))
        if not places:
            return value
        parent, key = rng.choice(places)
        how = rng.randrange(6)
        if how == 0 and isinstance(parent[key], int):
            parent[key] = rng.choice([*_NUMBERS, parent[key] + rng.choice([-1, 1])])
        elif how == 1:
            parent[key] = json.loads(json.dumps(rng.choice(_OTHERS)))  # lists may be changed too
        elif how == 2:
            del parent[key]
        elif how == 3:
            other, there = rng.choice(places)
            with contextlib.suppress(KeyError, IndexError):
                parent[key] = json.loads(json.dumps(other[there]))
        elif how == 4 and isinstance(parent, dict):
            parent[rng.choice(["x", "", "../x", "recipe", "nbytes", "é"])] = parent.pop(key)
        elif isinstance(parent, list):
            parent.insert(key, json.loads(json.dumps(parent[key])))
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield value, key
        yield from _places(value[key])


def mutated_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with some flipped, cut out, doubled, or a number put in."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(changed) + 1)
        how = rng.randrange(5)
        if how == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            del changed[at : at + rng.randrange(1, 9)]
        elif how == 2:
            changed[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif how == 3:
            number = rng.choice(_NUMBERS) % (1 << 64)
            changed[at : at + 8] = number.to_bytes(8, rng.choice(["little", "big"]))
        else:
            changed[at : at + 4] = rng.choice(
                [b"[[[[", b"[" * 100_000, b"9999", b"null", b"1e99", b'"":{', b"-0.0"]
            )
    return bytes(changed)


def mutated(path: Path, data: bytes, rng: random.Random) -> bytes:
    """Return other bytes for a file of JSON, of lines of it, or of anything else."""
    if path.suffix not in {".json", ".jsonl"} or rng.randrange(8) == 0:
        return mutated_bytes(data, rng)
    lines = data.splitlines() if path.suffix == ".jsonl" else [data]
    place = rng.randrange(len(lines) or 1)
    try:
        value = json.loads(lines[place])
    except (ValueError, RecursionError, IndexError):
        return mutated_bytes(data, rng)
    lines[place] = json.dumps(mutated_json(value, rng)).encode("utf-8", "surrogatepass")
    return fitted(path, b"\n".join(lines))


def fitted(path: Path, data: bytes) -> bytes:
    """Return a manifest with the checksum that fits the rest of it; anything else as it is."""
    if path.name != "manifest.json":
        return data
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(data)
        if isinstance(value, dict):
            value.pop("crc32c", None)
            value["crc32c"] = crc32c_digits(to_json(value))
            return json.dumps(value).encode("utf-8", "surrogatepass")
    return data
