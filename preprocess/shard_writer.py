"""One shard: items -> samples -> files -> receipt. A task is a plain, idempotent record."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np

from loaders.errors import FormatError, MissingShardError
from loaders.format.containers import CONTAINERS
from loaders.format.files import (
    WORK,
    RowWriter,
    publish,
    sync_directory,
    write_atomically,
)
from loaders.format.spec import ChannelStatistics, Container, FieldSpec
from preprocess.errors import OutputError, SampleError
from preprocess.receipt import REMEDY, Receipt, parse_receipt
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
        class_count: Labels are below it.
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
    class_count: int
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


class Stopped(Exception):  # noqa: N818
    """The run is ending early; the shard in work is dropped."""


class Gate:
    """Lets shards in until the run ends early, and knows when the last one is out.

    joblib leaves its threads running when one of them fails; what they still write must not
    outlive the run's hold on the output folder.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self.is_shut = False

    def __enter__(self) -> None:
        with self._changed:
            if self.is_shut:
                raise Stopped
            self._inside += 1

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def shut(self) -> None:
        """Let nobody in any more, and wait until the last is out."""
        with self._changed:
            self.is_shut = True
            self._changed.wait_for(lambda: self._inside == 0)


@dataclass(frozen=True, slots=True)
class Shared:
    """What shards in threads of one process share; worker processes have none.

    Attributes:
        pool: Threads that prepare samples; shards in work take turns on them.
        threads: How many there are.
        gate: Shut when the run ends early.
        on_chunk: Told (samples, skipped, bytes) as they are made.
    """

    pool: Executor
    threads: int
    gate: "Gate"
    on_chunk: Callable[[int, int, int], None]


Prepared = tuple[Sample | SampleError, dict[str, ChannelStatistics]]


def write_shard(task: ShardTask, shared: Shared | None = None) -> Receipt:
    """Write one shard whole: every file, the receipt, and only then the files' names.

    Args:
        task: What to write.
        shared: The run's threads, when the task runs in one of them.

    Returns:
        The receipt, as written.

    Raises:
        OutputError: The output folder cannot take it (full, read-only, gone).
        RuntimeError: The recipe does not keep its promises.
        Stopped: The run is ending.
    """
    task.recipe.set_up()
    try:
        with ExitStack() as stack:
            if shared is None:
                pool: Executor = stack.enter_context(ThreadPoolExecutor(task.threads))
                shared = Shared(pool, task.threads, Gate(), lambda *_: None)
            stack.enter_context(shared.gate)
            return _write_files(task, shared)
    except OSError as error:
        raise output_error(task.out, error) from error


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
            room = container.shard_nbytes(field, len(task.items), task.capacity)
            writers[field.name] = RowWriter(work / f"{tag}.{field.name}", full, room)
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
        receipt = Receipt(
            run_hash=task.run_hash,
            split=task.split,
            index=task.index,
            items=len(task.items),
            count=count,
            files=_finish(task, fields, writers, count) if count else {},
            skipped=tuple(skipped),
            statistics=sums,
            class_counts=tuple(sorted(labels.items())),
        )
        # NOTE [ No file without a receipt ]
        # The receipt is durable before the files get their names, and counts only once they have
        # them. So whenever a run ends, each of its files is named in a receipt: nothing is left
        # that a later run, with other options perhaps, would have to take for a stranger's.
        write_atomically(task.receipt_path, receipt.to_bytes())
        if count:
            _publish(task, fields, writers)
    return receipt


def _finish(
    task: ShardTask, fields: Sequence[FieldSpec], writers: dict[str, RowWriter], count: int
) -> dict[str, tuple[str, int, str]]:
    """Make the finished files durable, under their temporary names."""
    container = CONTAINERS[task.container]
    files = {}
    for field in fields:
        writer = writers[field.name]
        suffix = container.suffix(field, count, task.capacity)
        nbytes = writer.finish(container.prefix(field, count), suffix)
        name = task.shard_path(field).relative_to(task.out).as_posix()
        files[field.name] = (name, nbytes, writer.crc32c)
    return files


def _publish(task: ShardTask, fields: Sequence[FieldSpec], writers: dict[str, RowWriter]) -> None:
    """Give the durable files their names."""
    for field in fields:
        publish(writers[field.name].path, task.shard_path(field))
    paths = [task.shard_path(field) for field in fields]
    for folder in {
        folder for path in paths for folder in path.parents if task.out in folder.parents
    }:
        sync_directory(folder)
    sync_directory(task.out)


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
            if shared.gate.is_shut:
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
    # One result too many tells as much as a recipe that never ends.
    made = islice(task.recipe.samples(task.source, items), len(items) + 1)
    for item in items:
        sample = _take(task, item, made)
        if sample is None:
            raise _broken(task, item, f"{len(results)} results for {len(items)} items")
        statistics = {}
        if not isinstance(sample, SampleError):
            _check(task, item, fields, sample)
            for field in fields:
                if field.role == "image":
                    statistics[field.name] = channel_statistics(sample[field.name])
        results.append((sample, statistics))
    if _take(task, items[-1], made) is not None:
        raise _broken(task, items[-1], f"more results than the {len(items)} items")
    return results


def _take(
    task: ShardTask, item: Item, made: Iterator[Sample | SampleError]
) -> Sample | SampleError | None:
    """Return what the recipe makes of an item, None if it makes no more."""
    try:
        return next(made, None)
    except Exception as error:
        raise _broken(task, item, f"{type(error).__name__}: {error}") from error


def _check(task: ShardTask, item: Item, fields: Sequence[FieldSpec], sample: Sample) -> None:
    names = sorted(field.name for field in fields)
    if sorted(sample) != names:
        raise _broken(task, item, f"fields {sorted(sample)}, promised were {names}")
    for field in fields:
        array: Any = sample[field.name]
        if not isinstance(array, np.ndarray):
            raise _broken(task, item, f"field {field.name} is no array: {type(array).__name__}")
        if array.dtype != field.numpy_dtype or array.shape != field.shape:
            found = f"field {field.name} is {array.dtype} {array.shape}"
            raise _broken(task, item, f"{found}, promised was {field.dtype} {field.shape}")
        if field.role == "label" and int(array) >= task.class_count:
            raise _broken(task, item, f"label {array} and only {task.class_count} classes")


def _broken(task: ShardTask, item: Item, what: str) -> RuntimeError:
    """Return the error for a recipe that does not keep its promises: a fault of its author."""
    return RuntimeError(f"recipe {task.recipe.kind}: {item.key}: {what}")


def retract(task: ShardTask) -> None:
    """Remove what an earlier try at a shard left: its files, then its receipt."""
    try:
        for field in task.recipe.fields():
            task.shard_path(field).unlink(missing_ok=True)
        task.receipt_path.unlink(missing_ok=True)
    except OSError as error:
        raise output_error(task.out, error) from error


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
    paths = {field.name: task.shard_path(field) for field in task.recipe.fields()}
    named = {name: task.out / below for name, (below, _, _) in receipt.files.items()}
    if named != (paths if receipt.count else {}):
        raise FormatError(f"{task.receipt_path}: names other files than its shard's; {REMEDY}")
    for name, nbytes, _ in receipt.files.values():
        path = task.out / name
        if not path.is_file() or path.stat().st_size != nbytes:
            return None
    return receipt
