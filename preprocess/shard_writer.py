"""One shard: items -> samples -> files -> receipt. A task is a plain, idempotent record."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from loaders.errors import FormatError, MissingShardError
from loaders.format.containers import CONTAINERS
from loaders.format.files import (
    WORK,
    RowWriter,
    checksum,
    publish,
    read_json,
    sync_directory,
    to_json,
    write_atomically,
)
from loaders.format.spec import ChannelStatistics, Container, FieldSpec
from loaders.format.strict import Place
from preprocess.errors import OutputError, SampleError
from preprocess.recipe import Recipe, Sample
from preprocess.sources import Item
from preprocess.stats import channel_statistics, no_statistics

_CHUNK_NBYTES: Final = 8_000_000
"""Sample bytes that one thread prepares at a time: small enough to balance, large enough to pay."""

_MAX_CHUNK: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask:
    """All that a worker needs to write one shard, wherever it runs.

    Attributes:
        source: The folder that the items lie in.
        out: The dataset's folder.
        container: How the bytes are laid out.
        split: The split's name.
        index: The shard's number in the split.
        capacity: Rows of a full shard in this split.
        items: The items of this shard, in order.
        recipe: Turns them into samples.
        run_hash: Stands in the receipt; a receipt of another run is not taken.
        threads: Threads to prepare samples on, in a process of its own.
    """

    source: Path
    out: Path
    container: Container
    split: str
    index: int
    capacity: int
    items: tuple[Item, ...]
    recipe: Recipe
    run_hash: str
    threads: int = 1

    @property
    def receipt_path(self) -> Path:
        """Where the receipt of this shard lies while the run has not finished."""
        return self.out / WORK / f"{self.split}.{self.index:05d}.receipt.json"

    @property
    def nbytes(self) -> int:
        """Bytes that the shard's files will have if no item is skipped."""
        container = CONTAINERS[self.container]
        fields = self.recipe.fields()
        return sum(container.shard_nbytes(f, len(self.items), self.capacity) for f in fields)

    def shard_path(self, field: FieldSpec) -> Path:
        """Return where the file of a field will lie."""
        return CONTAINERS[self.container].shard_path(self.out, self.split, self.index, field)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A finished shard's facts, before the manifest.

    Attributes:
        run_hash: The run that wrote it.
        split: The split's name.
        index: The shard's number.
        items: Items of the shard.
        count: Samples in it; the rest were skipped.
        files: Field name -> (path below the dataset, size in bytes, CRC-32C); empty for a shard
            without samples.
        skipped: (key, reason) of items that could not become samples.
        statistics: Image field name -> exact sums.
        class_counts: (class index, samples) of the classes that occur.
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
            }
        )


class Stopped(Exception):  # noqa: N818
    """The run is ending early; the shard in work is dropped."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What shards in threads of one process share; worker processes have none.

    Attributes:
        pool: Threads that prepare samples; shards in work take turns on them.
        threads: How many there are.
        stop: Set when the run ends early.
        on_chunk: Told (samples, skipped, bytes) as they are made.
    """

    pool: Executor
    threads: int
    stop: threading.Event
    on_chunk: Callable[[int, int, int], None]


Prepared = tuple[Sample | SampleError, dict[str, ChannelStatistics]]


def write_shard(task: ShardTask, shared: Shared | None = None) -> Receipt:
    """Write one shard whole: every file, then the receipt.

    Args:
        task: What to write.
        shared: The run's threads, when the task runs in one of them.

    Returns:
        The receipt, as written.

    Raises:
        OutputError: The output folder cannot take it (full, read-only, gone).
        Stopped: The run is ending.
    """
    task.recipe.set_up()
    try:
        with ExitStack() as stack:
            if shared is None:
                pool: Executor = stack.enter_context(ThreadPoolExecutor(task.threads))
                shared = Shared(pool, task.threads, threading.Event(), lambda *_: None)
            receipt = _write_files(task, shared)
        write_atomically(task.receipt_path, receipt.to_bytes())
    except OSError as error:
        raise output_error(task.out, error) from error
    return receipt


def output_error(out: Path, error: OSError) -> OutputError:
    """Say what stopped writing, where, and that nothing finished is lost."""
    try:
        status = os.statvfs(out)
        free = f"{status.f_bavail * status.f_frsize:,} bytes are free"
    except OSError:
        free = "the folder is not there"
    place = error.filename or out
    return OutputError(
        f"{place}: cannot write: {error.strerror or error} ({free}); finished shards are kept, the "
        "same command goes on from there"
    )


