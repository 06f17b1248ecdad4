"""joblib over the shards of a run: threads of this process, or processes that may die."""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any, Final

from loaders.errors import ShardsError
from loaders.format.files import WORK
from preprocess.fatal import names_of, time_limit, without_fatal
from preprocess.in_work import Note, Notes
from preprocess.interrupts import end_with_parent, interrupts_ignored
from preprocess.receipt import Receipt
from preprocess.shard_writer import write_shard
from preprocess.task import ShardTask
from preprocess.threads import Gate, Shared

OnProgress = Callable[[int, int, int], None]
"""Told (samples, skipped, bytes) as they are made; called from worker threads."""

_SHOWN: Final = 5
"""Items that are named in one message."""

_FEEDER: Final = "QueueFeederThread"
"""Name that multiprocessing and loky give the thread which sends calls to worker processes."""

_FEEDER_SECONDS: Final = 10.0
"""It ends at once when its pool was ended; another library's pool may live on."""


def write_shards(
    tasks: Sequence[ShardTask],
    backend: str,
    workers: int,
    on_progress: OnProgress,
    item_timeout: float | None = None,
) -> list[Receipt]:
    """Write shards, on all workers; items that end a worker process are left out by name.

    Args:
        tasks: What to write, all of one run.
        backend: joblib backend.
        workers: Samples prepared at a time.
        on_progress: Told what has been made.
        item_timeout: Seconds for an item, on processes; None for any time.

    Raises:
        ShardsError: A worker process died, and no item does that by itself.
        OutputError: The output folder cannot take them.
    """
    if backend == "threading":
        return _write_in_threads(tasks, workers, on_progress)
    receipts: list[Receipt] = []
    pending = list(tasks)
    while pending:
        late: list[Note] = []
        try:
            with time_limit(pending[0].out, pending[0].run_hash, item_timeout) as late:
                apart = item_timeout is not None
                _write_in_processes(pending, backend, workers, on_progress, receipts, apart=apart)
        except BrokenProcessPool as error:
            out, names = pending[0].out, names_of(pending, pending[0].out)
            pending = _unwritten(pending, receipts)
            refused = sum(len(task.refused) for task in pending)
            pending = without_fatal(pending, out, item_timeout)
            if sum(len(task.refused) for task in pending) == refused:
                raise (_late(names, item_timeout) if late else _killed(names)) from error
        else:
            pending = []
    return receipts


def _unwritten(tasks: Sequence[ShardTask], receipts: Sequence[Receipt]) -> list[ShardTask]:
    done = {(receipt.split, receipt.index) for receipt in receipts}
    return [task for task in tasks if (task.split, task.index) not in done]


def _late(names: Sequence[str], seconds: float | None) -> ShardsError:
    return ShardsError(
        f"not done within {seconds:g} s, but done when prepared alone: one of "
        f"{', '.join(names[:_SHOWN])}: the machine is too busy for this --item-timeout; finished "
        "shards are kept, the same command goes on from there, with a longer one or fewer --workers"
    )


def _killed(names: Sequence[str]) -> ShardsError:
    inside = f" while it prepared {', '.join(names[:_SHOWN])}" if names else ""
    more = f" or {len(names) - _SHOWN:,} others" if len(names) > _SHOWN else ""
    return ShardsError(
        f"a worker process was killed{inside}{more}, and no item does that by itself: most often "
        "memory ran out; finished shards are kept, the same command goes on from there, with fewer "
        "--workers if need be"
    )


def _write_in_processes(
    tasks: Sequence[ShardTask],
    backend: str,
    workers: int,
    on_progress: OnProgress,
    receipts: list[Receipt],
    *,
    apart: bool,
) -> None:
    """Write shards in processes, and add their receipts as they come.

    Args:
        tasks: What to write.
        backend: joblib backend.
        workers: Samples prepared at a time.
        on_progress: Told what has been made.
        receipts: Where the receipts go.
        apart: Never in this process, which joblib takes where one does the work: it could not be
            ended.
    """
    from joblib import Parallel, delayed, parallel_config
    from joblib.parallel import get_active_backend

    processes = max(1, min(len(tasks), workers))
    threads = max(1, workers // processes)
    jobs = max(2, processes) if apart else processes
    ahead = 1 if processes < jobs else "2 * n_jobs"  # one at a time all the same
    # Nobody is given arrays as files. For these joblib makes a folder in /dev/shm at every call,
    # which stays until the process ends; told a place, it makes none before it has a file for it.
    given: dict[str, Any] = {"temp_folder": tempfile.gettempdir(), "max_nbytes": None}
    if backend == "loky":  # that of another is perhaps no child of this process
        given |= {"initializer": end_with_parent, "initargs": (os.getpid(),)}
    with _feeders_awaited(), parallel_config(backend=backend, n_jobs=jobs, **given):
        calls = (delayed(write_shard)(replace(task, threads=threads)) for task in tasks)
        if not get_active_backend()[0].supports_return_generator:
            # Backends that hand over all results at the end: no progress until then.
            receipts += Parallel(return_as="list", pre_dispatch=ahead)(calls)
            return
        with interrupts_ignored():
            started = Parallel(return_as="generator_unordered", pre_dispatch=ahead)(calls)
        # Closed at once on an error of ours: no worker may outlive the hold on the folder.
        with closing(started) as finished:
            for receipt in finished:
                on_progress(receipt.count, len(receipt.skipped), receipt.nbytes)
                receipts.append(receipt)


@contextmanager
def _feeders_awaited() -> Iterator[None]:
    """Wait on an error for the thread that fed the pool of processes: joblib does not.

    It drops the last hold on semaphores of the system. Where the process ended in the middle of
    that, their tracker wrote warnings of a leak behind our one line.
    """
    before = set(threading.enumerate())
    try:
        yield
    except BaseException:
        for thread in set(threading.enumerate()) - before:
            if thread.name == _FEEDER:
                thread.join(_FEEDER_SECONDS)
        raise


def _write_in_threads(
    tasks: Sequence[ShardTask], workers: int, on_progress: OnProgress
) -> list[Receipt]:
    from joblib import Parallel, delayed, parallel_config

    if not tasks:
        return []
    # NOTE [ Shards take turns ]
    # The samples of one shard run on all of `workers` threads, so that the last shard has them all
    # too; when its last ones are handed to the pool the next shard follows. The fsync of up to
    # three goes on beside that, so that a slow moment of the disk stops nobody. One thread writes
    # what about 16 others make of large photos.
    turns = 1 + workers // 16
    in_work = max(1, min(len(tasks), turns + 3))
    with (
        ExitStack() as stack,
        ThreadPoolExecutor(workers, thread_name_prefix="prep") as pool,
    ):
        makers = {
            recipe: stack.enter_context(recipe.opened())
            for recipe in dict.fromkeys(task.recipe for task in tasks)
        }
        notes = Notes(tasks[0].out / WORK, tasks[0].run_hash)
        turn = threading.Semaphore(turns)
        shared = Shared(pool, workers, Gate(), turn, makers, on_progress, notes)
        try:
            with parallel_config(backend="threading", n_jobs=in_work):
                calls = (delayed(write_shard)(task, shared) for task in tasks)
                return list(Parallel(return_as="generator_unordered")(calls))
        finally:
            shared.gate.shut()
            pool.shutdown(cancel_futures=True)
            notes.close()
