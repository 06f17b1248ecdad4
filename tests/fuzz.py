"""Mutated files of a dataset, in great numbers: what opens them must refuse them, and nothing else.

    python -m tests.fuzz [--count 1000000] [--seed 0]

Each input is a file of a small dataset with some bytes, or some values of its JSON, changed; the
checksums that would give it away are made to fit. Whatever comes, opening, reading and showing must
end with samples or with an error of ours, without using much memory, and without looking at a file
outside the folder.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from loaders import (
    FormatError,
    IncompleteError,
    MissingShardError,
    SelectionError,
    TableEncoder,
    open_dataset,
    open_table,
    open_token_file,
    open_tokens,
)
from loaders.format.files import crc32c_digits, to_json
from loaders.format.spec import read_manifest
from preprocess.check import check_dataset
from preprocess.commands.described import dataset_texts, describe_dataset
from preprocess.errors import OutputError, SourceError
from preprocess.receipt import parse_receipt
from preprocess.recorded import Moved, Recorded
from preprocess.report import read_aside
from preprocess.tables.like import read_like
from tests.small_datasets import KINDS, prepare, write_source

ALLOWED = (
    FormatError,
    IncompleteError,
    MissingShardError,
    OutputError,
    SelectionError,
    SourceError,
)

MEMORY = 3 << 30
"""Bytes of address space beside what is in use: an absurd allocation fails."""

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

Target = tuple[Path, Callable[[], Any]]
"""A file to be changed, and what reads it."""


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
                [b"[[[[", b"9999", b"null", b"1e99", b'"":{', b"-0.0"]
            )
    return bytes(changed)


def mutated(path: Path, data: bytes, rng: random.Random) -> bytes:
    """Return other bytes for a file of JSON or of anything else."""
    if path.suffix != ".json" or rng.randrange(8) == 0:
        return mutated_bytes(data, rng)
    value = mutated_json(json.loads(data), rng)
    if isinstance(value, dict) and path.name == "manifest.json":
        value.pop("crc32c", None)
        with contextlib.suppress(ValueError):
            value["crc32c"] = crc32c_digits(to_json(value))
    return json.dumps(value).encode("utf-8", "surrogatepass")


def fit_extra(manifest: Path, name: str, data: bytes) -> None:
    """Make the manifest promise what a file beside the shards now holds."""
    value = json.loads(manifest.read_bytes())
    value["extras"][name] = [len(data), crc32c_digits(data)]
    value.pop("crc32c")
    manifest.write_bytes(to_json({**value, "crc32c": crc32c_digits(to_json(value))}))


def read_any(kind: str, path: Path) -> None:
    """Open a dataset and read first and last sample of it, as a training script would."""
    if kind.endswith("images"):
        data: Any = open_dataset(path, size=24)
    elif kind.endswith("table"):
        data = open_table(path)
        for column in data.schema.columns:
            data.vocabulary(column.name)
        TableEncoder(path)
    else:
        tokens = open_tokens(path)
        data = tokens.packed() if kind.startswith("shuffled") else tokens.documents()
    if len(data):
        data.__getitems__([0, len(data) - 1])


def describe_any(kind: str, path: Path) -> None:
    """Show what a dataset holds, and read how it was made, as commands do."""
    list(dataset_texts(path, describe_dataset(path)))
    recorded = Recorded(path, read_manifest(path), read_aside(path / "report.json"), Moved())
    if kind.endswith("images"):
        recorded.image_options()
    elif kind.endswith("table"):
        recorded.table_request(path, path)
        read_like(path)
    else:
        recorded.token_options()
    recorded.run_options(workers=1)


def targets(folder: Path) -> list[Target]:
    """Prepare small datasets, and return their files with what reads them."""
    found: list[Target] = []
    for kind in KINDS:
        for container in ("tensor", "zarr"):
            place = folder / f"{kind}-{container}"
            place.mkdir()
            out = place / "out"
            prepare(kind, container, write_source(kind, place), out)
            reader = _reader(kind, out)
            found += [(out / "manifest.json", reader)] * 12
            found += [(out / "manifest.json", _describer(kind, out))] * 4
            shards = sorted(path for path in out.rglob("train/**/*") if path.is_file())
            found += [(path, reader) for path in (shards[0], shards[-1])]
            found += [(path, reader) for path in sorted(out.rglob("table/**/*.json"))] * 4
            if container == "zarr":
                found += [(path, _checker(out)) for path in sorted(out.rglob("zarr.json"))[:2]]
    found += [_receipt(folder)] * 6
    found += _other_trainers(folder)
    return found


def _reader(kind: str, out: Path) -> Callable[[], Any]:
    return lambda: read_any(kind, out)


def _describer(kind: str, out: Path) -> Callable[[], Any]:
    return lambda: describe_any(kind, out)


def _checker(out: Path) -> Callable[[], Any]:
    return lambda: check_dataset(out, workers=1)


def _receipt(folder: Path) -> Target:
    from preprocess.plan import RunOptions
    from preprocess.run import run
    from tests.recipes import DigestRecipe, numbered_items, plan_digests, row_nbytes, write_items

    # The first shard is long written when the last item ends the run.
    write_items(folder / "items", {**numbered_items(40), "train/039": b"fault"})
    options = RunOptions(shard_nbytes=2 * row_nbytes(), workers=1)
    recipe = DigestRecipe(fault="exception")
    with contextlib.suppress(RuntimeError):
        run(plan_digests(folder / "items", folder / "stopped", options, recipe), options)
    path = next((folder / "stopped/.prep").glob("*.receipt.json"))
    return path, lambda: parse_receipt(path)


def _other_trainers(folder: Path) -> list[Target]:
    from preprocess.tokens.export import export_tokens

    found: list[Target] = []
    for target in ("nanogpt", "megatron"):
        export_tokens(folder / "tokens-tensor/out", folder / target, target)
        for path in sorted(p for p in (folder / target).iterdir() if p.suffix in {".bin", ".idx"}):
            found += [(path, _opener(path))] * (3 if path.suffix == ".idx" else 1)
    return found


def _opener(path: Path) -> Callable[[], Any]:
    def read() -> None:
        documents = open_token_file(path, eos_id=None if path.suffix == ".idx" else 0).documents()
        documents.__getitems__([0, len(documents) - 1])

    return read


def try_one(
    folder: Path, path: Path, read: Callable[[], Any], whole: bytes, rng: random.Random
) -> str:
    """Change a file, read it, and put it back; return what came: "read" or the error's name.

    Raises:
        Exception: Anything but what a reader may raise, or an error that names no file of the
            dataset.
    """
    data = mutated(path, whole, rng)
    manifest = path.parent.parent / "manifest.json"
    if path.parent.name == "vocabulary":
        manifest = path.parent.parent.parent / "manifest.json"
    kept = manifest.read_bytes() if "table/" in str(path) and manifest.is_file() else None
    path.write_bytes(data)
    if kept is not None and path.suffix == ".json":
        fit_extra(manifest, path.relative_to(manifest.parent).as_posix(), data)
    try:
        read()
    except ALLOWED as error:
        if str(folder) not in str(error):
            raise RuntimeError(f"no file is named: {type(error).__name__}: {error}") from error
        return type(error).__name__
    finally:
        path.write_bytes(whole)
        if kept is not None:
            manifest.write_bytes(kept)
    return "read"


def watch_opens(folder: Path) -> list[str]:
    """Note every file below the folder's parent that is opened outside the folder itself."""
    outside: list[str] = []
    real = os.path.realpath(folder)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes | Path):
            name = os.fsdecode(arguments[0])
            if ("passwd" in name or name.endswith("/x")) and not name.startswith(real):
                outside.append(name)

    sys.addaudithook(hook)
    return outside