def _write_files(task: ShardTask, shared: Shared) -> Receipt:
    container = CONTAINERS[task.container]
    fields = task.recipe.fields()
    work = task.out / WORK
    tag = f"tmp-{os.getpid()}-{threading.get_ident()}-{task.split}-{task.index:05d}"
    skipped: list[tuple[str, str]] = []
    sums = {
        field.name: no_statistics(field.shape[-1], int(np.iinfo(field.dtype).max))
        for field in fields
        if field.role == "image"
    }
    labels: dict[int, int] = {}
    with ExitStack() as stack:
        writers = {}
        for field in fields:
            full = container.prefix(field, len(task.items))
            writers[field.name] = RowWriter(work / f"{tag}.{field.name}", full)
            stack.callback(writers[field.name].discard)
        for sample, statistics in _prepare_in_order(task, fields, shared):
            if isinstance(sample, SampleError):
                skipped.append((sample.key, sample.reason))
                continue
            for field in fields:
                writers[field.name].append(sample[field.name])
                if field.role == "label":
                    label = int(sample[field.name])
                    labels[label] = labels.get(label, 0) + 1
            for name, found in statistics.items():
                sums[name] += found
        count = len(task.items) - len(skipped)
        files = _finish(task, fields, writers, count) if count else {}
    return Receipt(
        run_hash=task.run_hash,
        split=task.split,
        index=task.index,
        items=len(task.items),
        count=count,
        files=files,
        skipped=tuple(skipped),
        statistics=sums,
        class_counts=tuple(sorted(labels.items())),
    )


def _finish(
    task: ShardTask, fields: Sequence[FieldSpec], writers: dict[str, RowWriter], count: int
) -> dict[str, tuple[str, int, str]]:
    """Make the finished files durable, then visible."""
    container = CONTAINERS[task.container]
    files = {}
    for field in fields:
        writer = writers[field.name]
        suffix = container.suffix(field, count, task.capacity)
        nbytes = writer.finish(container.prefix(field, count), suffix)
        name = task.shard_path(field).relative_to(task.out).as_posix()
        files[field.name] = (name, nbytes, checksum(writer.path))
    for field in fields:
        publish(writers[field.name].path, task.shard_path(field))
    paths = [task.shard_path(field) for field in fields]
    for folder in {
        folder for path in paths for folder in path.parents if task.out in folder.parents
    }:
        sync_directory(folder)
    sync_directory(task.out)
    return files


def _prepare_in_order(
    task: ShardTask, fields: Sequence[FieldSpec], shared: Shared
) -> Iterator[Prepared]:
    """Prepare chunks of items on the pool, a bounded number ahead, and yield in item order."""
    nbytes = sum(field.nbytes for field in fields)
    size = max(1, min(_MAX_CHUNK, _CHUNK_NBYTES // max(1, nbytes)))
    chunks = deque(task.items[i : i + size] for i in range(0, len(task.items), size))
    ahead = 2 * shared.threads
    running: deque[Future[list[Prepared]]] = deque()
    try:
        while chunks or running:
            while chunks and len(running) < ahead:
                chunk = chunks.popleft()
                running.append(shared.pool.submit(_prepare, task, fields, chunk))
            results = running.popleft().result()
            if shared.stop.is_set():
                raise Stopped
            bad = sum(isinstance(sample, SampleError) for sample, _ in results)
            good = len(results) - bad
            shared.on_chunk(good, bad, good * nbytes)
            yield from results
    finally:
        for future in running:
            future.cancel()


def _prepare(task: ShardTask, fields: Sequence[FieldSpec], items: Sequence[Item]) -> list[Prepared]:
    """Make samples of a few items, check them against the fields, and sum them."""
    results: list[Prepared] = []
    for sample in task.recipe.samples(task.source, items):
        statistics = {}
        if not isinstance(sample, SampleError):
            key = items[min(len(results), len(items) - 1)].key
            for field in fields:
                _check(sample, field, key)
                if field.role == "image":
                    statistics[field.name] = channel_statistics(sample[field.name])
        results.append((sample, statistics))
    if len(results) != len(items):
        raise ValueError(
            f"recipe {task.recipe.kind}: {len(results)} results for {len(items)} items"
        )
    return results


def _check(sample: Sample, field: FieldSpec, key: str) -> None:
    array = sample[field.name]
    if array.dtype != field.numpy_dtype or array.shape != field.shape:
        raise ValueError(
            f"{key}: field {field.name} is {array.dtype} {array.shape}, the recipe promised "
            f"{field.dtype} {field.shape}"
        )


def read_receipt(task: ShardTask) -> Receipt | None:
    """Return the receipt of a shard that this run has finished already, if its files are there.

    Raises:
        FormatError: The receipt is damaged.
    """
    try:
        receipt = parse_receipt(task.receipt_path)
    except MissingShardError:
        return None
    if receipt.run_hash != task.run_hash or receipt.items != len(task.items):
        return None
    for name, nbytes, _ in receipt.files.values():
        path = task.out / name
        if not path.is_file() or path.stat().st_size != nbytes:
            return None
    return receipt


def parse_receipt(path: Path) -> Receipt:
    """Read a receipt file.

    Raises:
        MissingShardError: It is not there.
        FormatError: It is damaged.
    """
    place = Place(str(path))
    keys = {"run_hash", "split", "index", "items", "count", "files", "skipped", "statistics"}
    entry = place.mapping(read_json(path), keys | {"class_counts"})
    try:
        return Receipt(
            run_hash=entry["run_hash"],
            split=entry["split"],
            index=entry["index"],
            items=entry["items"],
            count=entry["count"],
            files={name: (below, size, crc) for name, (below, size, crc) in entry["files"].items()},
            skipped=tuple((key, reason) for key, reason in entry["skipped"]),
            statistics={
                name: ChannelStatistics.from_json(place.at(name), found)
                for name, found in entry["statistics"].items()
            },
            class_counts=tuple((label, count) for label, count in entry["class_counts"]),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{path}: not a receipt ({error}); remove it and go on") from error
