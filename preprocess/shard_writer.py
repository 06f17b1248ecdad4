"""One shard: items -> samples -> files -> receipt. A task is a plain, idempotent record."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from threading import Semaphore
from typing import Final

import numpy as np

from loaders.format.containers import CONTAINERS
from loaders.format.files import (
    WORK,
    publish,
    sync_directory,
    write_atomically,
)
from loaders.format.row_writer import RowWriter
from preprocess.errors import OutputError, SampleError, output_error
from preprocess.in_work import Notes
from preprocess.item_contents import ItemFiles
from preprocess.items import Item
from preprocess.receipt import Receipt
from preprocess.recipe import REDONE, Ragged, Redo, Rows, cut_items
from preprocess.shard_content import ShardContent
from preprocess.shard_samples import Prepared, prepare
from preprocess.stats import merge_tallies
from preprocess.task import ShardTask
from preprocess.threads import Gate, InOrder, Shared, Stopped

_CHUNK_NBYTES: Final = 2_000_000
"""Sample bytes that one thread prepares at a time: small enough to balance, large enough to pay."""

_MAX_CHUNK: Final = 16

_PART_NBYTES: Final = 4_000_000
"""Sample bytes that are handed on at a time: bounds what a large item holds in memory."""


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
                makers = {task.recipe: stack.enter_context(task.recipe.opened())}
                notes = Notes(task.out / WORK, task.run_hash)
                stack.callback(notes.close)  # after the threads have ended, which write them
                pool: Executor = stack.enter_context(ThreadPoolExecutor(task.threads))
                quiet = lambda *_: None  # noqa: E731
                shared = Shared(pool, task.threads, Gate(), Semaphore(), makers, quiet, notes)
            stack.enter_context(shared.gate)
            try:
                return _write_files(task, shared)
            except Redo as redo:
                again = replace(task, recipe=redo.recipe)
                makers = {redo.recipe: stack.enter_context(redo.recipe.opened())}
                return _write_files(again, replace(shared, makers=makers), {REDONE: (1,)})
    except OSError as error:
        raise output_error(task.out, error) from error


def _write_files(
    task: ShardTask, shared: Shared, tallies: Mapping[str, tuple[int, ...]] | None = None
) -> Receipt:
    with ExitStack() as stack:
        content = ShardContent(task, stack)
        merge_tallies(content.tallies, tallies or {})
        files = ItemFiles(task.source)
        _prepare_in_order(task, shared, files, content)
        receipt = Receipt(
            run_hash=task.run_hash,
            split=task.split,
            index=task.index,
            items=len(task.items),
            count=content.count,
            files=_finish(task, content) if content.count else {},
            skipped=tuple(content.skipped),
            statistics=content.sums,
            class_counts=tuple(sorted(content.labels.items())),
            values=content.ends,
            tallies=content.tallies,
            contents=files.contents(task.items),
        )
        # NOTE [ No file without a receipt ]
        # The receipt is durable before the files get their names, and counts only once they have
        # them. So whenever a run ends, each of its files is named in a receipt: nothing is left
        # that a later run, with other options perhaps, would have to take for a stranger's.
        if not task.is_owned():
            # The run was killed, and another may write here by now.
            raise OutputError(
                f"{task.out}: moved or removed, or taken by another run, while it was written; "
                "give the same command again"
            )
        write_atomically(task.receipt_path, receipt.to_bytes())
        if content.count:
            _publish(task, content.writers)
    return receipt


def _finish(task: ShardTask, content: ShardContent) -> dict[str, tuple[str, int, str]]:
    """Make the finished files durable, under their temporary names."""
    container = CONTAINERS[task.container]
    files = {}
    for column in task.columns():
        writer = content.writers[column.name]
        if column.in_chunks:
            sizes = np.array(content.sizes[column.name], np.int64)
            suffix = container.suffix(column, content.count, task.capacity, sizes)
        else:
            suffix = container.suffix(column, writer.count, task.capacity)
        nbytes = writer.finish(container.prefix(column, writer.count), suffix)
        name = task.shard_path(column).relative_to(task.out).as_posix()
        files[column.name] = (name, nbytes, writer.crc32c)
    return files


def _publish(task: ShardTask, writers: dict[str, RowWriter]) -> None:
    """Give the durable files their names."""
    paths = []
    for column in task.columns():
        path = task.shard_path(column)
        publish(writers[column.name].path, path)
        paths.append(path)
    for folder in {
        folder for path in paths for folder in path.parents if task.out in folder.parents
    }:
        sync_directory(folder)
    sync_directory(task.out)


def _prepare_in_order(
    task: ShardTask, shared: Shared, files: ItemFiles, content: ShardContent
) -> None:
    """Prepare chunks of items on the pool, a bounded number ahead, and store them in item order."""
    chunks = cut_items(task.items, task.recipe, _CHUNK_NBYTES, _MAX_CHUNK)
    line = InOrder(content.store)

    def look_for_errors(future: Future[None]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            line.fail(error)

    ahead = 2 * shared.threads
    submitted: list[Future[None]] = []
    first = 0
    try:
        with shared.turn:
            for number, items in enumerate(chunks):
                line.wait(number - ahead + 1)
                if shared.gate.is_shut:
                    raise Stopped
                future = shared.pool.submit(_make, task, shared, files, items, line, number, first)
                first += len(items)
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


def _make(
    task: ShardTask,
    shared: Shared,
    files: ItemFiles,
    items: Sequence[Item],
    line: InOrder[Sequence[Prepared]],
    number: int,
    first: int,
) -> None:
    """Prepare one chunk of items, and hand it in, in parts if it is large.

    What waits to be handed in is not in work.
    """
    part: list[Prepared] = []
    held = done = 0
    made = prepare(task, shared.makers[task.recipe], files, items)
    while (prepared := _next(made, task, shared, first + done, len(items) - done)) is not None:
        done += task.recipe.one_to_one
        if shared.gate.is_shut:
            raise Stopped
        if held >= _PART_NBYTES:
            shared.notes.end()
            line.put(number, part, last=False)
            part, held = [], 0
        held += _nbytes(prepared[0])
        part.append(prepared)
        _tell(prepared[0], shared)
    shared.notes.end()
    line.put(number, part)


def _next(
    made: Iterator[Prepared], task: ShardTask, shared: Shared, first: int, count: int
) -> Prepared | None:
    """Return the next that is prepared, None for no more; a note says what it may be."""
    shared.notes.begin(task.split, task.index, first, count)
    return next(made, None)


def _nbytes(rows: Rows | SampleError) -> int:
    if isinstance(rows, SampleError):
        return 0
    arrays = (a.values if isinstance(a, Ragged) else a for a in rows.arrays.values())
    return sum(array.nbytes for array in arrays)


def _tell(rows: Rows | SampleError, shared: Shared) -> None:
    if isinstance(rows, SampleError):
        shared.on_chunk(0, 1, 0)
    else:
        shared.on_chunk(rows.count, len(rows.skipped), _nbytes(rows))