def fuzz(count: int, seed: int, folder: Path) -> Counter[str]:
    """Try so many inputs; return how often what came.

    Raises:
        AssertionError: A reader did anything but refuse or read; the message names an input for
            each place in which that happened, and says how to do it again.
    """
    outside = watch_opens(folder)
    found = targets(folder)
    wholes = {path: path.read_bytes() for path, _ in found}
    counted: Counter[str] = Counter()
    broken: dict[str, str] = {}
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        path, read = rng.choice(found)
        name = f"seed {seed}, input {number}, {path.relative_to(folder)}"
        try:
            counted[try_one(folder, path, read, wholes[path], rng)] += 1
        except Exception as error:  # noqa: BLE001 - goes on, to name every place
            place = traceback.extract_tb((error.__cause__ or error).__traceback__)[-1]
            where = f"{place.filename}:{place.lineno}"
            broken.setdefault(where, f"{name}: {where}: {type(error).__name__}: {error}")
        if outside:
            broken.setdefault(outside[0], f"{name}: opened {outside}")
            outside.clear()
    assert not broken, "\n".join(broken.values())
    return counted


def main() -> None:
    """Fuzz from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    begin = time.process_time()
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        counted = fuzz(chosen.count, chosen.seed, folder)
    finally:
        shutil.rmtree(folder)
    seconds = time.process_time() - begin
    print(f"{chosen.count:,} inputs in {seconds:,.0f} s of a processor: {dict(counted)}")


if __name__ == "__main__":
    main()
