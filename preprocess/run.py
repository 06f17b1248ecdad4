"""The engine: joblib over the shards of a plan -> receipts -> manifest. It knows no modality."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Final, Protocol

from loaders.errors import ShardsError
from loaders.format.spec import Manifest
from preprocess.commit import build_manifest, commit, read_skipped, write_skipped
from preprocess.errors import SourceError
from preprocess.output import (
    check_room,
    claim,
    clear_finished,
    find_complete,
    replaced_nbytes,
)
from preprocess.plan import Plan, RunOptions
from preprocess.receipt import Receipt
from preprocess.recipe import REDONE
from preprocess.removal import remove_dataset
from preprocess.report import Report
from preprocess.shard_writer import write_shard
from preprocess.stats import merge_tallies
from preprocess.task import ShardTask, read_receipt, retract
from preprocess.threads import Gate, Shared

OnProgress = Callable[[int, int, int], None]
"""Told (samples, skipped, bytes) as they are made; called from worker threads."""


class Runner(Protocol):
    """Carries out a plan: `run`, or what writes only some of its shards."""

    def __call__(self, plan: Plan, options: RunOptions, on_progress: OnProgress, /) -> Report:
        """Carry it out."""
        ...


_FEEDER: Final = "QueueFeederThread"
"""Name that multiprocessing and loky give the thread which sends calls to worker processes."""

_FEEDER_SECONDS: Final = 10.0
"""It ends at once when its pool was ended; another library's pool may live on."""


def run(plan: Plan, options: RunOptions, on_progress: OnProgress = lambda *_: None) -> Report:
    """Carry out a plan: write the shards that are not there yet, then the manifest.

    Args:
        plan: What to do.
        options: How to do it; the same that the plan was made with.
        on_progress: Told what has been made.

    Returns:
        What was done.

    Raises:
        SourceError: No item at all could become a sample.
        OutputError: The output folder belongs to something else, or cannot take the data.
    """
    start = time.perf_counter()
    manifest = find_complete(plan, overwrite=options.overwrite)
    if manifest is not None:
        clear_finished(plan.out)
        return report_of(plan, options, manifest, read_skipped(plan))
    if options.overwrite:  # before anything is removed
        check_room(plan.out, plan.nbytes - replaced_nbytes(plan))
    held = claim(plan, overwrite=options.overwrite)
    finished = False
    try:
        kept, pending = _look_for_receipts(plan, held.owner)
        for receipt in kept:
            on_progress(receipt.count, len(receipt.skipped), receipt.nbytes)
        check_room(plan.out, sum(task.nbytes for task in pending))
        workers = options.worker_count()
        backend = options.backend
        if backend == "auto":
            backend = plan.recipe.backend(plan.listing, workers)
        fresh = write_shards(pending, backend, workers, on_progress)
        receipts = [*kept, *fresh]
        if len(fresh) != len(pending):
            raise RuntimeError(
                f"backend {backend}: {len(fresh)} of {len(pending)} shards came back"
            )
        finished = not any(receipt.count for receipt in receipts)  # nothing that is worth keeping
        skipped = write_skipped(plan, receipts)
        manifest = build_manifest(plan, receipts)
        if (refusal := plan.recipe.refusal(_tallies(manifest))) is not None:
            remove_dataset(plan.out)
            finished = True
            raise SourceError(f"{plan.listing.name}: {refusal}; no dataset is written")
        report = replace(
            report_of(plan, options, manifest, skipped),
            seconds=time.perf_counter() - start,
            made=sum(receipt.count for receipt in fresh),
            backend=backend,
        )
        commit(plan, manifest, report)
        finished = True
    finally:
        held.release(finished=finished)
    return report


def _look_for_receipts(plan: Plan, owner: str) -> tuple[list[Receipt], list[ShardTask]]:
    """Return what this run has finished before, and what is left to do."""
    kept, pending = [], []
    for task in plan.tasks():
        receipt = read_receipt(task)
        if receipt is None:
            retract(task)
            pending.append(replace(task, owner=owner))
        else:
            kept.append(receipt)
    return kept, pending


def write_shards(
    tasks: Sequence[ShardTask], backend: str, workers: int, on_progress: OnProgress
) -> list[Receipt]:
    """Write shards, on all workers.

    Raises:
        ShardsError: A worker process died.
        OutputError: The output folder cannot take them.
    """
    if backend == "threading":
        return _write_in_threads(tasks, workers, on_progress)
    try:
        return _write_in_processes(tasks, backend, workers, on_progress)
    except BrokenProcessPool as error:
        raise ShardsError(
            "a worker process was killed, most often because memory ran out; finished shards are "
            "kept, the same command goes on from there, with fewer --workers if need be"
        ) from error


def _write_in_processes(
    tasks: Sequence[ShardTask], backend: str, workers: int, on_progress: OnProgress
) -> list[Receipt]:
    from joblib import Parallel, delayed, parallel_config
    from joblib.parallel import get_active_backend

    processes = max(1, min(len(tasks), workers))
    threads = max(1, workers // processes)
    receipts = []
    with _feeders_awaited(), parallel_config(backend=backend, n_jobs=processes):
        calls = (delayed(write_shard)(replace(task, threads=threads)) for task in tasks)
        if not get_active_backend()[0].supports_return_generator:
            # Backends that hand over all results at the end: no progress until then.
            return list(Parallel(return_as="list")(calls))
        with _interrupts_ignored():
            started = Parallel(return_as="generator_unordered")(calls)
        # Closed at once on an error of ours: no worker may outlive the hold on the folder.
        with closing(started) as finished:
            for receipt in finished:
                on_progress(receipt.count, len(receipt.skipped), receipt.nbytes)
                receipts.append(receipt)
    return receipts


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


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Let processes that start here ignore Ctrl-C: the run ends them, after its own clean-up.

    A Ctrl-C in this moment is lost to the run as well.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _write_in_threads(
    tasks: Sequence[ShardTask], workers: int, on_progress: OnProgress
) -> list[Receipt]:
    from joblib import Parallel, delayed, parallel_config

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
        shared = Shared(pool, workers, Gate(), threading.Semaphore(turns), makers, on_progress)
        try:
            with parallel_config(backend="threading", n_jobs=in_work):
                calls = (delayed(write_shard)(task, shared) for task in tasks)
                return list(Parallel(return_as="generator_unordered")(calls))
        finally:
            shared.gate.shut()


def _tallies(manifest: Manifest) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for split in manifest.splits.values():
        merge_tallies(found, split.tallies)
    return found


def report_of(
    plan: Plan, options: RunOptions, manifest: Manifest, skipped: Sequence[tuple[str, str]]
) -> Report:
    """Return the report of a dataset that was there before this run."""
    tallies = _tallies(manifest)
    return Report(
        out=plan.out,
        run_hash=plan.run_hash,
        samples={name: split.count for name, split in manifest.splits.items()},
        nbytes=sum(
            sum(files.nbytes)
            for split in manifest.splits.values()
            for files in split.files.values()
        ),
        seconds=0.0,
        made=0,
        skipped=skipped,
        max_skipped=options.max_skipped,
        ignored=plan.listing.ignored,
        notes=plan.listing.notes,
        workers=options.worker_count(),
        backend="",
        redone=sum(tallies.pop(REDONE, (0,))),
        tallies=tallies,
        aside={"shard_nbytes": options.shard_nbytes, **plan.aside},
    )
