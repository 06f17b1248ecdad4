"""What opens a file of a dataset that a stranger has changed, and what may come of it.

Whatever comes, opening, reading and showing must end with samples or with an error of ours, without
using much memory, and without looking at a file outside the folder.
"""

import contextlib
import json
import os
import re
import resource
import sys
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

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
from preprocess.item_record import read_record
from preprocess.receipt import parse_receipt
from preprocess.recorded import Moved, Recorded
from preprocess.report import read_aside
from preprocess.skipped import read_skipped_lines
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


class Target(NamedTuple):
    """A file to be changed, and what reads it."""

    path: Path
    verb: str
    read: Callable[[], Any]
    share: int = 1


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


def targets(folder: Path, kinds: Iterable[str] = KINDS) -> list[Target]:
    """Prepare small datasets, and return their files with what reads them."""
    found: list[Target] = []
    for kind in kinds:
        for container in ("tensor", "zarr"):
            place = folder / f"{kind}-{container}"
            place.mkdir()
            out = place / "out"
            prepare(kind, container, write_source(kind, place), out)
            found += _of_dataset(kind, out)
            if container == "zarr":
                check = _checker(out)
                found += [
                    Target(path, "check", check) for path in sorted(out.rglob("zarr.json"))[:2]
                ]
    found.append(_receipt(folder))
    if "tokens" in kinds:
        found += _other_trainers(folder)
    return found


def _of_dataset(kind: str, out: Path) -> list[Target]:
    read = _reader(kind, out)
    found = [
        Target(out / "manifest.json", "open", read, share=12),
        Target(out / "manifest.json", "describe", _describer(kind, out), share=4),
        _items(out / "items.jsonl"),
    ]
    if (out / "skipped.jsonl").exists():
        found.append(_skipped(out / "skipped.jsonl"))
    files = sorted(path for path in out.rglob("train/**/*") if path.is_file())
    of_each = {re.sub(r"\d{5}", "", str(path)): path for path in files}  # the last shard's
    found += [Target(path, "open", read) for path in (files[0], *of_each.values())]
    found += [Target(path, "open", read, share=4) for path in sorted(out.rglob("table/**/*.json"))]
    return found


def _items(path: Path) -> Target:
    return Target(path, "parse", lambda: read_record(path))


def _skipped(path: Path) -> Target:
    return Target(path, "parse", lambda: deque(read_skipped_lines(path), maxlen=0))


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
    return Target(path, "parse", lambda: parse_receipt(path), share=6)


def _other_trainers(folder: Path) -> list[Target]:
    from preprocess.tokens.export import export_tokens

    found: list[Target] = []
    for target in ("nanogpt", "megatron"):
        export_tokens(folder / "tokens-tensor/out", folder / target, target)
        found += [
            Target(path, "open", _opener(path), 3 if path.suffix == ".idx" else 1)
            for path in sorted((folder / target).iterdir())
            if path.suffix in {".bin", ".idx"}
        ]
    return found


def _opener(path: Path) -> Callable[[], Any]:
    def read() -> None:
        documents = open_token_file(path, eos_id=None if path.suffix == ".idx" else 0).documents()
        documents.__getitems__([0, len(documents) - 1])

    return read


def try_one(folder: Path, target: Target, data: bytes) -> str:
    """Read a file that holds other bytes; return what came: "read" or the error's name.

    The file holds what it held, afterwards.

    Raises:
        Exception: Anything but what a reader may raise, or an error that names no file of the
            dataset.
    """
    path, whole = target.path, target.path.read_bytes()
    manifest = path.parent.parent / "manifest.json"
    if path.parent.name == "vocabulary":
        manifest = path.parent.parent.parent / "manifest.json"
    kept = manifest.read_bytes() if "table/" in str(path) and manifest.is_file() else None
    path.write_bytes(data)
    if kept is not None and path.suffix == ".json":
        fit_extra(manifest, path.relative_to(manifest.parent).as_posix(), data)
    try:
        target.read()
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


def limit_memory() -> None:
    """Let an absurd allocation of this process fail."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
