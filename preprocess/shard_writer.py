"""One shard: items -> samples -> files -> receipt. A task is a plain, idempotent record."""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from threading import Semaphore
from typing import Any, Final

import numpy as np

from loaders.format.containers import CONTAINERS
from loaders.format.files import WORK, RowWriter, publish, sync_directory, write_atomically
from loaders.format.spec import ChannelStatistics, FieldSpec
from preprocess.errors import SampleError, output_error
from preprocess.receipt import Receipt
from preprocess.recipe import Sample
from preprocess.sources import Item
from preprocess.stats import channel_statistics, no_statistics
from preprocess.task import ShardTask
from preprocess.threads import Gate, InOrder, Shared, Stopped

_CHUNK_NBYTES: Final = 2_000_000
"""Sample bytes that one thread prepares at a time: small enough to balance, large enough to pay."""

_MAX_CHUNK: Final = 16


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
    try:
        with ExitStack() as stack:
            if shared is None:
                stack.enter_context(task.recipe.settings())
                pool: Executor = stack.enter_context(ThreadPoolExecutor(task.threads))
                shared = Shared(pool, task.threads, Gate(), Semaphore(), lambda *_: None)
            stack.enter_context(shared.gate)
            return _write_files(task, shared)
    except OSError as error:
        raise output_error(task.out, error) from error


def _write_files(task: ShardTask, shared: Shared) -> Receipt:
    fields = task.recipe.fields()
    with ExitStack() as stack:
        content = _Content(task, fields, stack)
        _prepare_in_order(task, fields, shared, content)
        count = len(task.items) - len(content.skipped)
        receipt = Receipt(
            run_hash=task.run_hash,
            split=task.split,
            index=task.index,
            items=len(task.items),
            count=count,
            files=_finish(task, fields, content.writers, count) if count else {},
            skipped=tuple(content.skipped),
            statistics=content.sums,
            class_counts=tuple(sorted(content.labels.items())),
        )
        # NOTE [ No file without a receipt ]
        # The receipt is durable before the files get their names, and counts only once they have
        # them. So whenever a run ends, each of its files is named in a receipt: nothing is left
        # that a later run, with other options perhaps, would have to take for a stranger's.
        if not task.is_owned():
            raise Stopped  # the run was killed, and another may write here by now
        write_atomically(task.receipt_path, receipt.to_bytes())
        if count:
            _publish(task, fields, content.writers)
    return receipt


class _Content:
    """What goes into one shard: its open files, and what is counted on the way there.

    Args:
        task: The shard.
        fields: Of the recipe.
        stack: Closed at the end: removes files that did not get their names.
    """

    def __init__(self, task: ShardTask, fields: Sequence[FieldSpec], stack: ExitStack) -> None:
        self.fields = fields
        self.skipped: list[tuple[str, str]] = []
        self.sums = {
            field.name: no_statistics(field.shape[-1], int(np.iinfo(field.dtype).max))
            for field in fields
            if field.role == "image"
        }
        self.labels: dict[int, int] = {}
        self.writers: dict[str, RowWriter] = {}
        container = CONTAINERS[task.container]
        tag = f"tmp-{os.getpid()}-{threading.get_ident()}-{task.split}-{task.index:05d}"
        for field in fields:
            full = container.prefix(field, len(task.items))
            room = container.shard_nbytes(field, len(task.items), task.capacity)
            writer = RowWriter(task.out / WORK / f"{tag}.{field.name}", full, room)
            self.writers[field.name] = writer
            stack.callback(writer.discard)

    def store(self, results: Sequence[Prepared]) -> None:
        """Add the next samples, or the reasons why they are not there."""
        for sample, statistics in results:
            if isinstance(sample, SampleError):
                self.skipped.append((sample.key, sample.reason))
                continue
            for field in self.fields:
                self.writers[field.name].append(sample[field.name])
                if field.role == "label":
                    label = int(sample[field.name])
                    self.labels[label] = self.labels.get(label, 0) + 1
            for name, found in statistics.items():
                self.sums[name] += found


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
    task: ShardTask, fields: Sequence[FieldSpec], shared: Shared, content: _Content
) -> None:
    """Prepare chunks of items on the pool, a bounded number ahead, and store them in item order."""
    nbytes = sum(field.nbytes for field in fields)
    size = max(1, min(_MAX_CHUNK, _CHUNK_NBYTES // max(1, nbytes)))
    chunks = [task.items[i : i + size] for i in range(0, len(task.items), size)]
    line = InOrder(content.store)

    def make(number: int) -> None:
        results = _prepare(task, fields, chunks[number])
        line.put(number, results)
        bad = sum(isinstance(sample, SampleError) for sample, _ in results)
        shared.on_chunk(len(results) - bad, bad, (len(results) - bad) * nbytes)

    def look_for_errors(future: Future[None]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            line.fail(error)

    ahead = 2 * shared.threads
    submitted: list[Future[None]] = []
    try:
        with shared.turn:
            for number in range(len(chunks)):
                line.wait(number - ahead + 1)
                if shared.gate.is_shut:
                    raise Stopped
                future = shared.pool.submit(make, number)
                future.add_done_callback(look_for_errors)
                submitted.append(future)
        # The next shard's samples follow without a gap.
        for count in range(max(0, len(chunks) - ahead), len(chunks) + 1):
            line.wait(count)
            if shared.gate.is_shut:
                raise Stopped
    finally:
        for future in submitted:
            future.cancel()
        line.close()


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
